#pragma once

// What the tests of the coordinator's service share: islands played by hand, over real connections.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "atoll/island/client/exchange.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/island/ledger/testing.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/wire/access_token.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/session.h"
#include "atoll/wire/testing.h"

namespace atl::island::testing {

/// A process that talks to a coordinator: what an island says, or what one that is none says.
class ScriptedIsland {
 public:
  /// `identity`: none for plain text.
  ScriptedIsland(std::string address, std::optional<std::filesystem::path> identity)
      : address_(std::move(address)),
        identity_(std::move(identity)),
        session_(
            {.address = address_,
             .identity = identity_,
             .min_backoff_ms = 10'000'000,  // one connection and no other
             .max_backoff_ms = 10'000'000},
            {.connected = [this] { note([this] { is_connected_ = true; }); },
             .received =
                 [this](std::string frame) {
                   note([&] { heard_.push_back(decode_to_island(frame)); });
                 },
             .disconnected = [this](const std::string& why, bool) { note([&] { end_ = why; }); }}) {
    EXPECT_TRUE(wait([this] { return is_connected_ || end_; }));
  }

  static RunPlan plan(int min_islands = 2) {
    return {.num_fragments = 1,
            .inner_steps = 4,
            .total_batches = 1000,
            .min_islands = min_islands,
            .quorum = min_islands,
            .grace_seconds = 0,
            .state_sizes = {2 * kBytes}};
  }
  static RunIdentity identity() { return {"r", kProtocolVersion, "m", "t", "d", "s"}; }
  Join join(const std::string& name) const {
    return {.name = name,
            .identity = identity(),
            .plan = plan(),
            .outer_step = 0,
            .hashes = {{1, 1}},
            .relay_token = token_,
            .peer_token = wire::new_access_token()};
  }
  /// Whether the coordinator let it in.
  bool come(const std::string& name) {
    say(join(name));
    if (!hears<Welcome>()) return false;
    id_ = newest<Welcome>()->body.island;
    return true;
  }
  void say(const FromIsland& body) {
    const auto welcome = newest<Welcome>();
    say(body, {.fence = welcome ? welcome->stamp.fence : 1, .sender = id_});
  }
  void say(const FromIsland& body, Stamp stamp) {
    stamp.sequence = ++sequence_;
    session_.send(encode(MessageFromIsland{stamp, body}));
  }
  void say_bytes(const std::string& frame) { session_.send(frame); }
  /// That it has trained what it was leased.
  Ready ready(std::uint64_t bytes = kBytes, std::uint64_t chunk_bytes = kChunkBytes) {
    EXPECT_TRUE(hears<Lease>());
    return {.base_hash = {1, 1},
            .tokens = 100,
            .consumed = newest<Lease>()->body.ranges,
            .norm = 1,
            .encoded_bytes = bytes,
            .chunk_bytes = chunk_bytes};
  }

  /// Waits for a message of that kind.
  template <typename Body>
  bool hears() {
    return wait([this] { return find<Body>() != nullptr; });
  }
  template <typename Body>
  std::optional<Stamped<Body>> newest() {
    const std::lock_guard lock(mutex_);
    const auto* found = find<Body>();
    if (found == nullptr) return std::nullopt;
    return Stamped<Body>{found->stamp, std::get<Body>(found->body)};
  }
  /// Waits until the coordinator has ended the connection, and gives the reason that it said.
  std::string is_sent_away() {
    EXPECT_TRUE(wait([this] { return end_.has_value(); }));
    const std::lock_guard lock(mutex_);
    return end_.value_or("");
  }

  /// Puts zeros, and fetches: as this process, or with another access token.
  wire::TransferResult put(const std::string& key, std::optional<std::string> token = {}) {
    std::vector<bool> done;
    return remote(token).put(transfer(kPutPrefix + key), done,
                             [](std::uint64_t, std::span<std::byte> out) {
                               std::fill(out.begin(), out.end(), std::byte{0});
                             });
  }
  wire::TransferResult fetch(const std::string& key, std::optional<std::string> token = {}) {
    std::vector<bool> done;
    return remote(token).fetch(transfer(key), done,
                               [](std::uint64_t, std::span<const std::byte>) {});
  }

  IslandId id() const { return id_; }
  const std::string& token() const { return token_; }
  static constexpr std::uint64_t kBytes = 10'000;
  static constexpr std::size_t kChunkBytes = 4096;

 private:
  static wire::BlobTransfer transfer(const std::string& key) {
    return {.key = key, .bytes = kBytes, .chunk_bytes = kChunkBytes};
  }
  wire::BlobClient remote(const std::optional<std::string>& token) const {
    return wire::BlobClient(
        {.address = address_, .identity = identity_, .access_token = token.value_or(token_)});
  }
  template <typename Body>
  const MessageToIsland* find() const {
    for (auto message = heard_.rbegin(); message != heard_.rend(); ++message) {
      if (std::holds_alternative<Body>(message->body)) return &*message;
    }
    return nullptr;
  }
  template <typename Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <typename Done>
  bool wait(const Done& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2), done);
  }

  std::string address_;
  std::optional<std::filesystem::path> identity_;
  std::string token_ = wire::new_access_token();
  std::uint64_t sequence_ = 0;
  IslandId id_ = kNobody;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MessageToIsland> heard_;
  bool is_connected_ = false;
  std::optional<std::string> end_;
  wire::Session session_;  // last: its events use what stands above
};

/// A coordinator with certificates, or without (`is_plain`).
class ServiceTest : public ::testing::TestWithParam<bool> {
 protected:
  explicit ServiceTest(bool is_plain) : is_plain_(is_plain), service_(start()) {}
  ServiceTest() : ServiceTest(false) {}

  /// The identity of "server", "lyon", "oslo" or "evil"; none in plain text.
  std::optional<std::filesystem::path> identity(const std::string& name) const {
    static const wire::test::Pki pki;
    static const bool is_made = [] {
      wire::issue(pki.authority(), "evil", {}, 30);
      return true;
    }();
    return is_plain_ || !is_made ? std::nullopt : std::optional(pki.identity(name));
  }
  std::unique_ptr<ScriptedIsland> hand(const std::string& name) {
    return std::make_unique<ScriptedIsland>(service_->address(), identity(name));
  }
  /// Two that only call out, and are to reduce outer step 0 through the coordinator.
  void reduce_in_a_star() {
    lyon_ = hand("lyon");
    oslo_ = hand("oslo");
    ASSERT_TRUE(lyon_->come("lyon"));
    ASSERT_TRUE(oslo_->come("oslo"));
    lyon_->say(lyon_->ready());
    oslo_->say(oslo_->ready());
    ASSERT_TRUE(lyon_->hears<Reduce>() && oslo_->hears<Reduce>());
    ASSERT_TRUE(lyon_->newest<Reduce>()->body.is_star);
  }

  bool is_plain_;
  LedgerDirectory dir_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<ScriptedIsland> lyon_, oslo_;

 private:
  std::unique_ptr<CoordinatorService> start() const {
    // They send no heartbeats.
    return std::make_unique<CoordinatorService>(ServiceOptions{.dir = dir_.path(),
                                                               .listen = "127.0.0.1:0",
                                                               .identity = identity("server"),
                                                               .failure_detector = {.cap = 600}});
  }
};

}  // namespace atl::island::testing
