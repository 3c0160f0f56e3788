#include <algorithm>
#include <cmath>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/train/trainer.h"

namespace atl::train {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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

}  // namespace

struct Trainer::Interval {
  Clock::time_point start = Clock::now();
  std::int64_t steps = 0;
  double data_seconds = 0;
  double exposed_seconds = 0;  // waited for collectives, on the rank that waited least
  double shared_seconds = 0;   // of the steps whose facts are in here: one behind those of a line
  double slowest_seconds = 0;  // a micro-batch on the slowest rank, summed over steps
  double fastest_seconds = 0;
  int slowest_rank = 0;
};

void Trainer::announce() const {
  if (!ranks_->is_lead()) return;
  const nn::ModelConfig& model = state_->model().config;
  const nn::ParameterCount count = nn::count_parameters(state_->model());
  if (count.frozen > 0) {
    log::info("LoRA: {} of {} parameters are trained", format_count(count.total - count.frozen),
              format_count(count.total));
  }
  log::info("{} with {}: {}, width {}, {} ({} key-value), vocabulary {}", model.family,
            counted(count.total, "parameter"), counted(model.num_layers, "layer"),
            model.hidden_size, counted(model.heads.num_heads, "head"), model.heads.num_kv_heads,
            format_count(model.vocab_size));
  log::info("data: {}, {} held out; {} a step, {:.2f} epochs in {}",
            counted(corpus_->num_tokens(), "training token"),
            format_count(corpus_->num_held_out_tokens()),
            counted(config_.train.batch_size * config_.train.context, "token"),
            static_cast<double>(config_.train.steps) *
                static_cast<double>(config_.train.batch_size * config_.train.context) /
                static_cast<double>(corpus_->num_tokens()),
            counted(config_.train.steps, "step"));
  if (!ranks_->is_alone()) {
    const parallel::DataParallelOptions& shared = state_->options().data_parallel;
    log::info(
        "{} ({}): {}ZeRO {}{}{}; {} a step", counted(ranks_->size(), "rank"), world_->backend(),
        ranks_->tensor_size() > 1 ? fmt::format("{} share each product, ", ranks_->tensor_size())
                                  : "",
        config_.dp.zero, shared.replicas > 1 ? fmt::format(", {} copies", shared.replicas) : "",
        shared.exact ? ", exact sums" : "",
        counted(ranks_->plan().num_micro_batches(), "micro-batch"));
  }
  log::info("device: {}, peak {:.0f} GFLOP/s measured; planned memory {}", device_->name(),
            peak_flops_ / 1e9, format_bytes(state_->memory().total_bytes()));
}

StepResult Trainer::step() {
  progress_ = {};
  const StepOptions options = {.step = position_.step,
                               .seed = static_cast<std::uint64_t>(config_.run.seed),
                               .num_micro_batches = ranks_->plan().num_micro_batches(),
                               .lr = schedule_.learning_rate(schedule_step_),
                               .clip = config_.optim.clip,
                               .plan = &ranks_->plan(),
                               .group = ranks_->is_alone() ? nullptr : &ranks_->data(),
                               .progress = membership_ == nullptr ? nullptr : &progress_,
                               .timeline = timeline()};
  const StepResult result =
      take_step(*state_, *stream_, options, [this] { return loader_->next(); });
  if (!result.taken()) handle_nonfinite(result);
  step_seconds_ = seconds_since(step_began_);
  account(result);
  return result;
}

// The step is done, on all ranks.
void Trainer::account(const StepResult& result) {
  if (rounds_) rounds_->stepped(result, step_seconds_);
  skipped_in_a_row_ = result.taken() ? 0 : skipped_in_a_row_ + 1;
  ++position_.step;
  --steps_left_;
  if (rounds_) ++next_batch_;
  position_.tokens += result.targets;
  if (result.taken()) {
    ++position_.line_steps;
    position_.line_loss += result.loss;
  }
  progress_ = {};
  if (tell_step_) tell_step_(position_.step);
}

void Trainer::open_loader() {
  loader_.reset();
  const std::vector<std::int64_t> mine = ranks_->plan().of(ranks_->data_rank());
  if (mine.empty()) return;
  loader_ = std::make_unique<data::Loader>(
      samples_->get(), data::LoaderOptions{.micro_batch = config_.train.micro_batch,
                                           .global_batch = config_.train.batch_size,
                                           .micro_batches = mine,
                                           .first_step = rounds_ ? next_batch_ : position_.step});
}

// Tells the others how the step went here, and hears how it went there.
void Trainer::share_facts(const StepResult& result, double seconds, Interval& interval) {
  const double waited = state_->store().waited_seconds();
  const RankFacts mine = {
      .signal = static_cast<double>(signal_),
      .step_seconds = seconds,
      .waited_seconds = waited - waited_before_,
      .compute_seconds = result.compute_seconds,
      .change_wanted =
          membership_ != nullptr && ranks_->is_lead() && membership_->wants_change() ? 1.0 : 0.0,
      .has_saved = saving_ && saving_->finished() ? 1.0 : 0.0};
  waited_before_ = waited;
  const std::vector<RankFacts> facts = ranks_->gather(mine);
  const auto slower = [](const RankFacts& a, const RankFacts& b) {
    return a.compute_seconds < b.compute_seconds;
  };
  const auto [fastest, slowest] = std::minmax_element(facts.begin(), facts.end(), slower);
  interval.slowest_seconds += slowest->compute_seconds;
  interval.fastest_seconds += fastest->compute_seconds;
  interval.slowest_rank = static_cast<int>(slowest - facts.begin());
  double least = facts.front().waited_seconds;
  change_wanted_ = facts.front().change_wanted != 0;
  all_have_saved_ = saving_ != nullptr;
  for (const RankFacts& fact : facts) {
    all_have_saved_ &= fact.has_saved != 0;
    least = std::min(least, fact.waited_seconds);
    if (fact.signal != 0) signal_ = static_cast<int>(fact.signal);
  }
  interval.exposed_seconds += least;
  interval.shared_seconds += seconds;
  if (ranks_->balance(facts)) open_loader();
}

// Ranks that hold the same parameters must hold the same bits: memory, links and our own code are
// all that could change them.
void Trainer::compare_replicas() {
  const std::vector<int> differing = replicas_that_differ(*state_);
  if (differing.empty()) return;
  throw make_error(ErrorKind::kDamaged,
                   "step {}: the parameters of rank {} are not those of rank {}; memory or a link "
                   "is faulty there. Start again from the last checkpoint ({}), without that rank",
                   position_.step, differing[1], differing[0],
                   saved_step_ < 0 ? "there is none yet" : last_checkpoint_.string());
}

void Trainer::handle_nonfinite(const StepResult& result) {
  // Where in the text they are takes a line each: that is for the log.
  std::string samples, places;
  constexpr std::size_t kShown = 3;
  const std::size_t count = result.nonfinite_samples.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t sample = result.nonfinite_samples[i];
    places +=
        fmt::format("{}{} ({})", i == 0 ? "" : ", ", sample, samples_->get().describe(sample));
    if (i < kShown) samples += fmt::format("{}{}", i == 0 ? "" : ", ", sample);
  }
  if (count > kShown) samples += fmt::format(" and {} more", count - kShown);
  const std::int64_t step = position_.step + 1;
  record({.step = step, .values = {{"nonfinite", std::int64_t{1}}, {"nonfinite_samples", places}}});
  const std::string what =
      fmt::format("step {}: loss {}, grad_norm {}", step, result.loss, result.grad_norm);
  const std::string where =
      fmt::format("{} {}; {} says where in the text they are", count == 1 ? "Sample" : "Samples",
                  samples, (dir_ / "metrics.jsonl").string());
  const bool skips = config_.train.on_nonfinite == "skip";
  if (skips && skipped_in_a_row_ + 1 < kMaxSkippedInARow) {
    if (ranks_->is_lead()) {
      log::warning("{}; the step is skipped, no parameter changed. {}", what, where);
    }
    return;
  }
  finish_save();
  if (position_.step > 0 && saved_step_ != position_.step) save();
  throw make_error(ErrorKind::kNumeric, "{}{}. Lower optim.lr{}. No parameter changed; {}. {}",
                   what,
                   skips ? fmt::format(" ({} steps in a row were bad)", kMaxSkippedInARow) : "",
                   skips ? "" : ", or set train.on_nonfinite=skip",
                   saved_step_ < 0 ? "there is no checkpoint yet"
                                   : fmt::format("the last checkpoint is of step {}", saved_step_),
                   where);
}

void Trainer::record(metrics::Record record) {
  if (!ranks_->is_lead()) return;
  jsonl_->write(record);
  for (metrics::Sink* sink : extra_sinks_) sink->write(record);
}

void Trainer::report(const StepResult& result, double lr, Interval& interval, ProgressBar& bar) {
  ++interval.steps;
  const double seconds = seconds_since(interval.start);
  const auto steps = static_cast<double>(interval.steps);
  const auto tokens = steps * static_cast<double>(config_.train.batch_size * config_.train.context);
  StepReport line;
  line.step = position_.step;
  line.total_steps = position_.step + steps_left_;
  line.loss = position_.line_loss / static_cast<double>(position_.line_steps);
  line.grad_norm = result.grad_norm;
  line.lr = lr;
  line.tokens_per_s = tokens / seconds;
  line.mfu =
      line.tokens_per_s * nn::flops_per_token(state_->model(), config_.train.context) / peak_flops_;
  line.step_ms = 1e3 * seconds / steps;
  line.data_fraction = interval.data_seconds / seconds;
  line.seconds_left = seconds / steps * static_cast<double>(steps_left_);
  line.num_ranks = ranks_->size();
  if (interval.shared_seconds > 0) {
    line.exposed_fraction = interval.exposed_seconds / interval.shared_seconds;
  }
  line.slowest_rank = interval.slowest_rank;
  if (interval.fastest_seconds > 0) {
    line.slowest_excess = interval.slowest_seconds / interval.fastest_seconds - 1;
  }
  bar.draw(line);
  if (position_.step % config_.log.every != 0 && steps_left_ != 0) return;

  metrics::Record entry = {.step = line.step,
                           .values = {{"loss", line.loss},
                                      {"grad_norm", line.grad_norm},
                                      {"lr", line.lr},
                                      {"tokens", position_.tokens},
                                      {"tokens_per_s", line.tokens_per_s},
                                      {"mfu", line.mfu},
                                      {"step_ms", line.step_ms},
                                      {"data_fraction", line.data_fraction}}};
  if (line.num_ranks > 1) {
    entry.add("ranks", std::int64_t{line.num_ranks});
    entry.add("exposed_comm_fraction", line.exposed_fraction);
    entry.add("slowest_rank", std::int64_t{line.slowest_rank});
    entry.add("slowest_rank_excess", line.slowest_excess);
  }
  record(entry);
  if (ranks_->is_lead())
    bar.print(config_.log.format == "json" ? metrics::to_jsonl(entry) : format_step_line(line));
  interval = {};
  position_.line_steps = 0;
  position_.line_loss = 0;
}

// Agreed between the ranks: one that stops by itself would leave the others waiting.
int Trainer::asked_to_stop(const InterruptGuard& interrupt) {
  std::int64_t signal = std::max(signal_, interrupt.signal());
  if (!ranks_->is_alone()) {
    ranks_->group().all_reduce({&signal, {Dtype::kI64, {1}}}, comm::Reduce::kMax);
  }
  return signal_ = static_cast<int>(signal);
}

std::optional<Evaluation> Trainer::evaluate_held_out(const InterruptGuard& interrupt,
                                                     ProgressBar& bar, bool is_repeated) {
  const metrics::ScopedSpan span(timeline(), "evaluate", "evaluation");
  std::vector<Evaluation> parts;
  for (const data::Corpus& corpus : corpus_->corpora) {
    if (corpus.held_out().num_tokens() < 2) continue;
    parts.push_back(evaluate(*state_, *stream_, corpus.held_out(), corpus_->tokenizer,
                             {.max_tokens = config_.eval.max_tokens,
                              .packing = data::parse_packing(config_.data.packing, "data.packing"),
                              .stop = [&] { return asked_to_stop(interrupt) != 0; }}));
    if (asked_to_stop(interrupt) != 0) return std::nullopt;
  }
  const Evaluation result = combine(parts);
  metrics::Record entry = {.step = position_.step, .values = {{"held_out_loss", result.loss}}};
  // Of special tokens alone there are no bytes.
  const bool has_bytes = std::isfinite(result.bits_per_byte);
  if (has_bytes) entry.add("held_out_bits_per_byte", result.bits_per_byte);
  entry.add("held_out_tokens", result.tokens);
  if (!ranks_->is_lead()) return result;
  for (std::size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) {
    bar.print(fmt::format("held-out loss {:.4f} of {}", parts[i].loss,
                          corpus_->corpora[i].held_out().name()));
  }
  if (!is_repeated) record(entry);
  bar.print(config_.log.format == "json"
                ? metrics::to_jsonl(entry)
                : fmt::format("held-out loss {:.4f}  perplexity {:.2f}  bits per byte {}  ({}, "
                              "{:.1f} s)",
                              result.loss, result.perplexity(),
                              has_bytes ? fmt::format("{:.4f}", result.bits_per_byte) : "n/a",
                              counted(result.tokens, "token"), result.seconds));
  return result;
}

void Trainer::save() {
  begin_save(CheckpointSave::Mode::kNow);
  finish_save();
}

void Trainer::begin_save(CheckpointSave::Mode mode) {
  const metrics::ScopedSpan span(timeline(), "begin save", "checkpoint");
  finish_save();  // one at a time
  saving_ = train::begin_save(checkpoint_root(), *state_, position_, carried_, base_, mode,
                              rounds_ ? rounds_->saved() : ExtraPart());
}

void Trainer::finish_save() {
  if (!saving_) return;
  const metrics::ScopedSpan span(timeline(), "finish save", "checkpoint");
  const std::unique_ptr<CheckpointSave> save = std::move(saving_);
  last_checkpoint_ = save->commit();
  saved_step_ = save->step();
  world_->agree([&] {
    if (!ranks_->is_lead()) return;
    ckpt::prune_checkpoints(checkpoint_root(), static_cast<int>(config_.checkpoint.keep),
                            /*is_verified=*/true);
  });
}

// What is due after a step, and was not done yet: a rank lost meanwhile does not change it.
void Trainer::after_step(const InterruptGuard& interrupt, ProgressBar& bar) {
  const std::int64_t step = position_.step;
  const auto due = [&](std::int64_t every) { return every > 0 && step > 0 && step % every == 0; };
  if (step == config_.train.steps && !rounds_) return;  // the end has its own
  if (due(config_.eval.every) && corpus_->has_held_out() && evaluated_step_ != step &&
      stopping(interrupt) == 0 && step > first_step_) {
    evaluate_held_out(interrupt, bar, /*is_repeated=*/false);
    evaluated_step_ = step;
  }
  if (all_have_saved_) finish_save();
  all_have_saved_ = false;
  const bool is_saved = saved_step_ == step || (saving_ && saving_->step() == step);
  if (!due(config_.checkpoint.every) || is_saved) return;
  begin_save(config_.checkpoint.async ? CheckpointSave::Mode::kBeside : CheckpointSave::Mode::kNow);
  if (!config_.checkpoint.async) finish_save();
}

int Trainer::stopping(const InterruptGuard& interrupt) const {
  return ranks_->is_alone() ? interrupt.signal() : signal_;
}

bool Trainer::is_over(const InterruptGuard& interrupt) const {
  if (stopping(interrupt) != 0) return true;
  return rounds_ ? rounds_->is_over() : position_.step >= config_.train.steps;
}

bool Trainer::take_next(const InterruptGuard& interrupt, ProgressBar& bar) {
  schedule_step_ = position_.step;
  steps_left_ = config_.train.steps - position_.step;
  if (!rounds_) return true;
  const IslandRounds::Next next = rounds_->next(
      {.stop = [&] { return interrupt.signal() != 0; },
       .wants_change = [&] { return membership_ != nullptr && membership_->wants_change(); }});
  for (IslandRounds::Report& done : rounds_->take_reports()) {
    done.record.step = position_.step;
    record(done.record);
    bar.print(config_.log.format == "json" ? metrics::to_jsonl(done.record) : done.line);
  }
  change_wanted_ = next.what == IslandRounds::Next::What::kRegroup;
  if (next.what == IslandRounds::Next::What::kEnd) asked_to_stop(interrupt);
  if (next.what != IslandRounds::Next::What::kStep) return false;
  schedule_step_ = next.schedule_step;
  steps_left_ = next.steps_left;
  if (next.batch != next_batch_) loader_.reset();
  next_batch_ = next.batch;
  return true;
}

void Trainer::take_one_step(const InterruptGuard& interrupt, Interval& interval, ProgressBar& bar) {
  if (!take_next(interrupt, bar)) return;
  const Clock::time_point start = Clock::now();
  if (!loader_) open_loader();
  const double lr = schedule_.learning_rate(schedule_step_);
  const double waited = loader_ ? loader_->waited_seconds() : 0;
  step_began_ = start;
  const StepResult result = step();
  if (loader_) interval.data_seconds += loader_->waited_seconds() - waited;
  if (result.taken()) report(result, lr, interval, bar);
  signal_ = interrupt.signal();
  if (!ranks_->is_alone() || membership_ != nullptr) {
    share_facts(result, seconds_since(start), interval);
  } else {
    all_have_saved_ = saving_ && saving_->finished();
  }
  const bool last = steps_left_ == 0;
  if (!ranks_->is_alone() && config_.comm.check_every > 0 &&
      (last || position_.step % config_.comm.check_every == 0)) {
    compare_replicas();
  }
  if (!trace_) return;
  timeline()->add({fmt::format("step {}", position_.step), "step", metrics::Span::Track::kMain,
                   start, Clock::now()});
}

void Trainer::keep_trace(bool is_over) {
  if (config_.log.trace.empty() || is_traced_) return;
  const std::int64_t taken = position_.step - first_step_ - config_.log.trace_after;
  if (trace_ && (is_over || taken >= config_.log.trace_steps)) {
    trace_->write();
    trace_.reset();
    is_traced_ = true;
  } else if (is_over && ranks_->is_lead()) {
    log::warning("no trace was written: the run ended after {}, and log.trace_after is {}",
                 counted(position_.step - first_step_, "step"), config_.log.trace_after);
  } else if (!trace_ && !is_over && taken >= 0 && taken < config_.log.trace_steps) {
    trace_.emplace(*world_, *state_, config_.log.trace);
  }
}

TrainOutcome Trainer::run() {
  const InterruptGuard interrupt;
  ProgressBar bar(config_.log.format == "text" && ranks_->is_lead());
  TrainOutcome outcome;
  announce();
  Interval interval;
  signal_ = 0;
  // A rank that is lost interrupts whatever is under way; what is left of it is then done.
  for (bool done = false; !done;) {
    try {
      const Clock::time_point pause = Clock::now();
      keep_trace(/*is_over=*/false);
      after_step(interrupt, bar);
      interval.start += Clock::now() - pause;  // the step line times steps alone
      if (!is_over(interrupt)) {
        take_one_step(interrupt, interval, bar);
        if (change_wanted_) regroup("");
        continue;
      }
      bar.clear();
      finish_save();
      // Whatever becomes of the evaluation. The last exchange of islands moves the model without a
      // step.
      if (saved_step_ != position_.step || rounds_) save();
      // Whoever sends a signal may not wait for an evaluation; the same command makes up for it.
      outcome.signal = stopping(interrupt);
      if (rounds_ && outcome.signal != 0) rounds_->leave("it was stopped");
      if (corpus_->has_held_out() && outcome.signal == 0) {
        outcome.held_out = evaluate_held_out(
            interrupt, bar,
            /*is_repeated=*/has_evaluation(dir_ / "metrics.jsonl", position_.step));
        if (!outcome.held_out) outcome.signal = ranks_->is_alone() ? interrupt.signal() : signal_;
      }
      keep_trace(/*is_over=*/true);
      done = true;
    } catch (const comm::PeerError& error) {
      if (membership_ == nullptr) throw;
      bar.clear();
      regroup(error.what());
      interval = {};
    }
  }
  outcome.step = position_.step;
  outcome.checkpoint = last_checkpoint_;
  if (!ranks_->is_lead()) return outcome;
  jsonl_->flush();
  for (metrics::Sink* sink : extra_sinks_) sink->flush();
  return outcome;
}

}  // namespace atl::train
