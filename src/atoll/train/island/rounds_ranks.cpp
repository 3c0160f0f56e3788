// What the lead of an island tells its other ranks.

#include <array>
#include <vector>

#include "atoll/train/island/rounds.h"

namespace atl::train {

using Clock = std::chrono::steady_clock;

// A fragment as the ranks have it, or are to have it.
std::span<float> IslandRounds::read(int f) {
  if (!params_.has(f)) {
    tell({.command = Command::kRead, .fragment = f});
    params_.gather(f);
  }
  return params_.values(f);
}

void IslandRounds::write_parameters() {
  for (const int f : params_.changed()) {
    tell({.command = Command::kWrite, .fragment = f});
    params_.scatter(f);
  }
}

void IslandRounds::regrouped(TrainState& state, Ranks& ranks, double seconds) {
  state_ = &state;
  ranks_ = &ranks;
  params_.regrouped(state, ranks);
  pace_.waited(seconds);
  if (ranks.is_alone()) return write_parameters();
  std::vector<std::int64_t> facts(
      1 + static_cast<std::size_t>(params_.num_fragments()));  // the rest: is it unwritten?
  facts[0] = static_cast<std::int64_t>(is_over_);
  for (const int f : params_.changed()) facts[1 + static_cast<std::size_t>(f)] = 1;
  ranks.group().broadcast({facts.data(), {Dtype::kI64, {static_cast<std::int64_t>(facts.size())}}},
                          0);
  is_over_ = facts[0] != 0;
  for (std::size_t f = 0; f + 1 < facts.size(); ++f) {
    if (facts[1 + f] != 0) params_.scatter(static_cast<int>(f));
  }
  // Nobody is told that all have what they share out before they do.
  ranks.group().barrier();
}

void IslandRounds::tell(Order order) {
  if (ranks_->is_alone()) return;
  told_at_ = Clock::now();
  std::array<std::int64_t, 6> words = {static_cast<std::int64_t>(order.command),
                                       order.batch,
                                       order.schedule_step,
                                       order.steps_left,
                                       order.is_over,
                                       order.fragment};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
}

IslandRounds::Order IslandRounds::hear() {
  std::array<std::int64_t, 6> words = {};
  ranks_->group().broadcast({words.data(), {Dtype::kI64, {words.size()}}}, 0);
  return {static_cast<Command>(words[0]), words[1], words[2], words[3], words[4], words[5]};
}

// A rank that does not lead does what it is told, until a step is due or the end.
IslandRounds::Next IslandRounds::follow() {
  for (;;) {
    const Order order = hear();
    switch (order.command) {
      case Command::kRead:
        params_.gather(static_cast<int>(order.fragment));
        break;
      case Command::kWrite:
        params_.scatter(static_cast<int>(order.fragment));
        break;
      case Command::kWait:
        break;
      case Command::kTrain:
        return {.what = Next::What::kStep,
                .batch = order.batch,
                .schedule_step = order.schedule_step,
                .steps_left = order.steps_left};
      case Command::kRegroup:
        return {.what = Next::What::kRegroup};
      case Command::kEnd:
        is_over_ = order.is_over != 0;
        return {.what = Next::What::kEnd};
    }
  }
}

}  // namespace atl::train
