// The end of a run: nobody goes before all islands have saved the final model. A part of
// Coordinator.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "atoll/island/coordinator/coordinator.h"

namespace atl::island {

void Coordinator::finish() {
  append(LogFinished{});
  part();
}

// Islands with the final state stay until all that fetch it have it and have saved it, and some
// time longer for islands that left just before the end: those would keep another model.
void Coordinator::part() {
  const bool is_first = !parting_;
  if (is_first) parting_ = now_;
  std::string awaited;
  for (Island& island : members_.all()) {
    const bool is_here = island.state() == IslandState::kActive && !island.is_behind;
    if (is_here || !may_come(island)) continue;
    island.lacks_final_state = true;
    awaited += (awaited.empty() ? "" : ", ") + island.name;
  }
  const bool is_source =
      !awaited.empty() && has_holder() && now_ - *parting_ < options_.reduce_timeout;
  if (is_first && is_source) {
    notice(fmt::format("all batches are committed; islands stay until the final state has got to "
                       "{}, or for {:.0f} s where nothing is heard",
                       awaited, options_.stays_for),
           false);
  }
  if (is_source) return;
  for (Island& island : members_.all()) {
    const bool hears =
        island.state() == IslandState::kActive || island.state() == IslandState::kSuspect;
    if (!hears || island.was_told_of_end || island.connection == kNoConnection) continue;
    send(island, Finish{.why = "all batches are committed", .is_done = true});
    island.was_told_of_end = true;
  }
  release();
}

// Lets the islands go, by a second Finish, when none is left that could lose the final state with
// its process.
void Coordinator::release() {
  const auto& all = members_.all();
  const bool is_waiting =
      std::any_of(all.begin(), all.end(), [this](const Island& one) { return is_saving(one); });
  if (is_waiting && now_ - *parting_ < options_.reduce_timeout) return;
  std::vector<IslandId> leaving;
  for (const Island& island : members_.all()) {
    const bool has_state = island.was_told_of_end && island.state() != IslandState::kSyncing;
    if (has_state && island.connection != kNoConnection) leaving.push_back(island.id);
  }
  if (leaving.empty()) return;
  const std::string why = without_whom();
  if (!why.empty()) notice(why);
  for (const IslandId id : leaving) {
    send(members_[id], Finish{.why = why, .is_done = true});
    turn_out(members_[id], "the run has ended");
  }
}

// Names the islands that are not known to have the final model, and says what helps; or is empty.
std::string Coordinator::without_whom() const {
  std::vector<std::string> names;
  for (const Island& island : members_.all()) {
    if (island.lacks_final_state) names.push_back(island.name);
  }
  if (names.empty()) return "";
  return fmt::format(
      "the run ends without {}, which did not come back: where the final model is missing, the "
      "newest "
      "checkpoint of any other island has it",
      fmt::join(names, ", "));
}

// An island that was told of the end is gone. It may have been killed before it
// had saved the final model, and comes back for that; not for ever, where saving kills it.
void Coordinator::lose_at_end(Island& island, const std::string& why) {
  turn_out(island, why);
  if (island.has_saved) return;
  island.lacks_final_state = true;
  if (++island.lost_at_end > options_.max_strikes) return;
  island.was_told_of_end = false;
  island.suspect_since = now_;
  parting_ = now_;
  notice(
      fmt::format("{} is gone, and had not saved the final model: the others stay {:.0f} s for it",
                  island.name, options_.stays_for));
}

// A machine that dies closes no connection.
void Coordinator::give_up(Island& island, const std::string& why) {
  if (island.was_told_of_end) return lose_at_end(island, why);
  turn_out(island, why);
}

// Whether an island with the final state is connected, or one that may have it and is only silent.
bool Coordinator::has_holder() const {
  const auto& all = members_.all();
  return std::any_of(all.begin(), all.end(), [](const Island& island) {
    const bool is_in = (island.state() == IslandState::kActive && !island.is_behind) ||
                       island.state() == IslandState::kSuspect;
    return is_in && island.connection != kNoConnection;
  });
}

bool Coordinator::may_come(const Island& island) const {
  if (island.was_told_of_end || island.is_evicted) return false;
  return island.state() != IslandState::kOut || now_ - island.suspect_since < options_.stays_for;
}

bool Coordinator::is_saving(const Island& island) const {
  return island.was_told_of_end && !island.has_saved && island.connection != kNoConnection;
}

// Whether an island that is not connected may come back: it may have the final state.
bool Coordinator::is_somebody_away() const {
  const auto& all = members_.all();
  return std::any_of(all.begin(), all.end(), [this](const Island& island) {
    return island.connection == kNoConnection && may_come(island);
  });
}

bool Coordinator::is_over() const {
  const auto& all = members_.all();
  return is_finished() && std::none_of(all.begin(), all.end(), [this](const Island& island) {
           return may_come(island) || is_saving(island);
         });
}

}  // namespace atl::island
