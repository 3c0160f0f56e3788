#pragma once

// A process with a certificate of the run's authority, or none in plain text, that never joined.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/island/client/exchange.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/wire/access_token.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/session.h"

namespace atl::e2e {

/// Attacks a coordinator, and islands that listen, again and again until it is destroyed.
class Evil {
 public:
  using Identity = std::optional<std::filesystem::path>;

  /// `islands`: addresses of those that listen.
  Evil(std::string coordinator, Identity identity, std::vector<std::string> islands = {})
      : coordinator_(std::move(coordinator)), identity_(std::move(identity)) {
    std::signal(SIGPIPE, SIG_IGN);  // as the program does: who is turned away writes into that
    start([this] { poison(); });
    start([this] { forge(); });
    for (const std::string& address : islands) start([this, address] { spy(address); });
  }
  ~Evil() { stop(); }
  Evil(const Evil&) = delete;
  Evil& operator=(const Evil&) = delete;

  void stop() {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();
  }
  /// How often each attack was turned away: putting, forging, fetching.
  int num_poisoned() const { return poisoned_; }
  int num_forged() const { return forged_; }
  int num_spied() const { return spied_; }
  /// What was not turned away.
  std::vector<std::string> successes() const {
    const std::lock_guard lock(mutex_);
    return successes_;
  }

 private:
  void start(const std::function<void()>& attack) {
    threads_.emplace_back([attack](const std::stop_token& stop) {
      while (!stop.stop_requested()) attack();
    });
  }
  wire::BlobClient remote(const std::string& address) const {
    return wire::BlobClient({.address = address,
                             .identity = identity_,
                             .server_name = address == coordinator_ ? "coordinator" : "",
                             .access_token = wire::new_access_token(),
                             .streams = 1});
  }
  // Turned away is who is refused as nobody; who hears that there is no such blob was let in.
  void judge(const wire::TransferResult& result, const std::string& what, std::atomic<int>& count) {
    using wire::TransferEnd;
    const bool is_stranger = result.end == TransferEnd::kRefused &&
                             result.why.find("has not joined the run here") != std::string::npos;
    const bool is_away = result.end == TransferEnd::kUnreachable;  // before or after the run
    if (is_stranger) ++count;
    if (is_stranger || is_away) return;
    const std::lock_guard lock(mutex_);
    successes_.push_back(what + ": " + wire::to_string(result.end) + " " + result.why);
  }

  // Bytes under the keys of the first islands, before these come. What a refusal says of a blob's
  // size is used.
  void poison() {
    wire::BlobClient there = remote(coordinator_);
    for (std::int64_t outer_step = 0; outer_step < 20; ++outer_step) {
      for (const island::IslandId island : {1U, 2U}) {
        const std::string key = island::kPutPrefix + island::relay_key(outer_step, island);
        wire::TransferResult result = put(there, key, 1, 1);
        std::uint64_t bytes = 0, chunk_bytes = 0;
        const std::size_t at = result.why.find(" has ");
        if (at != std::string::npos &&
            std::sscanf(result.why.c_str() + at, " has %lu bytes in chunks of %lu", &bytes,
                        &chunk_bytes) == 2) {
          result = put(there, key, bytes, chunk_bytes);
        }
        judge(result, key, poisoned_);
      }
    }
  }
  static wire::TransferResult put(wire::BlobClient& there, const std::string& key,
                                  std::uint64_t bytes, std::size_t chunk_bytes) {
    std::vector<bool> done;
    return there.put({.key = key, .bytes = bytes, .chunk_bytes = chunk_bytes}, done,
                     [](std::uint64_t, std::span<std::byte> out) {
                       std::fill(out.begin(), out.end(), std::byte{0x3C});
                     });
  }

  // What the first islands are ready with: little, and a gigabyte in chunks of one byte.
  void forge() {
    std::atomic<bool> is_connected = false, has_ended = false;
    wire::Session session({.address = coordinator_,
                           .identity = identity_,
                           .server_name = identity_ ? "coordinator" : "",
                           .min_backoff_ms = 10'000'000,
                           .max_backoff_ms = 10'000'000},
                          {.connected = [&] { is_connected = true; },
                           .received = {},
                           .disconnected = [&](const std::string&, bool) { has_ended = true; }});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto wait = [&](const std::atomic<bool>& one) {
      while (!one && !has_ended && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    wait(is_connected);
    if (!is_connected) return;
    for (const bool is_large : {false, true}) {
      for (const island::IslandId sender : {1U, 2U}) {
        const island::Ready ready = {
            .encoded_bytes = is_large ? std::uint64_t{1} << 30 : std::uint64_t{64},
            .chunk_bytes = is_large ? std::uint64_t{1} : std::uint64_t{64}};
        session.send(island::encode(island::MessageFromIsland{
            {.fence = 1, .outer_step = 1, .sender = sender, .sequence = ++sequence_}, ready}));
      }
    }
    wait(has_ended);
    if (has_ended) ++forged_;
  }

  // What an island that listens has to give, and its state.
  void spy(const std::string& address) {
    wire::BlobClient there = remote(address);
    for (std::int64_t outer_step = 0; outer_step < 20; ++outer_step) {
      const std::string key = fmt::format("delta/{:012}", outer_step);
      std::vector<bool> done;
      judge(there.fetch({.key = key, .bytes = 1, .chunk_bytes = 1}, done,
                        [](std::uint64_t, std::span<const std::byte>) {}),
            key + " of " + address, spied_);
    }
  }

  std::string coordinator_;
  Identity identity_;
  std::atomic<int> poisoned_ = 0, forged_ = 0, spied_ = 0;
  std::uint64_t sequence_ = 0;  // of the one thread that forges
  mutable std::mutex mutex_;
  std::vector<std::string> successes_;
  std::vector<std::jthread> threads_;
};

}  // namespace atl::e2e
