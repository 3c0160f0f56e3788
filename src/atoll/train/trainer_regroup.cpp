// How a run goes on with other ranks than before, from what those that stay hold in memory.

#include <algorithm>
#include <chrono>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/parallel/held_state.h"
#include "atoll/train/cpu_share.h"
#include "atoll/train/options.h"
#include "atoll/train/trainer.h"

namespace atl::train {

namespace {

using parallel::ElementRange;
using parallel::HeldBy;
using parallel::HeldVectors;

// Everything of this rank's memory that others may need: its own part, and its copy of the next's.
HeldVectors everything_held(TrainState& state) {
  HeldVectors held =
      parallel::held_vectors(state.optimizer(), state.store().ranges(), state.store().values());
  if (state.replica() == nullptr) return held;
  for (auto& [name, pieces] : state.replica()->held()) {
    std::vector<parallel::HeldPiece>& all = held[name];
    all.insert(all.end(), pieces.begin(), pieces.end());
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return held;
}

// The new rank of each old one, or -1.
std::vector<int> ranks_that_stay(int old_size, const std::vector<int>& old_ranks) {
  std::vector<int> now(static_cast<std::size_t>(old_size), -1);
  for (std::size_t r = 0; r < old_ranks.size(); ++r) {
    if (old_ranks[r] >= 0) now[static_cast<std::size_t>(old_ranks[r])] = static_cast<int>(r);
  }
  return now;
}

// Who gives what of the state of `old_size` ranks. Throws when some of it is lost.
std::vector<HeldBy> sources_of(const parallel::FlatLayout& old_layout, bool has_copies,
                               const std::vector<int>& now) {
  std::vector<HeldBy> sources;
  const auto old_size = static_cast<int>(now.size());
  for (int old = 0; old < old_size; ++old) {
    int holder = now[static_cast<std::size_t>(old)];
    const int before = (old + old_size - 1) % old_size;
    if (holder < 0 && has_copies) holder = now[static_cast<std::size_t>(before)];
    if (holder < 0) {
      throw make_error(ErrorKind::kPeer,
                       "rank {} is lost{}; the run goes on from the last checkpoint", old,
                       has_copies ? " with the rank that kept its copy"
                                  : " and nobody has a copy "
                                    "of its part (launch.replicate)");
    }
    sources.push_back({holder, parallel::element_ranges(old_layout, old)});
  }
  return sources;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<Trainer::Hello> Trainer::enter_world() {
  world_->agree([&] { ranks_.emplace(*world_, config_); });
  Hello mine;
  if (state_) {
    mine = {.has_state = 1,
            .old_rank = static_cast<double>(old_rank_),
            .old_size = static_cast<double>(old_size_),
            .steps_taken = static_cast<double>(position_.step),
            .committed = progress_.phase == StepProgress::Phase::kCommitted ? 1.0 : 0.0};
  }
  constexpr std::int64_t kWidth = sizeof(Hello) / sizeof(double);
  std::vector<Hello> all(static_cast<std::size_t>(ranks_->size()));
  all[static_cast<std::size_t>(ranks_->rank())] = mine;
  std::vector<std::int64_t> parts;
  for (std::int64_t r = 0; r <= ranks_->size(); ++r) parts.push_back(r * kWidth);
  ranks_->group().all_gather({all.data(), {Dtype::kF64, {parts.back()}}}, parts);
  return all;
}

// As often as it takes: another rank may be lost before all have met.
std::vector<Trainer::Hello> Trainer::enter_next_world() {
  for (;;) {
    ranks_.reset();
    own_world_.reset();
    own_world_ = membership_->next();
    world_ = own_world_.get();
    try {
      return enter_world();
    } catch (const comm::PeerError& error) {
      world_->abort(error.what());
    }
  }
}

void Trainer::regroup(const std::string& why) {
  regroup_began_ = std::chrono::steady_clock::now();
  const int before = ranks_->size();
  old_rank_ = ranks_->rank();
  old_size_ = before;
  // Those who still wait for this rank learn that it has left; then nothing of the old world runs.
  if (!why.empty()) world_->abort("it regroups: " + why);
  state_->store().abandon();
  saving_.reset();  // the next one that is due takes its place
  loader_.reset();
  trace_.reset();  // it begins again with the new ranks
  try {
    take_over(enter_next_world());
  } catch (const Error& error) {
    // What ranks held is half shared out, and not to be had a second time.
    if (error.kind() != ErrorKind::kPeer) throw;
    throw make_error(ErrorKind::kPeer, "{}{}the ranks could not regroup: {}", why,
                     why.empty() ? "" : "; ", error.what());
  }
  change_wanted_ = false;
  const double took = seconds_since(regroup_began_);
  if (!ranks_->is_lead()) return;
  log::warning("{}; {} on from step {} after {:.2f} s",
               why.empty()
                   ? fmt::format("{} {} {}", counted(before, "rank"), before == 1 ? "was" : "were",
                                 before < ranks_->size() ? "too few" : "too many")
                   : why,
               ranks_->size() == 1 ? "1 rank goes" : fmt::format("{} ranks go", ranks_->size()),
               position_.step, took);
  record({.step = position_.step,
          .values = {{"regroup_ranks", std::int64_t{ranks_->size()}}, {"regroup_seconds", took}}});
}

// A step that was broken off was made by all or by none: where one rank made its update, all had
// what they need for theirs.
void Trainer::agree_on_step(const std::vector<Hello>& hellos) {
  double target = 0;
  for (const Hello& hello : hellos) target = std::max(target, hello.steps_taken + hello.committed);
  const auto taken = static_cast<double>(position_.step);
  if (!state_ || taken == target) return;
  if (progress_.phase == StepProgress::Phase::kPrepared) {
    finish_step(*state_, *stream_, static_cast<std::uint64_t>(config_.run.seed), progress_);
  }
  ATOLL_CHECK(progress_.phase == StepProgress::Phase::kCommitted && taken + 1 == target,
              "{} steps taken here, {} elsewhere", taken, target);
  const StepResult result = progress_.result;
  account(result);
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
  int old_size = 0, holder = -1;  // holder: the first that has state
  std::vector<int> old_ranks;
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    old_ranks.push_back(static_cast<int>(hellos[r].old_rank));
    old_size = std::max(old_size, static_cast<int>(hellos[r].old_size));
    if (holder < 0 && hellos[r].has_state != 0) holder = static_cast<int>(r);
  }
  const bool stays = state_ != nullptr;
  const parallel::HeldCopy held =
      stays ? parallel::HeldCopy(everything_held(*state_)) : parallel::HeldCopy();
  state_.reset();
  if (!config_.model.from.empty()) base_ = model_dir::find_model(config_.model.from);
  open_state(*corpus_);
  waited_before_ = 0;  // the new store counts from here
  if (config_.lora.rank > 0) load_base();

  parallel::ParamStore& store = state_->store();
  const HeldVectors wanted =
      parallel::held_vectors(state_->optimizer(), store.ranges(), store.values());
  std::vector<HeldBy> sources;
  std::vector<std::vector<ElementRange>> wants(hellos.size());
  if (config_.dp.zero == 0) {
    // Everybody had everything; who joins gets it from one of them.
    const std::vector<ElementRange> all = {{0, store.flat().shape.num_elements()}};
    sources = {{holder, all}};
    for (std::size_t r = 0; r < hellos.size(); ++r) {
      if (hellos[r].has_state == 0) wants[r] = all;
    }
    if (stays) parallel::restore(held.vectors(), wanted);
  } else {
    const parallel::FlatLayout old_layout(
        state_->model(),
        parallel::layout_options(data_parallel_options(config_, old_size, /*rank=*/0)));
    sources =
        sources_of(old_layout, config_.launch.replicate, ranks_that_stay(old_size, old_ranks));
    for (std::size_t r = 0; r < hellos.size(); ++r) {
      wants[r] = parallel::element_ranges(store.layout(), static_cast<int>(r));
    }
  }
  parallel::redistribute(ranks_->group(), sources, wants, held.vectors(), wanted);
  Run run = {.stream = stream_.get()};
  store.publish(run);
  share_position(holder);
  peak_flops_ = measure_peak_of_all(*ranks_, run);  // of those that there are now
  if (state_->replica() != nullptr) {
    state_->replica()->synchronise(ranks_->shard(), state_->optimizer());
  }
  if (is_island) {
    if (!rounds_) {
      rounds_ = std::make_unique<IslandRounds>(config_, identity(), *state_, *ranks_);
    }
    rounds_->regrouped(*state_, *ranks_, seconds_since(regroup_began_));
  }
  if (!ranks_->is_lead() || jsonl_) return;
  lock_ = std::make_unique<ckpt::RunLock>(dir_);
  log::set_level(log::Level::kInfo);
  open_log();
  if (on_lead_) on_lead_();
}

// Who joins learns how far the run is.
void Trainer::share_position(int holder) {
  std::vector<double> facts = {
      static_cast<double>(position_.step),       static_cast<double>(position_.tokens),
      static_cast<double>(position_.line_steps), position_.line_loss,
      static_cast<double>(saved_step_),          static_cast<double>(evaluated_step_),
      static_cast<double>(skipped_in_a_row_),    static_cast<double>(first_step_)};
  ranks_->group().broadcast(
      {facts.data(), {Dtype::kF64, {static_cast<std::int64_t>(facts.size())}}}, holder);
  position_.step = static_cast<std::int64_t>(facts[0]);
  position_.tokens = static_cast<std::int64_t>(facts[1]);
  position_.line_steps = static_cast<std::int64_t>(facts[2]);
  position_.line_loss = facts[3];
  saved_step_ = static_cast<std::int64_t>(facts[4]);
  evaluated_step_ = static_cast<std::int64_t>(facts[5]);
  skipped_in_a_row_ = static_cast<std::int64_t>(facts[6]);
  first_step_ = static_cast<std::int64_t>(facts[7]);
  agree_on_bf16(position_.bf16, holder);
  position_.corpus_hash = corpus_->hash();
  position_.base_hash = hash_of_frozen(state_->store());
  position_.settings = settings_.key_values();
  if (saved_step_ >= 0) last_checkpoint_ = checkpoint_root() / ckpt::checkpoint_name(saved_step_);
}

}  // namespace atl::train
