#include "atoll/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/ops/peak.h"
#include "atoll/train/adapter.h"

namespace atl::train {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

fs::path make_run_directory(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) {
    throw user_error("cannot make the run directory {}: {}; give run.dir a place you may write to",
                     dir, error.message());
  }
  return dir;
}

// Whether the log has this step's held-out loss already: a finished run was called again.
bool has_evaluation(const fs::path& log, std::int64_t step) {
  for (const metrics::Record& record : metrics::read_jsonl(log)) {
    if (record.step != step) continue;
    for (const auto& [name, value] : record.values) {
      if (name == "held_out_loss") return true;
    }
  }
  return false;
}

// A run that meets this many bad steps in a row does not recover by skipping more.
constexpr std::int64_t kMaxSkippedInARow = 10;

// Settings that the steps already taken depend on, with corpus and model, which are compared apart.
constexpr const char* kFixedKeys[] = {
    "run.seed",    "train.batch_size", "train.context", "train.dropout",       "train.micro_batch",
    "train.dtype", "data.packing",     "data.weights",  "optim.kind",          "optim.masters",
    "lora.rank",   "lora.alpha",       "lora.targets",  "lora.rank_stabilized"};

}  // namespace

struct Trainer::Interval {
  Clock::time_point start = Clock::now();
  std::int64_t steps = 0;
  double data_seconds = 0;
};

Trainer::Trainer(const TrainConfig& config, const Settings& settings)
    : config_(config), settings_(settings), dir_(make_run_directory(config.run.dir)) {
  lock_ = std::make_unique<ckpt::RunLock>(dir_);
  corpus_.emplace(prepare_corpus(corpus_options(config)));
  device_ = open_cpu(static_cast<int>(config.device.threads));
  stream_ = std::make_unique<Stream>(*device_);
  schedule_ = {.kind = optim::schedule_kind(config.optim.schedule),
               .peak = config.optim.lr,
               .min_ratio = config.optim.min_lr_ratio,
               .warmup_steps = config.optim.warmup_steps,
               .total_steps = config.train.steps,
               .decay_fraction = config.optim.decay_fraction};
  if (config.eval.every > 0 && !corpus_->has_held_out()) {
    throw user_error("eval.every is {} and no text is held out; set data.held_out or eval.every=0",
                     config.eval.every);
  }
  if (!config.model.from.empty()) base_ = find_model(config.model.from);
  open_state(*corpus_);
  begin_or_resume();
  jsonl_ = std::make_unique<metrics::JsonlSink>(dir_ / "metrics.jsonl",
                                                position_.step == 0 ? -1 : position_.step);
  write_file(dir_ / "settings.toml", settings.to_toml());
}

Trainer::~Trainer() = default;

fs::path Trainer::checkpoint_root() const {
  return dir_ / "checkpoints";
}

void Trainer::open_state(const PreparedCorpus& corpus) {
  // Both of these tell the user before memory is taken.
  samples_.emplace(corpus, config_.data.weights, static_cast<std::uint64_t>(config_.run.seed),
                   config_.train.context,
                   data::parse_packing(config_.data.packing, "data.packing"));
  const std::int32_t eos = corpus.tokenizer.end_of_text().value_or(-1);
  state_ = std::make_unique<TrainState>(state_options(config_, corpus.vocab_size(), eos));
  state_->allocate(*device_);
  if (config_.model.from.empty()) {
    carried_ = new_carried(corpus.tokenizer, state_->model().config);
  } else {
    carried_ = read_carried(base_);
    if (!carry_tokenizer(corpus.tokenizer, state_->model().config, carried_)) {
      log::warning(
          "the tokens were made with another tokenizer than the one in {}; checkpoints have the "
          "former, and the model must learn its tokens anew",
          base_.string());
    }
  }
  const fs::path chat_template = config_.data.chat_template;
  if (fs::is_regular_file(chat_template)) {
    carried_["chat_template.jinja"] = read_file(chat_template);
  }
}

void Trainer::begin_or_resume() {
  ckpt::clean_stale(checkpoint_root());
  Run run = {.stream = stream_.get()};
  const auto newest = ckpt::newest_verified(checkpoint_root());
  if (newest) {
    check_settings_of(read_position(newest->path));
    if (config_.lora.rank > 0) load_base();
    check_base_of(newest->path, read_position(newest->path).base_hash);
    position_ = load_checkpoint(*newest, *state_);
    saved_step_ = position_.step;
    last_checkpoint_ = newest->path;
    if (position_.step > config_.train.steps) {
      throw user_error(
          "{} has taken {} steps already, and train.steps is {}; raise it, or choose another "
          "run.dir",
          config_.run.dir, position_.step, config_.train.steps);
    }
    ckpt::set_aside_newer(checkpoint_root(), newest->step);
    log::info("going on from {} (step {})", newest->path.string(), position_.step);
  } else {
    state_->store().initialise(run, static_cast<std::uint64_t>(config_.run.seed));
    if (!base_.empty()) load_base();
    state_->optimizer().init_masters(run, state_->store().values());
  }
  position_.corpus_hash = corpus_->hash();
  position_.base_hash = hash_of_frozen(state_->store());
  position_.settings = settings_.key_values();
  peak_flops_ = ops::measure_peak_flops(run);
}

void Trainer::load_base() {
  load_parameters(base_, state_->model(), state_->store());
}

// An adapter goes on beside the weights it has learnt beside, wherever these are now.
void Trainer::check_base_of(const fs::path& checkpoint, const std::string& base_hash) const {
  if (base_hash.empty() || base_hash == hash_of_frozen(state_->store())) return;
  const fs::path config = checkpoint / kAdapterConfigFile;
  throw user_error(
      "the weights in {} are not those that the adapter {} was trained beside, which were in {}; "
      "set model.from to these, or choose another run.dir",
      base_.string(), checkpoint.string(),
      parse_adapter_config(read_file(config), config.string()).base);
}

// What the steps taken so far depend on must be as it was; the rest may change, and is told.
void Trainer::check_settings_of(const Position& position) const {
  const std::string hash = corpus_->hash();
  if (position.corpus_hash != hash) {
    throw user_error(
        "the corpus is not the one that {} was trained on (hash {} against {}); give back the same "
        "text and data.* settings, or choose another run.dir",
        config_.run.dir, hash, position.corpus_hash);
  }
  const auto now = settings_.key_values();
  for (const auto& [key, before] : position.settings) {
    const auto at =
        std::find_if(now.begin(), now.end(), [&](const auto& entry) { return entry.first == key; });
    if (at == now.end() || at->second == before) continue;
    const bool fixed =
        std::find(std::begin(kFixedKeys), std::end(kFixedKeys), key) != std::end(kFixedKeys);
    if (fixed) {
      throw user_error(
          "{} is {} and was {} in the {} steps already taken in {}; set it back, or choose another "
          "run.dir",
          key, at->second, before, position.step, config_.run.dir);
    }
    log::info("{} is now {}, was {}", key, at->second, before);
  }
}

void Trainer::announce() const {
  const nn::ModelConfig& model = state_->model().config;
  const nn::ParameterCount count = nn::count_parameters(state_->model());
  if (count.frozen > 0) {
    log::info("LoRA: {} of {} parameters are trained", format_count(count.total - count.frozen),
              format_count(count.total));
  }
  log::info("{} with {} parameters: {} layers, width {}, {} heads ({} key-value), vocabulary {}",
            model.family, format_count(count.total), model.num_layers, model.hidden_size,
            model.heads.num_heads, model.heads.num_kv_heads, format_count(model.vocab_size));
  log::info("data: {} training tokens, {} held out; {} tokens a step, {:.2f} epochs in {} steps",
            format_count(corpus_->num_tokens()), format_count(corpus_->num_held_out_tokens()),
            format_count(config_.train.batch_size * config_.train.context),
            static_cast<double>(config_.train.steps) *
                static_cast<double>(config_.train.batch_size * config_.train.context) /
                static_cast<double>(corpus_->num_tokens()),
            config_.train.steps);
  log::info("device: {}; planned memory {:.1f} MiB", device_->name(),
            static_cast<double>(state_->memory().total_bytes()) / (1 << 20));
  log::info("MFU = tok/s x FLOPs/token / peak; {} = {:.3g}; peak = {:.0f} GFLOP/s, measured",
            nn::flops_formula(state_->model()),
            nn::flops_per_token(state_->model(), config_.train.context), peak_flops_ / 1e9);
}

StepResult Trainer::step(data::Loader& loader) {
  const StepOptions options = {.step = position_.step,
                               .seed = static_cast<std::uint64_t>(config_.run.seed),
                               .num_micro_batches = loader.micro_batches_per_step(),
                               .lr = schedule_.learning_rate(position_.step),
                               .clip = config_.optim.clip};
  const StepResult result =
      take_step(*state_, *stream_, options, [&loader] { return loader.next(); });
  if (!result.taken()) handle_nonfinite(result);
  skipped_in_a_row_ = result.taken() ? 0 : skipped_in_a_row_ + 1;
  ++position_.step;
  position_.tokens += result.targets;
  return result;
}

void Trainer::handle_nonfinite(const StepResult& result) {
  std::string samples;
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, result.nonfinite_samples.size()); ++i) {
    const std::int64_t sample = result.nonfinite_samples[i];
    samples +=
        fmt::format("{}{} ({})", i == 0 ? "" : ", ", sample, samples_->get().describe(sample));
  }
  if (result.nonfinite_samples.size() > kShown) {
    samples += fmt::format(" and {} more", result.nonfinite_samples.size() - kShown);
  }
  const std::string what = fmt::format("step {}: loss {}, grad_norm {}; samples {}",
                                       position_.step + 1, result.loss, result.grad_norm, samples);
  record({.step = position_.step + 1,
          .values = {{"nonfinite", std::int64_t{1}}, {"nonfinite_samples", samples}}});
  if (config_.train.on_nonfinite == "skip" && skipped_in_a_row_ + 1 < kMaxSkippedInARow) {
    log::warning("{}; the step is skipped, no parameter changed", what);
    return;
  }
  if (position_.step > 0 && saved_step_ != position_.step) save();
  throw make_error(ErrorKind::kNumeric,
                   "{}. No parameter changed; {}. Lower optim.lr, or look at those samples{}", what,
                   saved_step_ < 0 ? "there is no checkpoint yet"
                                   : fmt::format("the last checkpoint is of step {}", saved_step_),
                   config_.train.on_nonfinite == "skip"
                       ? fmt::format(" ({} steps in a row were bad)", kMaxSkippedInARow)
                       : ", or set train.on_nonfinite=skip");
}

void Trainer::record(metrics::Record record) {
  jsonl_->write(record);
  for (metrics::Sink* sink : extra_sinks_) sink->write(record);
}

void Trainer::report(const StepResult& result, double lr, Interval& interval, ProgressBar& bar) {
  const bool last = position_.step == config_.train.steps;
  ++interval.steps;
  ++position_.line_steps;
  position_.line_loss += result.loss;
  const double seconds = seconds_since(interval.start);
  const auto steps = static_cast<double>(interval.steps);
  const auto tokens = steps * static_cast<double>(config_.train.batch_size * config_.train.context);
  StepReport line;
  line.step = position_.step;
  line.total_steps = config_.train.steps;
  line.loss = position_.line_loss / static_cast<double>(position_.line_steps);
  line.grad_norm = result.grad_norm;
  line.lr = lr;
  line.tokens_per_s = tokens / seconds;
  line.mfu =
      line.tokens_per_s * nn::flops_per_token(state_->model(), config_.train.context) / peak_flops_;
  line.step_ms = 1e3 * seconds / steps;
  line.data_fraction = interval.data_seconds / seconds;
  line.seconds_left = seconds / steps * static_cast<double>(config_.train.steps - position_.step);
  bar.draw(line);
  if (position_.step % config_.log.every != 0 && !last) return;

  const metrics::Record entry = {.step = line.step,
                                 .values = {{"loss", line.loss},
                                            {"grad_norm", line.grad_norm},
                                            {"lr", line.lr},
                                            {"tokens", position_.tokens},
                                            {"tokens_per_s", line.tokens_per_s},
                                            {"mfu", line.mfu},
                                            {"step_ms", line.step_ms},
                                            {"data_fraction", line.data_fraction}}};
  record(entry);
  bar.print(config_.log.format == "json" ? metrics::to_jsonl(entry) : format_step_line(line));
  interval = {};
  position_.line_steps = 0;
  position_.line_loss = 0;
}

std::optional<Evaluation> Trainer::evaluate_held_out(const InterruptGuard& interrupt,
                                                     ProgressBar& bar, bool is_repeated) {
  std::vector<Evaluation> parts;
  for (const data::Corpus& corpus : corpus_->corpora) {
    if (corpus.held_out().num_tokens() < 2) continue;
    parts.push_back(evaluate(*state_, *stream_, corpus.held_out(), corpus_->tokenizer,
                             {.max_tokens = config_.eval.max_tokens,
                              .packing = data::parse_packing(config_.data.packing, "data.packing"),
                              .stop = [&interrupt] { return interrupt.signal() != 0; }}));
    if (interrupt.signal() != 0) return std::nullopt;
  }
  const Evaluation result = combine(parts);
  const metrics::Record entry = {.step = position_.step,
                                 .values = {{"held_out_loss", result.loss},
                                            {"held_out_bits_per_byte", result.bits_per_byte},
                                            {"held_out_tokens", result.tokens}}};
  for (std::size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) {
    bar.print(fmt::format("held-out loss {:.4f} of {}", parts[i].loss,
                          corpus_->corpora[i].held_out().name()));
  }
  if (!is_repeated) record(entry);
  bar.print(config_.log.format == "json"
                ? metrics::to_jsonl(entry)
                : fmt::format("held-out loss {:.4f}  perplexity {:.2f}  bits per byte {:.4f}  ({} "
                              "tokens, {:.1f} s)",
                              result.loss, result.perplexity(), result.bits_per_byte,
                              format_count(result.tokens), result.seconds));
  return result;
}

void Trainer::save() {
  last_checkpoint_ = save_checkpoint(checkpoint_root(), *state_, position_, carried_, base_);
  saved_step_ = position_.step;
  ckpt::prune_checkpoints(checkpoint_root(), static_cast<int>(config_.checkpoint.keep));
}

TrainOutcome Trainer::run() {
  const InterruptGuard interrupt;
  ProgressBar bar(config_.log.format == "text");
  const bool has_held_out = corpus_->has_held_out();
  TrainOutcome outcome;
  announce();
  data::Loader loader(samples_->get(), {.micro_batch = config_.train.micro_batch,
                                        .global_batch = config_.train.batch_size,
                                        .first_step = position_.step});
  Interval interval;
  while (position_.step < config_.train.steps && interrupt.signal() == 0) {
    const double lr = schedule_.learning_rate(position_.step);
    const double waited = loader.waited_seconds();
    const StepResult result = step(loader);
    interval.data_seconds += loader.waited_seconds() - waited;
    if (result.taken()) report(result, lr, interval, bar);

    const bool last = position_.step == config_.train.steps;
    const Clock::time_point pause = Clock::now();
    if (!last && has_held_out && interrupt.signal() == 0 && config_.eval.every > 0 &&
        position_.step % config_.eval.every == 0) {
      evaluate_held_out(interrupt, bar, /*is_repeated=*/false);
    }
    if (!last && config_.checkpoint.every > 0 && position_.step % config_.checkpoint.every == 0) {
      save();
    }
    interval.start += Clock::now() - pause;  // the step line times steps alone
  }
  bar.clear();
  if (saved_step_ != position_.step) save();  // whatever becomes of the evaluation
  // Whoever sends a signal may not wait for an evaluation; the same command makes up for it.
  outcome.signal = interrupt.signal();
  outcome.step = position_.step;
  if (position_.step == config_.train.steps && has_held_out && outcome.signal == 0) {
    outcome.held_out = evaluate_held_out(
        interrupt, bar, /*is_repeated=*/has_evaluation(dir_ / "metrics.jsonl", position_.step));
    outcome.signal = interrupt.signal();
  }
  outcome.checkpoint = last_checkpoint_;
  jsonl_->flush();
  for (metrics::Sink* sink : extra_sinks_) sink->flush();
  return outcome;
}

}  // namespace atl::train
