// How a run goes on with other ranks than before, from what those that stay hold in memory.

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/train/loop/copies_save.h"
#include "atoll/train/loop/prepare_references.h"
#include "atoll/train/loop/run_begin.h"
#include "atoll/train/loop/sync_data_parallel.h"
#include "atoll/train/regroup/redistribution.h"

namespace atl::train {

namespace {

// Those who still wait for this rank learn that it has left; then nothing of the old world runs.
void leave(TrainRun& run, const std::string& why) {
  run.regrouping.leave(why);
  run.state().store().abandon();
  run.saver.abandon();
  run.batches->stop();
  run.trace.abandon();
}

// Who joins learns how far the run is.
void share_position(TrainRun& run, int holder) {
  std::vector<double> facts = {
      static_cast<double>(run.position.step),        static_cast<double>(run.position.tokens),
      static_cast<double>(run.position.line_steps),  run.position.line_loss,
      static_cast<double>(run.saver.saved_step()),   static_cast<double>(run.evaluated_step),
      static_cast<double>(run.skipped_in_a_row),     static_cast<double>(run.first_step),
      static_cast<double>(run.position.without_loss)};
  run.ranks().group().broadcast(
      {facts.data(), {Dtype::kF64, {static_cast<std::int64_t>(facts.size())}}}, holder);
  std::vector<double> held_out = run.position.held_out.to_numbers();
  run.ranks().group().broadcast(
      {held_out.data(), {Dtype::kF64, {static_cast<std::int64_t>(held_out.size())}}}, holder);
  run.position.held_out = HeldOutHistory::from_numbers(held_out);
  run.saver.spare(run.position.held_out.best_steps());
  run.position.step = static_cast<std::int64_t>(facts[0]);
  run.position.tokens = static_cast<std::int64_t>(facts[1]);
  run.position.line_steps = static_cast<std::int64_t>(facts[2]);
  run.position.line_loss = facts[3];
  run.saver.go_on_from(static_cast<std::int64_t>(facts[4]));
  run.evaluated_step = static_cast<std::int64_t>(facts[5]);
  run.skipped_in_a_row = static_cast<std::int64_t>(facts[6]);
  run.position.without_loss = static_cast<std::int64_t>(facts[8]);
  run.first_step = static_cast<std::int64_t>(facts[7]);
  agree_on_bf16(run, run.position.bf16, holder);
  describe_position(run);
}

}  // namespace

void DataParallelSync::copy_state() {
  if (!copies_) return;
  const bool is_due = run_.position.step % run_.config.launch.replicate_every == 0;
  if (is_due || copies_->newest() < 0) copies_->take(run_.position);
}

// Where ranks have parts of the model, those that are left make no layout: they save what all of
// them had, and whoever started them starts as many as fit.
void DataParallelSync::save_copies(const std::string& why) {
  leave(run_, why);
  std::string saved;
  try {
    saved = write_copies(run_, *copies_, run_.regrouping.enter_with_those_left());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kPeer) throw;
    throw make_error(
        ErrorKind::kPeer,
        "{}; the copies in memory cannot be put together ({}), so that what came after "
        "the newest checkpoint is lost",
        why, error.what());
  }
  throw make_error(ErrorKind::kPeer, "{}; {}", why, saved);
}

void DataParallelSync::regroup(const std::string& why) {
  if (copies_) save_copies(why);
  const int before = run_.ranks().size();
  std::optional<metrics::ScopedPause> pause(std::in_place, run_.observer, metrics::Pause::kRegroup);
  leave(run_, why);
  try {
    join(run_.regrouping.enter_next(
        {.has_state = 1,
         .steps_taken = static_cast<double>(run_.position.step),
         .has_committed = progress_.phase == StepProgress::Phase::kCommitted ? 1.0 : 0.0}));
  } catch (const Error& error) {
    // What ranks held is half shared out, and not to be had a second time.
    if (error.kind() != ErrorKind::kPeer) throw;
    throw make_error(ErrorKind::kPeer, "{}{}the ranks could not regroup: {}", why,
                     why.empty() ? "" : "; ", error.what());
  }
  change_wanted_ = false;
  pause.reset();
  const double took = run_.regrouping.seconds();
  if (!run_.is_lead()) return;
  const int now = run_.ranks().size();
  if (run_.observer != nullptr && !why.empty()) {
    run_.observer->ranks_lost(run_.position.step, before, now, why);
  }
  log::warning(
      "{}; {} on from step {} after {:.2f} s",
      why.empty() ? fmt::format("{} {} {}", counted(before, "rank"), before == 1 ? "was" : "were",
                                before < now ? "too few" : "too many")
                  : why,
      now == 1 ? "1 rank goes" : fmt::format("{} ranks go", now), run_.position.step, took);
  run_.reporter.record(
      {.step = run_.position.step,
       .values = {{"regroup_ranks", std::int64_t{now}}, {"regroup_seconds", took}}});
}

void DataParallelSync::join(const std::vector<Hello>& hellos) {
  check_ranks(hellos);
  agree_on_step(hellos);
  progress_ = {};
  RunModel& model = *run_.model;
  std::optional<parallel::HeldCopy> held;
  if (model.is_open()) held = copy_of_held(run_.state());
  model.close();
  open_state(run_);
  reopen_references(run_);
  telemetry_.begin_again();
  if (run_.config.lora.rank > 0) model.load_base();
  redistribute(run_.config, run_.ranks(), hellos, held, run_.state());
  Run run = model.run();
  run_.state().store().publish(run);
  share_position(run_, first_holder(hellos));
  measure_rates(run_);
  model.synchronise_replica(run_.ranks());
  regrouped();
  if (!run_.is_lead() || run_.reporter.is_open()) return;
  run_.lock = std::make_unique<ckpt::RunLock>(run_.config.run.dir);
  log::set_level(log::Level::kInfo);
  run_.reporter.open(run_.config.run.dir, run_.position.step, run_.settings);
  if (run_.on_lead) run_.on_lead();
}

void DataParallelSync::agree_on_step(const std::vector<Hello>& hellos) {
  const std::int64_t target = steps_to_go_on_from(hellos);
  if (!run_.model->is_open() || run_.position.step == target) return;
  if (progress_.phase == StepProgress::Phase::kPrepared) {
    finish_step(run_.state(), run_.model->stream(),
                static_cast<std::uint64_t>(run_.config.run.seed), progress_);
  }
  ATOLL_CHECK(
      progress_.phase == StepProgress::Phase::kCommitted && run_.position.step + 1 == target,
      "{} steps taken here, {} elsewhere", run_.position.step, target);
  const StepResult result = progress_.result;
  account(result);
}

}  // namespace atl::train
