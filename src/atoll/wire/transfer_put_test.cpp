// Blobs that are put.

#include <algorithm>
#include <atomic>
#include <thread>

#include "atoll/wire/testing/relay.h"
#include "atoll/wire/testing/transfers.h"

namespace atl::wire {
namespace {

using test::kChunk;
using test::patiently;
using test::pki;
using test::reader_of;
using test::TransferTest;
using test::writer_to;
using ::testing::HasSubstr;

TEST_F(TransferTest, WhatIsPutArrives) {
  blobs_.allow_put(wanted(got_));
  Remote remote(to(server_.address()));
  EXPECT_FALSE(blobs_.is_put("given"));
  const TransferResult result = remote.put(given(), done_, reader_of(content_));
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  EXPECT_EQ(result.bytes, content_.size());
  EXPECT_TRUE(blobs_.is_put("given"));
  EXPECT_TRUE(got_ == content_);
  EXPECT_EQ(traffic_.sent_bytes, content_.size());
}

TEST_F(TransferTest, APutThatBreaksGoesOnWhereItStopped) {
  std::atomic<int> writes{0};
  Request request = wanted(got_);
  request.writer = [&](std::uint64_t offset, std::span<const std::byte> data) {
    ++writes;
    writer_to(got_)(offset, data);
  };
  blobs_.allow_put(std::move(request));
  test::Relay relay(server_.address(), {});
  Remote remote(to(relay.address(), 2));
  // The answers are counted: a handshake and some.
  relay.cut_after(3000);
  int calls = 0;
  for (TransferResult result;; ++calls) {
    ASSERT_LT(calls, 200);
    if (calls == 8) relay.cut_after(0);
    result = remote.put(given(), done_, reader_of(content_));
    if (result.end == TransferEnd::kDone) break;
  }
  EXPECT_GT(calls, 0);
  EXPECT_TRUE(got_ == content_);
  EXPECT_EQ(writes, 101);  // none twice, though some were sent twice
}

TEST_F(TransferTest, OnlyTheRightPeerPutsTheRightBlob) {
  blobs_.allow_put(wanted(got_, "oslo"));
  Remote remote(to(server_.address()));
  TransferResult result = remote.put(given(), done_, reader_of(content_));
  EXPECT_EQ(result.end, TransferEnd::kRefused);
  EXPECT_THAT(result.why, HasSubstr("given is not for lyon"));
  Transfer unknown = given();
  unknown.key = "unwanted";
  result = remote.put(unknown, done_, reader_of(content_));
  EXPECT_EQ(result.end, TransferEnd::kGone);
  EXPECT_EQ(done_, std::vector<bool>(101, false));
}

TEST_F(TransferTest, WhatOnePutsOthersFetchMeanwhile) {
  std::vector<std::byte> relayed(content_.size());
  Request request = wanted(relayed);
  request.writer = [&](std::uint64_t offset, std::span<const std::byte> data) {
    writer_to(relayed)(offset, data);
    blobs_.mark("given", offset / kChunk);
  };
  blobs_.allow_put(std::move(request));
  blobs_.publish({.key = "given",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(relayed)});
  Remote lyon(to(server_.address()));
  Remote oslo({.address = server_.address(), .identity = pki().identity("oslo")});
  std::jthread putter([&] {
    std::vector<bool> done;
    const TransferResult put =
        patiently([&] { return lyon.put(given(), done, reader_of(content_)); });
    EXPECT_EQ(put.end, TransferEnd::kDone) << put.why;
  });
  const TransferResult fetched =
      patiently([&] { return oslo.fetch(given(), done_, writer_to(got_)); });
  EXPECT_EQ(fetched.end, TransferEnd::kDone) << fetched.why;
  EXPECT_TRUE(got_ == content_);
}

}  // namespace
}  // namespace atl::wire
