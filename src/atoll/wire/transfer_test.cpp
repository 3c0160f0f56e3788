// Blobs that are fetched, over links of every kind.

#include <algorithm>
#include <atomic>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/wire/testing/relay.h"
#include "atoll/wire/testing/transfers.h"

namespace atl::wire {
namespace {

using test::kChunk;
using test::patiently;
using test::pki;
using test::reader_of;
using test::TransferTest;
using test::wait_until;
using test::writer_to;
using ::testing::HasSubstr;

TEST_F(TransferTest, WhatIsFetchedIsWhatIsPublished) {
  for (const int streams : {1, 4, 16}) {
    BlobClient remote(to(server_.address(), streams));
    std::ranges::fill(got_, std::byte{});
    done_.clear();
    const TransferResult result = remote.fetch(blob(), done_, writer_to(got_));
    EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
    EXPECT_EQ(result.bytes, content_.size());
    EXPECT_EQ(done_, std::vector<bool>(101, true));
    EXPECT_TRUE(got_ == content_);
    EXPECT_EQ(remote.fetch(blob(), done_, writer_to(got_)).bytes, 0u);
  }
  EXPECT_EQ(traffic_.received_bytes, 3 * content_.size());
  // The server counts a chunk when its library says that it is out, which may be after it has come.
  wait_until([&] { return server_.traffic().sent_bytes >= 3 * content_.size(); });
  EXPECT_EQ(server_.traffic().sent_bytes, 3 * content_.size());
}

TEST_F(TransferTest, WhatIsSmallGoesOverFewConnections) {
  const std::vector<std::byte> bytes(std::size_t{9} << 20);
  test::Relay relay(server_.address(), {});
  BlobClientOptions options = to(relay.address(), 4);
  options.bytes_per_stream = BlobClientOptions().bytes_per_stream;
  BlobClient remote(options);
  const auto drop = [](std::uint64_t, std::span<const std::byte>) {};
  for (const auto& [kilobytes, connections] : {std::pair(900, 1), {2 << 10, 2}, {9 << 10, 4}}) {
    const BlobTransfer transfer = {.key = std::to_string(kilobytes),
                                   .bytes = static_cast<std::uint64_t>(kilobytes) << 10,
                                   .chunk_bytes = kChunk};
    blobs_.publish({.key = transfer.key,
                    .bytes = transfer.bytes,
                    .chunk_bytes = kChunk,
                    .reader = reader_of(bytes),
                    .is_complete = true});
    done_.clear();
    EXPECT_EQ(remote.fetch(transfer, done_, drop).end, TransferEnd::kDone);
    EXPECT_EQ(relay.num_connections(), connections) << kilobytes;
  }
}

TEST_F(TransferTest, ItSaysWhenAllIsAskedFor) {
  blobs_.publish({.key = "later", .bytes = 10, .reader = reader_of(content_)});
  BlobClient remote(to(server_.address()));
  // The chunk comes once it is asked for: else this would wait for ever.
  int calls = 0;
  const BlobTransfer later = {.key = "later", .bytes = 10, .on_asked = [&] {
                                ++calls;
                                blobs_.mark_all("later");
                              }};
  EXPECT_EQ(remote.fetch(later, done_, writer_to(got_)).end, TransferEnd::kDone);
  EXPECT_EQ(calls, 1);
  // Also when it cannot be asked for.
  BlobClient nobody(to("127.0.0.1:1"));
  done_.clear();
  EXPECT_EQ(nobody.fetch(later, done_, writer_to(got_)).end, TransferEnd::kUnreachable);
  EXPECT_EQ(calls, 2);
}

TEST_F(TransferTest, AFetchThatBreaksGoesOnWhereItStopped) {
  test::Relay relay(server_.address(), {});
  // Room for the handshake and three chunks, not for four.
  relay.cut_after(4 * kChunk);
  BlobClient remote(to(relay.address(), 2));
  int calls = 0;
  for (TransferResult result;; ++calls) {
    ASSERT_LT(calls, 200);
    result = remote.fetch(blob(), done_, writer_to(got_));
    if (result.end == TransferEnd::kDone) break;
    EXPECT_EQ(result.end, TransferEnd::kUnreachable) << result.why;
  }
  EXPECT_GT(calls, 10);
  EXPECT_TRUE(got_ == content_);
  EXPECT_EQ(traffic_.received_bytes, content_.size());  // nothing twice
}

TEST_F(TransferTest, GarbledBytesAreFound) {
  test::Relay relay(server_.address(), {.seed = 3});
  relay.garble_every(50'000);
  BlobClient remote(to(relay.address(), 2));
  int failures = 0;
  for (; failures < 100; ++failures) {
    const TransferResult result = remote.fetch(blob(), done_, writer_to(got_));
    if (result.end == TransferEnd::kDone) break;
    if (failures == 10) relay.garble_every(0);
  }
  EXPECT_GE(failures, 2);
  EXPECT_TRUE(got_ == content_);
}

// Without TLS nothing but the checksum stands between the link and the content.
TEST_F(TransferTest, GarbledBytesAreFoundWithoutTls) {
  Server plain({}, nullptr, &blobs_);
  test::Relay relay(plain.address(), {.seed = 5});
  relay.garble_every(50'000);
  BlobClient remote({.address = relay.address(), .streams = 2, .connect_timeout_ms = 500});
  int damaged = 0;
  for (int i = 0; i < 300; ++i) {
    if (i == 30) relay.garble_every(0);
    BlobTransfer transfer = blob();
    transfer.stall_timeout_ms = 300;  // a garbled length can make both sides wait
    const TransferResult result = remote.fetch(transfer, done_, writer_to(got_));
    damaged += result.end == TransferEnd::kDamaged ? 1 : 0;
    if (result.end == TransferEnd::kDone) break;
  }
  EXPECT_GE(damaged, 1);
  EXPECT_EQ(done_, std::vector<bool>(101, true));
  EXPECT_TRUE(got_ == content_);
  plain.stop();
}

TEST_F(TransferTest, ChunksAreFetchedAsTheyBecomeAvailable) {
  blobs_.publish({.key = "growing",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  BlobTransfer transfer = blob();
  transfer.key = "growing";
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t written = 0;
  std::jthread owner([&] {
    for (std::uint64_t chunk = 0; chunk < 101; ++chunk) {
      blobs_.mark("growing", chunk);
      std::unique_lock lock(mutex);
      // Not before the one that was marked has arrived: nothing is read ahead of its mark.
      if (!changed.wait_for(lock, std::chrono::minutes(2), [&] { return written > chunk; })) break;
    }
  });
  BlobClient remote(to(server_.address()));
  const TransferResult result =
      remote.fetch(transfer, done_, [&](std::uint64_t offset, std::span<const std::byte> data) {
        writer_to(got_)(offset, data);
        const std::lock_guard lock(mutex);
        ++written;
        changed.notify_all();
      });
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  EXPECT_TRUE(got_ == content_);
}

// Runs a fetch that waits for a chunk, does something, and says how the fetch ended.
template <typename Do>
TransferResult end_of_waiting_fetch(BlobClient& remote, const BlobTransfer& transfer,
                                    const Server& server, const Do& something) {
  std::vector<bool> done;
  TransferResult result;
  std::jthread fetcher([&] {
    result = remote.fetch(transfer, done, [](std::uint64_t, std::span<const std::byte>) {});
  });
  // The first chunk is there, so its arrival says that the call waits for the second.
  wait_until([&] { return server.traffic().sent_bytes > 0; });
  something();
  fetcher.join();
  return result;
}

TEST_F(TransferTest, AFetchEndsWhenItIsCancelledOrItsBlobWithdrawn) {
  for (const bool withdraw : {false, true}) {
    Server server({}, nullptr, &blobs_);
    blobs_.publish({.key = "slow/1",
                    .bytes = content_.size(),
                    .chunk_bytes = kChunk,
                    .reader = reader_of(content_)});
    blobs_.mark("slow/1", 0);
    BlobClient remote({.address = server.address(), .streams = 1});
    std::stop_source cancel;
    BlobTransfer transfer = blob();
    transfer.key = "slow/1";
    transfer.cancel = cancel.get_token();
    const TransferResult result = end_of_waiting_fetch(remote, transfer, server, [&] {
      if (withdraw) {
        blobs_.withdraw("slow/");
      } else {
        cancel.request_stop();
      }
    });
    EXPECT_EQ(result.end, withdraw ? TransferEnd::kGone : TransferEnd::kCancelled) << result.why;
    blobs_.withdraw("slow/");
    server.stop();
  }
}

TEST_F(TransferTest, TransfersOfOnePeerAreOnlySoMany) {
  Server server({.identity = pki().identity("server"), .max_transfers_per_peer = 1}, nullptr,
                &blobs_);
  blobs_.publish({.key = "slow",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  blobs_.mark("slow", 0);
  BlobClient first(to(server.address(), 1));
  BlobClient second(to(server.address(), 1));
  BlobClient other({.address = server.address(), .identity = pki().identity("oslo"), .streams = 1});
  BlobTransfer transfer = blob();
  transfer.key = "slow";
  TransferResult refused;
  const TransferResult result = end_of_waiting_fetch(first, transfer, server, [&] {
    refused = second.fetch(blob(), done_, writer_to(got_));
    done_.clear();
    EXPECT_EQ(other.fetch(blob(), done_, writer_to(got_)).end, TransferEnd::kDone);
    blobs_.withdraw("slow");
  });
  EXPECT_EQ(result.end, TransferEnd::kGone);
  EXPECT_EQ(refused.end, TransferEnd::kUnreachable);
  EXPECT_THAT(refused.why, HasSubstr("too many transfers"));
  server.stop();
}

TEST_F(TransferTest, WithdrawingWaitsForReaders) {
  std::atomic<bool> is_reading{false};
  std::atomic<bool> may_read{false};
  std::atomic<bool> is_withdrawn{false};
  blobs_.publish({.key = "busy",
                  .bytes = 100,
                  .reader =
                      [&](std::uint64_t, std::span<std::byte>) {
                        is_reading = true;
                        is_reading.notify_all();
                        may_read.wait(false);
                        EXPECT_FALSE(is_withdrawn);
                      },
                  .is_complete = true});
  BlobClient remote(to(server_.address(), 1));
  std::jthread fetcher([&] {
    remote.fetch({.key = "busy", .bytes = 100}, done_,
                 [](std::uint64_t, std::span<const std::byte>) {});
  });
  is_reading.wait(false);
  std::jthread withdrawer([&] {
    blobs_.withdraw("busy");
    is_withdrawn = true;
  });
  // A withdraw() that did not wait would be through by then; one that waits never makes this fail.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  may_read = true;
  may_read.notify_all();
}

TEST_F(TransferTest, WhatCannotBeHadIsSaid) {
  BlobClient remote(to(server_.address()));
  const auto fetch = [&](const BlobTransfer& transfer) {
    std::vector<bool> done;
    const TransferResult result =
        remote.fetch(transfer, done, [](std::uint64_t, std::span<const std::byte>) {});
    return fmt::format("{}: {}", to_string(result.end), result.why);
  };
  BlobTransfer transfer = blob();
  transfer.key = "nothing";
  EXPECT_THAT(fetch(transfer), HasSubstr("gone: " + server_.address() + ": nothing is not here"));
  transfer = blob();
  transfer.bytes += 1;
  EXPECT_THAT(fetch(transfer), HasSubstr("refused: "));
  transfer = blob();
  transfer.chunk_bytes = 2 * kChunk;
  EXPECT_THAT(fetch(transfer), HasSubstr("in chunks of 4096 here, not"));
  blobs_.publish({.key = "private", .bytes = 9, .peers = {"oslo"}, .is_complete = true});
  EXPECT_THAT(fetch({.key = "private", .bytes = 9}), HasSubstr("private is not for lyon"));
  blobs_.publish({.key = "never", .bytes = 9});
  EXPECT_THAT(fetch({.key = "never", .bytes = 9, .stall_timeout_ms = 50}),
              HasSubstr("unreachable: nothing of never moved"));
  blobs_.publish(
      {.key = "broken",
       .bytes = 9,
       .reader = [](std::uint64_t,
                    std::span<std::byte>) { throw damaged_error("the disk is on fire"); },
       .is_complete = true});
  EXPECT_THAT(fetch({.key = "broken", .bytes = 9}), HasSubstr("the disk is on fire"));
  server_.stop();
  EXPECT_THAT(fetch(blob()), HasSubstr("unreachable: cannot connect to " + server_.address()));
}

// The call fails at once, and the server is asked why: it takes the connection and says nothing.
TEST_F(TransferTest, AFetchThatAsksWhyItFailedEndsWhenItIsCancelled) {
  test::Relay relay(server_.address(), {});
  relay.hang_up_on(1);
  relay.freeze();
  BlobClientOptions options = to(relay.address(), 1);
  options.connect_timeout_ms = 3'600'000;  // longer than ctest waits
  BlobClient remote(options);
  std::stop_source cancel;
  BlobTransfer transfer = blob();
  transfer.cancel = cancel.get_token();
  std::jthread canceller([&] {
    wait_until([&] { return relay.num_connections() >= 2; });
    cancel.request_stop();
  });
  const TransferResult result =
      patiently([&] { return remote.fetch(transfer, done_, writer_to(got_)); });
  canceller.join();
  EXPECT_EQ(result.end, TransferEnd::kCancelled) << result.why;
  EXPECT_GE(relay.num_connections(), 2);
}

TEST_F(TransferTest, AServerThatComesBackIsFoundAgain) {
  auto server = std::make_unique<Server>(ServerOptions{}, nullptr, &blobs_);
  const std::string address = server->address();
  BlobClient remote({.address = address, .streams = 2});
  ASSERT_EQ(remote.fetch(blob(), done_, writer_to(got_)).end, TransferEnd::kDone);
  server.reset();
  done_.clear();
  ASSERT_EQ(remote.fetch(blob(), done_, writer_to(got_)).end, TransferEnd::kUnreachable);
  server = std::make_unique<Server>(ServerOptions{.listen = address}, nullptr, &blobs_);
  TransferEnd end = TransferEnd::kUnreachable;
  wait_until([&] {
    end = remote.fetch(blob(), done_, writer_to(got_)).end;
    return end != TransferEnd::kUnreachable;
  });
  EXPECT_EQ(end, TransferEnd::kDone);
  server.reset();
}

TEST_F(TransferTest, WhatTheWriterThrowsComesBack) {
  BlobClient remote(to(server_.address()));
  const Writer full = [](std::uint64_t, std::span<const std::byte>) {
    throw make_error(ErrorKind::kIo, "the disk is full");
  };
  EXPECT_THROW(remote.fetch(blob(), done_, full), Error);
  EXPECT_EQ(done_, std::vector<bool>(101, false));
  EXPECT_EQ(remote.fetch(blob(), done_, writer_to(got_)).end, TransferEnd::kDone);
}

}  // namespace
}  // namespace atl::wire
