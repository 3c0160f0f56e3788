#include "atoll/train/report/reporting.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/document_samples.h"
#include "atoll/device/free_memory.h"
#include "atoll/metrics/finished.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/train/config/written_settings.h"
#include "atoll/train/model/run_device.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

void add_preferences(metrics::Record& entry, const std::string& prefix,
                     const PreferenceReport& report) {
  entry.add(prefix + "reward_margin", report.margin);
  entry.add(prefix + "reward_accuracy", report.accuracy);
  entry.add(prefix + "reward_chosen", report.chosen);
  entry.add(prefix + "reward_rejected", report.rejected);
}

PreferenceReport means_of(const nn::PreferenceSums& sums) {
  const auto mean = [](double sum, double count) { return count > 0 ? sum / count : 0; };
  PreferenceReport report;
  report.chosen = mean(sums.chosen_reward, sums.num_chosen);
  report.rejected = mean(sums.rejected_reward, sums.num_rejected);
  report.margin = report.chosen - report.rejected;
  report.accuracy = mean(sums.num_right, sums.num_pairs);
  return report;
}

metrics::Record record_of(const StepReport& line, std::int64_t tokens) {
  metrics::Record entry = {.step = line.step,
                           .values = {{"loss", line.loss},
                                      {"grad_norm", line.grad_norm},
                                      {"lr", line.lr},
                                      {"tokens", tokens},
                                      {"tokens_per_s", line.tokens_per_s}}};
  if (line.mfu) entry.add("mfu", *line.mfu);
  entry.add("step_ms", line.step_ms);
  entry.add("data_fraction", line.data_fraction);
  if (line.num_ranks > 1) {
    entry.add("ranks", std::int64_t{line.num_ranks});
    entry.add("exposed_comm_fraction", line.exposed_fraction);
    entry.add("bytes_sent", line.sent_bytes);
    entry.add("slowest_rank", std::int64_t{line.slowest_rank});
    entry.add("slowest_rank_excess", line.slowest_excess);
  }
  if (line.experts) {
    entry.add("expert_load_most", line.experts->most_over_mean);
    entry.add("expert_load_most_block", line.experts->block);
    entry.add("expert_load_least", line.experts->least_over_mean);
    entry.add("expert_dropped_fraction", line.experts->dropped_fraction);
    entry.add("balance_loss", line.experts->balance_loss);
    entry.add("router_z_loss", line.experts->z_loss);
  }
  if (line.without_loss > 0) entry.add("steps_without_loss", line.without_loss);
  if (line.preferences) add_preferences(entry, "", *line.preferences);
  return entry;
}

// Where a loss is on parts of rows: on how many tokens, and which rows do not stay whole.
void announce_rows(const TrainConfig& config, const PreparedCorpus& corpus) {
  std::int64_t with_loss = 0;
  std::int64_t rows = 0;
  std::int64_t cut = 0;
  std::int64_t longest = 0;
  for (const data::Corpus& each : corpus.corpora) {
    const data::TokenSplit& split = each.train();
    with_loss += data::count_tokens_with_loss(split);
    if (!split.has_mask()) continue;
    const data::DocumentTable table(split);
    rows += table.size();
    for (std::int64_t i = 0; i < table.size(); ++i) {
      const std::int64_t size = table.end(i) - table.begin(i);
      longest = std::max(longest, size);
      if (size > config.train.context) ++cut;
    }
  }
  if (rows == 0) return;
  log::info("the loss is on {} of the training tokens", format_count(with_loss));
  if (config.data.packing != "documents" || cut == 0) return;
  log::warning(
      "{} of {} are longer than train.context = {}, and are cut into several sequences; the "
      "longest "
      "has {}",
      format_count(cut), counted(rows, "row"), config.train.context, counted(longest, "token"));
}

// Each answer has a sequence of its own, however short.
void announce_pairs(const TrainConfig& config, const PreparedCorpus& corpus) {
  const data::Corpus& only = corpus.corpora.front();
  const std::int64_t pairs = data::DocumentTable(only.train()).size() / 2;
  const std::int64_t held_out = data::DocumentTable(only.held_out()).size() / 2;
  const std::int64_t of_step = config.train.batch_size / 2;
  log::info("pairs: {} to learn from, {} held out; {} a step, {:.2f} epochs", format_count(pairs),
            format_count(held_out), format_count(of_step),
            static_cast<double>(config.train.steps * of_step) / static_cast<double>(pairs));
}

void announce_data(const TrainConfig& config, const PreparedCorpus& corpus,
                   std::int64_t step_tokens) {
  log::info("data: {}, {} held out; {} a step, {:.2f} epochs in {}",
            counted(corpus.num_tokens(), "training token"),
            format_count(corpus.num_held_out_tokens()), counted(step_tokens, "token"),
            // Of packed documents some positions are padding.
            config.train.epochs > 0
                ? config.train.epochs
                : static_cast<double>(config.train.steps) * static_cast<double>(step_tokens) /
                      static_cast<double>(corpus.num_tokens()),
            counted(config.train.steps, "step"));
  announce_rows(config, corpus);
}

}  // namespace

void Reporter::open(const fs::path& dir, std::int64_t step, const Settings& settings) {
  jsonl_ = std::make_unique<metrics::JsonlSink>(dir / "metrics.jsonl", step == 0 ? -1 : step);
  write_file(dir / "settings.toml", written_toml(settings));
  metrics::remove_finished(dir);
  times_.emplace(dir);
  system_.emplace(dir, system_every_);
}

void Reporter::begin(bool shows_bar) {
  bar_.emplace(config_.log.format == "text" && shows_bar);
  interval_ = {};
}

void Reporter::clear_bar() {
  if (bar_) bar_->clear();
}

void Reporter::print(const std::string& line) {
  ATOLL_CHECK(bar_.has_value(), "a line before the run began");
  bar_->print(line);
}

StepReport Reporter::averages(const StepResult& result, double lr, std::int64_t steps_left,
                              const Position& position) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - interval_.start).count();
  const auto steps = static_cast<double>(interval_.steps);
  const auto tokens = steps * static_cast<double>(config_.train.batch_size * config_.train.context);
  StepReport line;
  line.step = position.step;
  line.total_steps = position.step + steps_left;
  line.loss = position.line_loss / static_cast<double>(position.line_steps);
  line.grad_norm = result.grad_norm;
  line.lr = lr;
  line.tokens_per_s = tokens / seconds;
  if (rates_.peak_flops > 0) {
    line.mfu = line.tokens_per_s * rates_.flops_per_token / rates_.peak_flops;
  }
  line.step_ms = 1e3 * seconds / steps;
  line.data_fraction = interval_.data_seconds / seconds;
  line.seconds_left = seconds / steps * static_cast<double>(steps_left);
  line.num_ranks = rates_.num_ranks;
  if (interval_.shared_seconds > 0) {
    line.exposed_fraction = interval_.exposed_seconds / interval_.shared_seconds;
  }
  line.sent_bytes = interval_.sent_bytes / steps;
  line.experts = experts_;
  line.without_loss = position.without_loss;
  if (position.line_pairs.num_pairs > 0) line.preferences = means_of(position.line_pairs);
  line.rewards = rewards_.text;
  line.slowest_rank = interval_.slowest_rank;
  if (interval_.fastest_seconds > 0) {
    line.slowest_excess = interval_.slowest_seconds / interval_.fastest_seconds - 1;
  }
  return line;
}

void Reporter::stepped(const StepResult& result, double lr, std::int64_t steps_left,
                       Position& position) {
  ++interval_.steps;
  const StepReport line = averages(result, lr, steps_left, position);
  bar_->draw(line);
  if (!is_line_due(position.step, steps_left)) {
    // Rewards are of each step: no line averages over them.
    if (!rewards_.values.empty()) record({.step = position.step, .values = rewards_.values});
    return;
  }
  metrics::Record entry = record_of(line, position.tokens);
  for (const auto& [name, value] : rewards_.values) entry.values.emplace_back(name, value);
  add_system(entry);
  tell(entry, format_step_line(line));
  interval_ = {};
  position.line_steps = 0;
  position.line_loss = 0;
  position.line_pairs = {};
}

void Reporter::add_system(metrics::Record& entry) {
  if (!system_ || !system_->is_due()) return;
  for (auto& [name, value] : system_->sample()) entry.add(name, value);
  if (device_ == nullptr || !is_gpu(*device_)) return;
  const std::size_t free = free_memory_of(*device_);
  entry.add("system/gpu_memory_bytes", static_cast<double>(device_->total_memory() - free));
}

void Reporter::sent(std::uint64_t bytes) {
  // Other ranks' groups count from 0.
  interval_.sent_bytes += static_cast<double>(bytes < sent_before_ ? bytes : bytes - sent_before_);
  sent_before_ = bytes;
}

void Reporter::heard(std::int64_t step, const std::vector<RankFacts>& facts, double seconds) {
  if (times_ && facts.size() > 1) times_->add(step, facts);
  const auto slower = [](const RankFacts& a, const RankFacts& b) {
    return a.compute_seconds < b.compute_seconds;
  };
  const auto [fastest, slowest] = std::minmax_element(facts.begin(), facts.end(), slower);
  interval_.slowest_seconds += slowest->compute_seconds;
  interval_.fastest_seconds += fastest->compute_seconds;
  interval_.slowest_rank = static_cast<int>(slowest - facts.begin());
  double least = facts.front().waited_seconds;
  for (const RankFacts& fact : facts) least = std::min(least, fact.waited_seconds);
  interval_.exposed_seconds += least;
  interval_.shared_seconds += seconds;
}

void Reporter::evaluated(std::int64_t step, const HeldOut& held_out, bool is_repeated) {
  if (!is_open()) return;
  const Evaluation& whole = held_out.whole;
  metrics::Record entry = {.step = step, .values = {{"held_out_loss", whole.loss}}};
  // Of special tokens alone there are no bytes.
  const bool has_bytes = std::isfinite(whole.bits_per_byte);
  if (has_bytes) entry.add("held_out_bits_per_byte", whole.bits_per_byte);
  entry.add("held_out_tokens", whole.tokens);
  std::optional<PreferenceReport> preferences;
  if (whole.preferences) preferences = means_of(*whole.preferences);
  if (preferences) add_preferences(entry, "held_out_", *preferences);
  const std::size_t count = held_out.parts.size();
  for (std::size_t i = 0; count > 1 && i < count; ++i) {
    print(fmt::format("held-out loss {:.4f} of {}", held_out.parts[i].loss, held_out.names[i]));
  }
  if (!is_repeated) record(entry);
  if (preferences && config_.log.format != "json") {
    return print(fmt::format(
        "held-out loss {:.4f}  {}  ({}, {:.1f} s)", whole.loss, format_preferences(*preferences),
        counted(std::llround(whole.preferences->num_pairs), "pair"), whole.seconds));
  }
  print(config_.log.format == "json"
            ? metrics::to_jsonl(entry)
            : fmt::format("held-out loss {:.4f}  perplexity {:.2f}  bits per byte {}  ({}, {:.1f} "
                          "s)",
                          whole.loss, whole.perplexity(),
                          has_bytes ? fmt::format("{:.4f}", whole.bits_per_byte) : "n/a",
                          counted(whole.tokens, "token"), whole.seconds));
}

void Reporter::record(const metrics::Record& record) {
  if (!is_open()) return;
  jsonl_->write(record);
  for (metrics::Sink* sink : extra_sinks_) sink->write(record);
}

void Reporter::tell(const metrics::Record& entry, const std::string& line) {
  if (!is_open()) return;
  record(entry);
  print(config_.log.format == "json" ? metrics::to_jsonl(entry) : line);
}

// The model is safe by now: a disk that takes no more is no reason to fail.
void Reporter::finished(std::int64_t step) const {
  if (!is_open()) return;
  try {
    metrics::write_finished(config_.run.dir, step);
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
}

void Reporter::flush() {
  if (!is_open()) return;
  jsonl_->flush();
  for (metrics::Sink* sink : extra_sinks_) sink->flush();
}

void Reporter::announce(const PreparedCorpus& corpus, TrainState& state, const Ranks& ranks,
                        const Device& device) const {
  if (!is_open()) return;
  const nn::ModelConfig& model = state.model().config;
  const nn::ParameterCount count = nn::count_parameters(state.model());
  if (count.frozen > 0) {
    log::info("LoRA: {} of {} parameters are trained", format_count(count.total - count.frozen),
              format_count(count.total));
  }
  log::info("{} with {}: {}, width {}, {} ({} key-value), vocabulary {}", model.family,
            counted(count.total, "parameter"), counted(model.num_layers, "layer"),
            model.hidden_size, counted(model.heads.num_heads, "head"), model.heads.num_kv_heads,
            format_count(model.vocab_size));
  if (model.experts.num_experts > 0) {
    log::info("experts: {} in a block, {} of them for a token, which goes through {}",
              format_count(model.experts.num_experts), format_count(model.experts.top_k),
              counted(count.total - count.idle, "parameter"));
  }
  if (config_.train.has_preferences()) announce_pairs(config_, corpus);
  const std::int64_t step_tokens = config_.train.batch_size * config_.train.context;
  if (!config_.rl.is_given()) announce_data(config_, corpus, step_tokens);
  if (!ranks.is_alone()) {
    const parallel::DataParallelOptions& shared = state.options().data_parallel;
    std::string how =
        ranks.tensor_size() > 1 ? fmt::format("{} share each product, ", ranks.tensor_size()) : "";
    if (const comm::Group* context = ranks.context()) {
      const bool is_ring = state.model().options.context_attention == nn::ContextAttention::kRing;
      how += fmt::format("{} share each sequence ({}), ", context->size(),
                         is_ring ? "ring attention" : "ulysses");
    }
    if (const std::int64_t experts = config_.parallel.ep; experts > 1) {
      how += fmt::format("{} share the experts, ", experts);
    }
    log::info("{} ({}): {}ZeRO {}{}{}; {} a step", counted(ranks.size(), "rank"),
              ranks.world().backend(), how, config_.dp.zero,
              shared.replicas > 1 ? fmt::format(", {} copies", shared.replicas) : "",
              shared.exact ? ", exact sums" : "",
              counted(ranks.plan().num_micro_batches(), "micro-batch"));
  }
  if (const std::size_t in_file = state.file_memory().total_bytes(); in_file > 0) {
    const std::string directory = state.options().offload.directory.string();
    log::info("offload: {} of state in {}, {} of memory{}", format_bytes(in_file),
              directory.empty() ? "memory of the host" : "a file in " + directory,
              format_bytes(state.memory().total_bytes()), ranks.is_alone() ? "" : " on this rank");
  }
  if (const parallel::PipelinePart* pipeline = state.pipeline()) {
    log::info(
        "pipeline: {} by schedule {}, {} on each; idle {:.1f}% of the time by FLOPs; planned "
        "memory at most {} on a rank",
        counted(pipeline->options().num_ranks, "rank"), pipeline->options().schedule,
        counted(pipeline->options().chunks, "row of stages", "rows of stages"),
        100 * pipeline->bubble(), format_bytes(static_cast<std::uint64_t>(rates_.most_memory)));
  }
  const std::string peak =
      rates_.peak_flops > 0
          ? fmt::format("peak {:.0f} GFLOP/s {}", rates_.peak_flops / 1e9,
                        is_gpu(device) ? "of bf16 as its maker states" : "measured")
          : "whose peak is unknown, and so is MFU";
  log::info("device: {}, {}; planned memory {}", device.name(), peak,
            format_bytes(state.memory().total_bytes()));
}

bool has_evaluation(const fs::path& path, std::int64_t step) {
  for (const metrics::Record& record : metrics::read_jsonl(path)) {
    if (record.step != step) continue;
    for (const auto& [name, value] : record.values) {
      if (name == "held_out_loss") return true;
    }
  }
  return false;
}

}  // namespace atl::train
