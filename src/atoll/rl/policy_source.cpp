#include "atoll/rl/policy_source.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/hash.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/corpus_writer.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/rl/advantages.h"

namespace atl::rl {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPending = "rollouts.json";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<fs::path> paths_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

PromptOptions prompt_options(const train::TrainConfig& config, const Tokenizer& tokenizer,
                             const model_dir::ModelPath& model) {
  return {.tokenizer = &tokenizer,
          .chat =
              [&config, &tokenizer, &model] {
                return model_dir::find_chat_template(config.data.chat_template, model, tokenizer);
              },
          .max_tokens = config.train.context - 1};
}

// A chat model ends its answers with what its template writes there.
std::vector<std::int32_t> stops_of(const train::TrainConfig& config,
                                   const model_dir::ModelPath& model, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> stops = model_dir::stop_tokens(model, tokenizer);
  try {
    const ChatTemplate chat =
        model_dir::find_chat_template(config.data.chat_template, model, tokenizer);
    return model_dir::chat_stop_tokens(std::move(stops), chat, tokenizer);
  } catch (const Error& error) {
    if (!config.data.chat_template.empty() || error.kind() != ErrorKind::kUser) throw;
    return stops;  // a model of texts
  }
}

// Of the tokens of all prompts, and of the tokenizer that made them.
std::string hash_of(const std::vector<Prompt>& prompts, const Tokenizer& tokenizer) {
  Hasher hasher;
  hasher.update(tokenizer.file_content().data(), tokenizer.file_content().size());
  for (const Prompt& prompt : prompts) {
    const auto size = static_cast<std::uint64_t>(prompt.tokens.size());
    hasher.update(&size, sizeof(size));
    hasher.update(prompt.tokens.data(), prompt.tokens.size() * sizeof(std::int32_t));
  }
  return to_hex(hasher.digest());
}

// Whether the corpus in `directory` was made of that.
bool holds(const fs::path& directory, const data::SourceEntry& source) {
  if (!data::holds_corpus(directory)) return false;
  const data::Corpus corpus(directory);
  const std::vector<data::SourceEntry>& found = corpus.manifest().sources;
  return found.size() == 1 && found.front().hash == source.hash;
}

void sum_over_ranks(const train::Ranks& ranks, std::vector<double>& values) {
  if (ranks.is_alone() || values.empty()) return;
  ranks.group().all_reduce(
      Tensor(values.data(), Spec{Dtype::kF64, {static_cast<std::int64_t>(values.size())}}));
}

double largest_over_ranks(const train::Ranks& ranks, double value) {
  if (ranks.is_alone()) return value;
  ranks.group().all_reduce(Tensor(&value, Spec{Dtype::kF64, {1}}), comm::Reduce::kMax);
  return value;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

PolicySource::PolicySource(const train::TrainConfig& config)
    : config_(config),
      model_path_(model_dir::find_model(config.model.from, config.model.base)),
      tokenizer_(model_dir::load_tokenizer(model_path_)),
      stop_tokens_(stops_of(config, model_path_, tokenizer_)),
      prompts_(read_prompts(paths_of(config.rl.prompts),
                            prompt_options(config, tokenizer_, model_path_))),
      order_(static_cast<std::uint64_t>(config.run.seed), std::ssize(prompts_)),
      rewards_(make_rewards(config.rl, prompts_)) {}

PolicySource::~PolicySource() {
  if (sampling_.valid()) sampling_.wait();
}

// The prompts as a corpus: a run that goes on finds by its hash that they are the same.
train::PreparedCorpus PolicySource::corpus() {
  const fs::path directory = fs::path(config_.run.dir) / "prompts";
  fs::create_directories(directory);
  const data::SourceEntry source = {
      .path = "rl.prompts", .hash = hash_of(prompts_, tokenizer_), .format = "jsonl"};
  if (!holds(directory, source)) write_prompts(directory, source);
  std::vector<data::Corpus> corpora;
  corpora.emplace_back(directory);
  return {.corpora = std::move(corpora), .tokenizer = tokenizer_};
}

void PolicySource::write_prompts(const fs::path& directory, const data::SourceEntry& source) const {
  data::CorpusManifest manifest;
  manifest.tokenizer_file = tokenizer_.file_name();
  manifest.vocab_size = static_cast<std::uint64_t>(tokenizer_.vocab_size());
  manifest.frame = text::RecordedFrame{tokenizer_.end_of_text(), tokenizer_.tokens_before(),
                                       tokenizer_.tokens_after()};
  manifest.documents = "file";
  manifest.block_bytes = 1;
  manifest.shard_tokens = std::uint64_t{1} << 25;
  manifest.sources = {source};
  data::CorpusWriter writer(directory, tokenizer_.file_content(), std::move(manifest));
  for (const Prompt& prompt : prompts_) {
    writer.begin_document(data::Split::kTrain);
    writer.append(data::Split::kTrain, prompt.tokens);
  }
  writer.commit();
}

void PolicySource::change(nn::Model& model) {
  if (model.head == nullptr || model.stages.back().get() != model.head) {
    throw user_error(
        "atoll rl: the loss of a policy needs a head without an adapter, a cap on logits and a "
        "share of the vocabulary; leave lm_head out of lora.targets, or choose another model than "
        "{}",
        model.config.family);
  }
  const train::RlSettings& rl = config_.rl;
  model.stages.back() = std::make_unique<nn::PolicyHead>(
      std::move(model.stages.back()),
      ops::PolicyLoss{.clip_low = rl.clip_low, .clip_high = rl.clip_high, .kl = rl.kl},
      [this](std::int64_t first_sample) { return batches_->tokens(first_sample); });
}

void PolicySource::open(train::TrainRun& run, const fs::path& checkpoint) {
  const train::StateOptions& options = run.state().options();
  for (const nn::Param* param : run.state().store().params()) {
    if (!param->is_packed()) continue;
    throw user_error(
        "model.held_as keeps {} in the bits of its file, and the sampler has no such copy; set "
        "model.held_as=f32",
        param->name);
  }
  StepShape shape = {.batch_size = config_.train.batch_size,
                     .micro_batch = config_.train.micro_batch,
                     .context = config_.train.context,
                     .micro_batches = run.ranks().plan().of(run.ranks().data_rank())};
  samples_ = shape.samples();
  batches_.emplace(std::move(shape));
  const SamplerRoom room = {.context = config_.train.context,
                            .slots = config_.rl.slots,
                            .threads = run.model->device().threads().num_threads()};
  const std::int64_t vocab_size =
      std::min<std::int64_t>(tokenizer_.vocab_size(), options.model.vocab_size);
  const auto seed = static_cast<std::uint64_t>(config_.run.seed);
  sampler_ = std::make_unique<Sampler>(options.model, vocab_size, stop_tokens_, seed, room,
                                       options.lora ? &*options.lora : nullptr);
  if (config_.rl.kl > 0) {
    reference_ = std::make_unique<Sampler>(options.model, vocab_size, stop_tokens_, seed, room);
    open_reference(run);
  }
  if (config_.rl.async_steps > 0) {
    if (!run.ranks().is_alone()) {
      throw user_error("rl.async is for one rank so far; leave it out, or train without -n");
    }
    run.beside_state = [this] { return pending(); };
    if (!checkpoint.empty()) {
      const fs::path file = checkpoint / kPending;
      for (Rollout& rollout : rollouts_from_json(read_file(file), file.string())) {
        waiting_.push_back(std::move(rollout));
      }
    }
  }
  const std::int64_t step = run.position.step;
  completions_ = std::make_unique<metrics::JsonlSink>(
      fs::path(config_.run.dir) / (run.ranks().is_alone()
                                       ? "completions.jsonl"
                                       : fmt::format("completions-{}.jsonl", run.ranks().rank())),
      step == 0 ? -1 : step);
  if (!run.is_lead()) return;
  if (stop_tokens_.empty()) {
    log::warning(
        "the tokenizer of {} has no token that ends a text, so each completion has as many tokens "
        "as it may; give the model one (data.special_tokens)",
        model_path_.string());
  }
  log::info("prompts: {}, {} of {} in a step; {}", counted(std::ssize(prompts_), "row"),
            config_.train.batch_size / config_.rl.group, counted(config_.rl.group, "completion"),
            reference_ ? fmt::format("KL {} from {}", config_.rl.kl, model_path_.string())
                       : "no KL term");
}

// The model that the run began with, also where model.from names a run that has gone on since.
void PolicySource::open_reference(train::TrainRun& run) {
  const fs::path note = fs::path(config_.run.dir) / "reference.txt";
  fs::path where = run.model->base();
  run.ranks().world().agree([&] {
    if (!run.is_lead()) return;
    if (run.position.step == 0) write_file(note, where.string());
  });
  run.ranks().world().agree([&] {
    where = read_file(note);
    reference_->load(model_dir::find_model(where, config_.model.base));
  });
}

void PolicySource::set_values(train::TrainRun& run) {
  parallel::ParamStore& store = run.state().store();
  store.settle();
  sampler_->set_values(store);
}

Rollout PolicySource::sample(std::int64_t step, std::int64_t weights) {
  const Clock::time_point start = Clock::now();
  Rollout rollout = {.step = step, .weights = weights};
  const std::int64_t group = config_.rl.group;
  const std::int64_t batch = config_.train.batch_size;
  std::vector<SampleOrder> orders;
  for (const std::int64_t number : samples_) {
    const std::int64_t prompt = order_.at(step * (batch / group) + number / group);
    const std::vector<std::int32_t>& tokens = prompts_[static_cast<std::size_t>(prompt)].tokens;
    const std::int64_t left = config_.train.context - std::ssize(tokens);
    const std::int64_t most = config_.rl.max_tokens;
    rollout.samples.push_back({.number = number, .prompt = prompt});
    orders.push_back({.prompt = tokens,
                      .number = step * batch + number,
                      .max_tokens = most > 0 ? std::min(most, left) : left});
  }
  std::vector<Completion> completions = sampler_->complete(orders);
  for (std::size_t i = 0; i < completions.size(); ++i) {
    rollout.samples[i].completion = std::move(completions[i]);
  }
  if (reference_) score(rollout);
  rollout.sampling_seconds = seconds_since(start);
  reward(rollout);
  rollout.reward_seconds = seconds_since(start) - rollout.sampling_seconds;
  return rollout;
}

void PolicySource::score(Rollout& rollout) {
  std::vector<std::vector<std::int32_t>> texts;
  for (const Sample& sample : rollout.samples) {
    std::vector<std::int32_t> text = prompts_[static_cast<std::size_t>(sample.prompt)].tokens;
    const std::vector<std::int32_t>& tokens = sample.completion.tokens;
    text.insert(text.end(), tokens.begin(), tokens.end());
    texts.push_back(std::move(text));
  }
  const std::vector<std::vector<double>> scores = reference_->score(texts);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    Sample& sample = rollout.samples[i];
    sample.reference.assign(scores[i].end() - std::ssize(sample.completion.tokens),
                            scores[i].end());
  }
}

// Programs take their time, so completions are rewarded side by side.
void PolicySource::reward(Rollout& rollout) const {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (std::size_t i = next++; i < rollout.samples.size(); i = next++) {
      Sample& sample = rollout.samples[i];
      std::vector<std::int32_t> tokens = sample.completion.tokens;
      if (sample.completion.is_whole) tokens.pop_back();
      try {
        const Rewarded rewarded = {.prompt = &prompts_[static_cast<std::size_t>(sample.prompt)],
                                   .text = tokenizer_.decode(tokens, {.skip_special = true}),
                                   .is_whole = sample.completion.is_whole};
        for (std::size_t kind = 0; kind < rewards_.size(); ++kind) {
          const double earned = rewards_[kind]->of(rewarded);
          sample.rewards.push_back(earned);
          sample.reward += (config_.rl.weights.empty() ? 1 : config_.rl.weights[kind]) * earned;
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        return;
      }
    }
  };
  const bool has_program = !config_.rl.program.empty();
  const unsigned wanted = has_program ? std::max(2U, std::thread::hardware_concurrency()) : 1;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < wanted; ++i) threads.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

void PolicySource::collect() {
  if (sampling_.valid()) waiting_.push_back(sampling_.get());
}

// Step s is sampled from the weights that had taken max(0, s - rl.async) steps: with rl.async,
// while an earlier step is taken.
Rollout PolicySource::take_rollout(const train::TrainRun& run) {
  const std::int64_t step = run.position.step;
  const std::int64_t ahead = config_.rl.async_steps;
  collect();
  if (ahead == 0) return sample(step, step);
  if (step == 0) {
    for (std::int64_t i = 0; i < ahead; ++i) waiting_.push_back(sample(i, 0));
  }
  sampling_ =
      std::async(std::launch::async, [this, step, ahead] { return sample(step + ahead, step); });
  ATOLL_CHECK(!waiting_.empty() && waiting_.front().step == step, "no batch for step {}", step);
  Rollout rollout = std::move(waiting_.front());
  waiting_.pop_front();
  return rollout;
}

std::function<Batch()> PolicySource::begin_step(train::TrainRun& run) {
  collect();  // before the sampler's values change
  set_values(run);
  Rollout rollout;
  run.ranks().world().agree([&] { rollout = take_rollout(run); });
  share(run, rollout);
  const std::vector<double> all =
      advantages(totals_.rewards, config_.rl.group, parse_advantage(config_.rl.advantage));
  std::vector<double> own;
  for (const Sample& sample : rollout.samples) {
    own.push_back(all[static_cast<std::size_t>(sample.number)]);
  }
  batches_->fill(rollout, prompts_, own, static_cast<std::int64_t>(totals_.tokens));
  log_completions(rollout);
  warn_without_signal(run);
  return [this] { return batches_->next(); };
}

// Each number is on one rank, and the others have 0 in its place: the sums are exact.
void PolicySource::share(train::TrainRun& run, const Rollout& rollout) {
  const auto batch = static_cast<std::size_t>(config_.train.batch_size);
  std::vector<double> shared(batch + rewards_.size() + 2, 0.0);
  double& tokens = shared[batch];
  double& cut = shared[batch + 1];
  for (const Sample& sample : rollout.samples) {
    shared[static_cast<std::size_t>(sample.number)] = sample.reward;
    tokens += static_cast<double>(sample.completion.tokens.size());
    cut += sample.completion.is_whole ? 0 : 1;
    for (std::size_t kind = 0; kind < rewards_.size(); ++kind) {
      shared[batch + 2 + kind] += sample.rewards[kind];
    }
  }
  sum_over_ranks(run.ranks(), shared);
  totals_ = {.rewards = {shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(batch)},
             .kinds = {shared.begin() + static_cast<std::ptrdiff_t>(batch) + 2, shared.end()},
             .tokens = tokens,
             .cut = cut,
             .weights = rollout.weights,
             .sampling_seconds = rollout.sampling_seconds,
             .reward_seconds = rollout.reward_seconds};
}

void PolicySource::log_completions(const Rollout& rollout) {
  for (const Sample& sample : rollout.samples) {
    metrics::Record record = {.step = rollout.step + 1};
    record.add("prompt", prompts_[static_cast<std::size_t>(sample.prompt)].origin);
    record.add("sample", sample.number);
    record.add("reward", sample.reward);
    record.add("completion", tokenizer_.decode(sample.completion.tokens));
    completions_->write(record);
  }
}

// Rewards that never differ teach nothing, and somebody should know.
void PolicySource::warn_without_signal(const train::TrainRun& run) {
  constexpr std::int64_t kStepsBeforeWarning = 10;
  const std::int64_t group = config_.rl.group;
  const bool has_signal =
      groups_without_signal(totals_.rewards, group) * group < config_.train.batch_size;
  steps_without_signal_ = has_signal ? 0 : steps_without_signal_ + 1;
  if (steps_without_signal_ != kStepsBeforeWarning || !run.is_lead()) return;
  log::warning(
      "in {} steps no two completions of a prompt have earned differently (mean reward {:.3f}): "
      "nothing is learnt. Give prompts that the model sometimes gets right, a larger rl.group, or "
      "another reward; {} has what it answers",
      kStepsBeforeWarning, mean(totals_.rewards),
      (fs::path(config_.run.dir) / "completions.jsonl").string());
}

void PolicySource::end_step(train::TrainRun& run, const train::StepResult& /*result*/) {
  enum { kEntropy, kKl, kClipped, kRatio, kNumSums };
  std::vector<double> sums(kNumSums, 0.0);
  double furthest = 0;
  batches_->for_each_outcome(
      [&](const ops::PolicyOutcome& outcome, const ops::DrawnTokenFacts& facts) {
        sums[kEntropy] += outcome.entropy;
        sums[kKl] += outcome.kl;
        sums[kClipped] += outcome.clipped ? 1 : 0;
        sums[kRatio] += outcome.ratio;
        furthest = std::max(furthest, std::abs(outcome.logprob - facts.sampled));
      });
  sum_over_ranks(run.ranks(), sums);
  furthest = largest_over_ranks(run.ranks(), furthest);
  const auto batch = static_cast<double>(config_.train.batch_size);
  const double reward = mean(totals_.rewards);
  const double without =
      static_cast<double>(groups_without_signal(totals_.rewards, config_.rl.group)) /
      (batch / static_cast<double>(config_.rl.group));
  const double length = totals_.tokens / batch;
  const double entropy = sums[kEntropy] / totals_.tokens;
  train::Reporter::Rewards report;
  const auto add = [&](std::string name, double value) {
    report.values.emplace_back(std::move(name), value);
  };
  add("reward", reward);
  for (std::size_t kind = 0; rewards_.size() > 1 && kind < rewards_.size(); ++kind) {
    add(fmt::format("reward/{}", rewards_[kind]->name()), totals_.kinds[kind] / batch);
  }
  add("groups_without_signal", without);
  add("completion_tokens", length);
  add("completions_cut", totals_.cut / batch);
  add("entropy", entropy);
  if (reference_) add("kl", sums[kKl] / totals_.tokens);
  add("clipped", sums[kClipped] / totals_.tokens);
  add("ratio", sums[kRatio] / totals_.tokens);
  add("logprob_difference", furthest);
  report.values.emplace_back("weights_step", totals_.weights);
  add("sampling_s", totals_.sampling_seconds);
  add("reward_s", totals_.reward_seconds);
  report.text = fmt::format("  reward {:.3f}  no signal {:.0f}%  length {:.1f}  entropy {:.3f}",
                            reward, 100 * without, length, entropy);
  if (reference_) report.text += fmt::format("  KL {:.4f}", sums[kKl] / totals_.tokens);
  run.reporter.set_rewards(std::move(report));
}

train::ExtraPart PolicySource::pending() {
  collect();
  const std::vector<Rollout> all(waiting_.begin(), waiting_.end());
  return {.file = {}, .sources = {}, .texts = {{kPending, to_json(all)}}};
}

}  // namespace atl::rl
