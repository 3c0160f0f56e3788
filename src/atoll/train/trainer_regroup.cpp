// How a run goes on with other ranks than before, from what those that stay hold in memory.

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/train/redistribution.h"
#include "atoll/train/trainer.h"

namespace atl::train {

// Those who still wait for this rank learn that it has left; then nothing of the old world runs.
void Trainer::leave(const std::string& why) {
  regrouping_.leave(why);
  state().store().abandon();
  saver_.abandon();
  batches_->stop();
  trace_.abandon();
}

void Trainer::copy_state() {
  if (!copies_) return;
  const bool is_due = position_.step % config_.launch.replicate_every == 0;
  if (is_due || copies_->newest() < 0) copies_->take(position_);
}

// Where ranks have parts of the model, those that are left make no layout: they save what all of
// them had, and whoever started them starts as many as fit.
void Trainer::save_copies(const std::string& why) {
  leave(why);
  std::string saved;
  try {
    saved = write_copies(regrouping_.enter_with_those_left());
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

namespace {

// What a rank that is left tells the others.
struct CopyFacts {
  double old_rank = -1;
  double newest = -1;
};

std::vector<CopyFacts> gather(comm::World& left, const CopyFacts& mine) {
  std::vector<CopyFacts> all(static_cast<std::size_t>(left.size()));
  all[static_cast<std::size_t>(left.rank())] = mine;
  constexpr std::int64_t kWidth = sizeof(CopyFacts) / sizeof(double);
  const std::int64_t count = kWidth * left.size();
  left.all().all_gather({all.data(), {Dtype::kF64, {count}}}, left.all().even_parts(count, kWidth));
  return all;
}

}  // namespace

// Returns what was done, as a message says it.
std::string Trainer::write_copies(comm::World& left) {
  const std::vector<CopyFacts> facts =
      gather(left, {.old_rank = static_cast<double>(copies_->rank()),
                    .newest = static_cast<double>(copies_->newest())});
  auto step = static_cast<std::int64_t>(facts.front().newest);
  bool other_is_left = false;
  for (const CopyFacts& fact : facts) {
    step = std::min(step, static_cast<std::int64_t>(fact.newest));
    other_is_left |= static_cast<int>(fact.old_rank) == copies_->other();
  }
  left.agree([&] {
    if (copies_->has(step)) return;
    throw make_error(ErrorKind::kPeer, "no copies were made yet");
  });
  const std::vector<optim::StateTensor> given =
      given_once(left.all(), state().whole_layout(), copies_->pieces(step, !other_is_left));
  const std::filesystem::path path = saver_.path_of(step);
  std::int64_t is_there = 0;
  left.agree([&] {
    if (left.rank() > 0) return;
    if (!lock_) lock_ = std::make_unique<ckpt::RunLock>(config_.run.dir);
    is_there = path_exists(path) ? 1 : 0;
  });
  left.all().broadcast({&is_there, {Dtype::kI64, {1}}}, 0);
  if (is_there == 0) {
    save_pieces(path.parent_path(), state(), copies_->position(step), model_->carried(),
                model_->base(), given, left.all());
  }
  return fmt::format("what {} of {} had of step {} is saved as {}", counted(left.size(), "rank"),
                     copies_->num_ranks(), step, path.string());
}

void Trainer::regroup(const std::string& why) {
  if (copies_) save_copies(why);
  const int before = ranks().size();
  std::optional<metrics::ScopedPause> pause(std::in_place, observer_, metrics::Pause::kRegroup);
  leave(why);
  try {
    take_over(regrouping_.enter_next(
        {.has_state = 1,
         .steps_taken = static_cast<double>(position_.step),
         .has_committed = progress_.phase == StepProgress::Phase::kCommitted ? 1.0 : 0.0}));
  } catch (const Error& error) {
    // What ranks held is half shared out, and not to be had a second time.
    if (error.kind() != ErrorKind::kPeer) throw;
    throw make_error(ErrorKind::kPeer, "{}{}the ranks could not regroup: {}", why,
                     why.empty() ? "" : "; ", error.what());
  }
  change_wanted_ = false;
  pause.reset();
  const double took = regrouping_.seconds();
  if (!is_lead()) return;
  const int now = ranks().size();
  if (observer_ != nullptr && !why.empty()) {
    observer_->ranks_lost(position_.step, before, now, why);
  }
  log::warning("{}; {} on from step {} after {:.2f} s",
               why.empty()
                   ? fmt::format("{} {} {}", counted(before, "rank"), before == 1 ? "was" : "were",
                                 before < now ? "too few" : "too many")
                   : why,
               now == 1 ? "1 rank goes" : fmt::format("{} ranks go", now), position_.step, took);
  reporter_.record({.step = position_.step,
                    .values = {{"regroup_ranks", std::int64_t{now}}, {"regroup_seconds", took}}});
}

void Trainer::take_over(const std::vector<Hello>& hellos) {
  const bool is_island = !config_.island.coordinator.empty();
  if (is_island && hellos.front().old_rank != 0) {
    throw make_error(ErrorKind::kPeer,
                     "rank 0 is lost, which alone holds what this island exchanges with others; "
                     "the run goes on from the last checkpoint");
  }
  agree_on_step(hellos);
  progress_ = {};
  std::optional<parallel::HeldCopy> held;
  if (model_->is_open()) held = copy_of_held(state());
  model_->close();
  open_state();
  waited_before_ = 0;  // the new store counts from here
  if (config_.lora.rank > 0) model_->load_base();
  redistribute(config_, ranks(), hellos, held, state());
  Run run = model_->run();
  state().store().publish(run);
  share_position(first_holder(hellos));
  measure_rates();
  model_->synchronise_replica(ranks());
  if (is_island) {
    if (!rounds_) make_rounds();
    rounds_->regrouped(state(), ranks(), regrouping_.seconds());
  }
  if (!is_lead() || reporter_.is_open()) return;
  lock_ = std::make_unique<ckpt::RunLock>(config_.run.dir);
  log::set_level(log::Level::kInfo);
  reporter_.open(config_.run.dir, position_.step, settings_);
  if (on_lead_) on_lead_();
}

void Trainer::agree_on_step(const std::vector<Hello>& hellos) {
  const std::int64_t target = steps_to_go_on_from(hellos);
  if (!model_->is_open() || position_.step == target) return;
  if (progress_.phase == StepProgress::Phase::kPrepared) {
    finish_step(state(), model_->stream(), static_cast<std::uint64_t>(config_.run.seed), progress_);
  }
  ATOLL_CHECK(progress_.phase == StepProgress::Phase::kCommitted && position_.step + 1 == target,
              "{} steps taken here, {} elsewhere", position_.step, target);
  const StepResult result = progress_.result;
  account(result);
}

// Who joins learns how far the run is.
void Trainer::share_position(int holder) {
  std::vector<double> facts = {
      static_cast<double>(position_.step),        static_cast<double>(position_.tokens),
      static_cast<double>(position_.line_steps),  position_.line_loss,
      static_cast<double>(saver_.saved_step()),   static_cast<double>(evaluated_step_),
      static_cast<double>(skipped_in_a_row_),     static_cast<double>(first_step_),
      static_cast<double>(position_.without_loss)};
  ranks().group().broadcast(
      {facts.data(), {Dtype::kF64, {static_cast<std::int64_t>(facts.size())}}}, holder);
  std::vector<double> held_out = position_.held_out.to_numbers();
  ranks().group().broadcast(
      {held_out.data(), {Dtype::kF64, {static_cast<std::int64_t>(held_out.size())}}}, holder);
  position_.held_out = HeldOutHistory::from_numbers(held_out);
  saver_.spare(position_.held_out.best_steps());
  position_.step = static_cast<std::int64_t>(facts[0]);
  position_.tokens = static_cast<std::int64_t>(facts[1]);
  position_.line_steps = static_cast<std::int64_t>(facts[2]);
  position_.line_loss = facts[3];
  saver_.go_on_from(static_cast<std::int64_t>(facts[4]));
  evaluated_step_ = static_cast<std::int64_t>(facts[5]);
  skipped_in_a_row_ = static_cast<std::int64_t>(facts[6]);
  position_.without_loss = static_cast<std::int64_t>(facts[8]);
  first_step_ = static_cast<std::int64_t>(facts[7]);
  agree_on_bf16(position_.bf16, holder);
  describe_position();
}

}  // namespace atl::train
