#include "atoll/train/loop/sync_islands.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/train/island/run_identity.h"

namespace atl::train {

IslandSync::~IslandSync() {
  run_.beside_state = nullptr;  // which reads the rounds
}

void IslandSync::make_rounds() {
  rounds_.emplace(run_.config,
                  run_identity(run_.config, run_.settings, run_.state().model().config,
                               *run_.corpus, run_.position.base_hash),
                  run_.state(), run_.ranks(),
                  run_.regrouping.is_possible() ? OuterHolders::kLead : OuterHolders::kAllRanks);
  run_.beside_state = [this] { return rounds_->saved(); };
}

void IslandSync::open(const std::filesystem::path& checkpoint) {
  DataParallelSync::open(checkpoint);
  make_rounds();
  rounds_->begin(checkpoint);
}

std::optional<Turn> IslandSync::choose() {
  using What = IslandRounds::Next::What;
  const IslandRounds::Next next = [&] {
    const metrics::ScopedPause pause(run_.observer, metrics::Pause::kIslands);
    return rounds_->next({.stop = [&] { return run_.stop->here() != 0; },
                          .wants_change = [&] { return run_.regrouping.is_wanted(); }});
  }();
  for (IslandRounds::Report& done : rounds_->take_reports()) {
    done.record.step = run_.position.step;
    run_.reporter.tell(done.record, done.line);
  }
  change_wanted_ = next.what == What::kRegroup;
  if (next.what == What::kEnd) run_.stop->agree(run_.ranks());
  if (next.what != What::kStep) return std::nullopt;
  if (next.batch != run_.next_batch) run_.batches->stop();
  run_.next_batch = next.batch;
  return Turn{.step = run_.position.step + 1,
              .schedule_step = next.schedule_step,
              .steps_left = std::max<std::int64_t>(next.steps_left - 1, 0)};
}

void IslandSync::stepped(const StepResult& result) {
  rounds_->stepped(result, run_.step_seconds, learning_rate());
  ++*run_.next_batch;
}

void IslandSync::check_ranks(const std::vector<Hello>& hellos) const {
  if (hellos.front().old_rank == 0) return;
  throw make_error(ErrorKind::kPeer,
                   "rank 0 is lost, which alone holds what this island exchanges with others; "
                   "the run goes on from the last checkpoint");
}

void IslandSync::regrouped() {
  if (!rounds_) make_rounds();
  rounds_->regrouped(run_.state(), run_.ranks(), run_.regrouping.seconds());
}

}  // namespace atl::train
