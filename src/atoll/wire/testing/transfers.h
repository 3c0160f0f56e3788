#pragma once

// What the tests of fetching and putting share.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "atoll/wire/blob_client.h"
#include "atoll/wire/testing.h"

namespace atl::wire::test {

using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kChunk = 4096;

inline std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937_64 random(11);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

inline Reader reader_of(const std::vector<std::byte>& content) {
  return [&content](std::uint64_t offset, std::span<std::byte> out) {
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  };
}

inline Writer writer_to(std::vector<std::byte>& content) {
  return [&content](std::uint64_t offset, std::span<const std::byte> data) {
    std::ranges::copy(data, content.begin() + static_cast<std::ptrdiff_t>(offset));
  };
}

// As all who move things do: what could not be reached is tried again.
template <typename Move>
TransferResult patiently(const Move& move) {
  const TransferResult result = move();
  return result.end == TransferEnd::kUnreachable ? move() : result;
}

// For two minutes at most, which only a hang takes: what depends on it then says that it has not
// come.
template <typename Done>
void wait_until(const Done& done) {
  const Clock::time_point deadline = Clock::now() + std::chrono::minutes(2);
  while (!done() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline const Pki& pki() {
  static const Pki shared;
  return shared;
}

// A server with TLS and one blob of 100 chunks and a bit.
class TransferTest : public ::testing::Test {
 protected:
  TransferTest() : server_({.identity = pki().identity("server")}, nullptr, &blobs_) {
    blobs_.publish({.key = "blob",
                    .bytes = content_.size(),
                    .chunk_bytes = kChunk,
                    .reader = reader_of(content_),
                    .is_complete = true});
  }
  ~TransferTest() override { server_.stop(); }

  BlobClientOptions to(const std::string& address, int streams = 4) {
    return {.address = address,
            .identity = pki().identity("lyon"),
            .streams = streams,
            .bytes_per_stream = 1,  // all of them
            .traffic = &traffic_};
  }
  BlobTransfer blob() const {
    return {.key = "blob", .bytes = content_.size(), .chunk_bytes = kChunk};
  }
  PutPermission wanted(std::vector<std::byte>& into, const std::string& peer = "lyon") const {
    return {.key = "given",
            .bytes = content_.size(),
            .chunk_bytes = kChunk,
            .writer = writer_to(into),
            .peer = peer};
  }
  BlobTransfer given() const {
    return {.key = "given", .bytes = content_.size(), .chunk_bytes = kChunk};
  }

  const std::vector<std::byte> content_ = random_bytes(100 * kChunk + 1234);
  std::vector<std::byte> got_ = std::vector<std::byte>(content_.size());
  std::vector<bool> done_;
  TrafficCounters traffic_;
  BlobStore blobs_;
  Server server_;
};

}  // namespace atl::wire::test
