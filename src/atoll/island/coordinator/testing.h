#pragma once

// What the tests of the coordinator share.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/island/coordinator/coordinator.h"

namespace atl::island::testing {

inline constexpr StateHash kFirst = {1, 1};
inline constexpr StateHash kSecond = {2, 2};

/// Plays islands, whose connections have their numbers, to a coordinator.
class CoordinatorHarness {
 public:
  explicit CoordinatorHarness(int min_islands = 2) {
    options.identity.run = std::string("r");
    options.plan = {.num_fragments = 1,
                    .inner_steps = 4,
                    .total_batches = 1000,
                    .min_islands = min_islands,
                    .grace_seconds = 1};
    restart();
  }

  void restart() {
    const LogStarted started = {.fence = ++fence};
    log.push_back({.unix_seconds = now, .body = started});
    coordinator.emplace(options, fence, log);
  }

  void take(const CoordinatorEvent& event) {
    bool has_sent = false;
    for (CoordinatorAction& action : coordinator->handle(event)) {
      const bool is_record = std::holds_alternative<AppendToLog>(action);
      EXPECT_FALSE(is_record && has_sent) << "what is logged comes first";
      has_sent = has_sent || !is_record;
      if (auto* send = std::get_if<SendToIslands>(&action)) {
        for (const ConnectionId to : send->to) heard[to].push_back(send->message);
      } else if (auto* append = std::get_if<AppendToLog>(&action)) {
        log.push_back({.unix_seconds = now, .body = append->body});
      } else if (auto* close = std::get_if<CloseConnection>(&action)) {
        closed.push_back(close->connection);
      } else if (auto* notice = std::get_if<Notice>(&action)) {
        notices.push_back(notice->text);
      }
    }
  }
  void open(ConnectionId island) { take({now, ConnectionOpened{island}}); }
  void close(ConnectionId island) { take({now, ConnectionClosed{island, "gone"}}); }
  void say(ConnectionId island, const FromIsland& body, Stamp stamp = {}) {
    if (stamp.fence == 0) stamp.fence = fence;
    const Island* sender = coordinator->members().of_connection(island);
    if (stamp.sender == kNobody && sender != nullptr) stamp.sender = sender->id;
    if (stamp.sequence == 0) stamp.sequence = ++sequence;
    const ConnectionReceived received = {island, {stamp, body}};
    take({now, received});
  }
  void wait(Seconds seconds, std::vector<ConnectionId> alive) {
    for (const Seconds end = now + seconds; now < end; now += 0.25) {
      for (const ConnectionId island : alive) say(island, Heartbeat{.sent = now});
      take({now, ClockTicked{}});
    }
  }
  Join join(const std::string& name, std::vector<BatchRange> holds = {}) const {
    return {.name = name,
            .identity = options.identity,
            .plan = options.plan,
            .address = fmt::format("{}:1", name),
            .outer_step = 0,
            .hashes = {kFirst},
            .holds = std::move(holds)};
  }
  void come(ConnectionId island, std::vector<BatchRange> holds = {}) {
    open(island);
    say(island, join(fmt::format("i{}", island), std::move(holds)));
  }
  // They have heard of the end, and say that they have saved the final model.
  void save(const std::vector<ConnectionId>& islands) {
    for (const ConnectionId island : islands) {
      EXPECT_TRUE(body<Finish>(island).is_done) << island;
      say(island, Leave{.why = "it has saved the final model"});
    }
  }
  bool has_closed(ConnectionId island) const {
    return std::find(closed.begin(), closed.end(), island) != closed.end();
  }
  // It says that it still has the state that it was asked for.
  void confirm(ConnectionId island, std::vector<StateHash> hashes = {kFirst}) {
    const Stamped<ToIsland>* asked = newest<Resync>(island);
    ASSERT_NE(asked, nullptr);
    say(island, Synced{.outer_step = std::get<Resync>(asked->body).outer_step,
                       .hashes = std::move(hashes),
                       .holds = {},
                       .answers = asked->stamp.sequence});
  }
  Ready ready(std::vector<BatchRange> consumed) const {
    return {.base_hash = kFirst, .tokens = 100, .consumed = std::move(consumed), .norm = 1};
  }
  // The newest message of that kind to an island, or nothing.
  template <typename Body>
  const Stamped<ToIsland>* newest(ConnectionId island) {
    const auto& all = heard[island];
    for (auto message = all.rbegin(); message != all.rend(); ++message) {
      if (std::holds_alternative<Body>(message->body)) return &*message;
    }
    return nullptr;
  }
  template <typename Body>
  const Body& body(ConnectionId island) {
    const auto* message = newest<Body>(island);
    EXPECT_NE(message, nullptr);
    static const Body kNone = {};
    return message == nullptr ? kNone : std::get<Body>(message->body);
  }

  CoordinatorOptions options;
  std::optional<Coordinator> coordinator;
  std::vector<LogRecord> log;
  std::map<ConnectionId, std::vector<Stamped<ToIsland>>> heard;
  std::vector<ConnectionId> closed;
  std::vector<std::string> notices;
  Seconds now = 0;
  std::uint64_t fence = 0;
  std::uint64_t sequence = 0;
};

/// Two islands, both ready for outer step 0.
inline CoordinatorHarness at_reduce() {
  CoordinatorHarness harness;
  harness.come(1);
  harness.come(2);
  harness.say(1, harness.ready({{0, 4}}));
  harness.say(2, harness.ready({{4, 8}}));
  return harness;
}

}  // namespace atl::island::testing
