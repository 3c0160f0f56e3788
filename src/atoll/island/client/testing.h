#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/island/client/member.h"

namespace atl::island::testing {

inline constexpr StateHash kFirst = {1, 1};
inline constexpr StateHash kSecond = {2, 2};
inline constexpr StateHash kThird = {3, 3};

/// Plays the coordinator, the trainer and the exchange to a member.
class MemberHarness {
 public:
  explicit MemberHarness(const MemberStart& start = {.outer_step = 0, .hashes = {kFirst}})
      : member({.name = "lyon"}, start) {
    happen(CoordinatorReached{});
  }

  template <typename What>
  void happen(What what) {
    for (MemberAction& action : member.handle({now, std::move(what)})) {
      actions.push_back(std::move(action));
    }
  }
  Stamp stamp(std::int64_t outer_step, std::uint32_t attempt = 0) {
    return {.fence = 1,
            .view = 1,
            .outer_step = outer_step,
            .attempt = attempt,
            .sequence = ++sequence};
  }
  void receive(ToIsland body, std::int64_t outer_step = 0, std::uint32_t attempt = 0) {
    happen(CoordinatorSaid{{stamp(outer_step, attempt), std::move(body)}});
  }
  void welcome() { receive(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}}); }
  void hand_in() {
    happen(RoundDone{.num_adopted = 0,
                     .outer_step = 0,
                     .ready = {.base_hash = kFirst, .tokens = 9, .consumed = {{0, 4}}}});
  }
  // Leased, trained, handed in and prepared at outer step 0.
  void prepare() {
    welcome();
    receive(Lease{.ranges = {{0, 4}}, .inner_steps = 4});
    hand_in();
    const Stamp reduce = stamp(0, 1);
    happen(CoordinatorSaid{{reduce, Reduce{}}});
    happen(ReduceDone{reduce, kSecond});
  }
  template <typename Action>
  int count() const {
    int all = 0;
    for (const MemberAction& action : actions) all += std::holds_alternative<Action>(action);
    return all;
  }
  template <typename Action>
  Action newest() const {
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      if (const auto* found = std::get_if<Action>(&*action)) return *found;
    }
    ADD_FAILURE() << "there is no such action";
    return {};
  }
  template <typename Body>
  bool has_said() const {
    return std::any_of(actions.begin(), actions.end(), [](const MemberAction& action) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      return send != nullptr && std::holds_alternative<Body>(send->message.body);
    });
  }
  // The newest message of that kind.
  template <typename Body>
  Body said() const {
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      const auto* send = std::get_if<SendToCoordinator>(&*action);
      if (send == nullptr) continue;
      if (const auto* body = std::get_if<Body>(&send->message.body)) return *body;
    }
    ADD_FAILURE() << "nothing like that was said";
    return {};
  }

  Seconds now = 0;
  std::uint64_t sequence = 0;
  Member member;
  std::vector<MemberAction> actions;
};

inline Commit commit_of(const StateHash& hash, IslandId island) {
  return {.fragment = 0, .hash = hash, .participants = {{.island = island, .weight = 1}}};
}

}  // namespace atl::island::testing
