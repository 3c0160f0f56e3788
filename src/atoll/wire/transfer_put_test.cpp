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

// A store that knows one caller, by what it shows beside its certificate.
class RecogniseTest : public ::testing::Test {
 protected:
  ~RecogniseTest() override { server_.stop(); }
  Remote remote(const std::string& pass) const {
    return Remote({.address = server_.address(),
                   .identity = pki().identity("lyon"),
                   .pass = pass,
                   .streams = 1});
  }

  const std::vector<std::byte> content_ = test::random_bytes(2 * kChunk);
  std::vector<std::byte> got_ = std::vector<std::byte>(content_.size());
  const Transfer blob_ = {.key = "blob", .bytes = content_.size(), .chunk_bytes = kChunk};
  std::atomic<bool> is_known_ = true;
  BlobStore blobs_{[this](const Caller& caller) -> std::optional<std::string> {
    if (!is_known_ || caller.name != "lyon" || caller.pass != "secret") return std::nullopt;
    return "one";
  }};
  Server server_{{.identity = pki().identity("server")}, nullptr, &blobs_};
};

TEST_F(RecogniseTest, OnlyWhoIsRecognisedIsServed) {
  blobs_.allow_put({.key = "blob",
                    .bytes = content_.size(),
                    .chunk_bytes = kChunk,
                    .writer = writer_to(got_),
                    .peer = "one"});
  for (const char* pass : {"", "another", "secret2"}) {
    for (const char* key : {"blob", "unknown"}) {
      std::vector<bool> done;
      Transfer transfer = blob_;
      transfer.key = key;
      const TransferResult result =
          patiently([&] { return remote(pass).put(transfer, done, reader_of(content_)); });
      EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
      EXPECT_THAT(result.why, HasSubstr("lyon has not joined the run here"));
    }
  }
  std::vector<bool> done;
  Remote known = remote("secret");
  const TransferResult result =
      patiently([&] { return known.put(blob_, done, reader_of(content_)); });
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  EXPECT_TRUE(got_ == content_);
}

TEST_F(RecogniseTest, WhoIsRecognisedNoMoreIsServedNoMore) {
  blobs_.publish({.key = "blob",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  blobs_.mark("blob", 0);
  Remote known = remote("secret");
  std::vector<bool> done;
  const TransferResult result =
      known.fetch(blob_, done, [&](std::uint64_t, std::span<const std::byte>) {
        is_known_ = false;
        blobs_.mark("blob", 1);
      });
  EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
  EXPECT_EQ(done, (std::vector<bool>{true, false}));
}

TEST_F(RecogniseTest, WhoIsRecognisedNoMoreDoesNotWait) {
  blobs_.publish({.key = "blob",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  blobs_.mark("blob", 0);
  Remote known = remote("secret");
  std::vector<bool> done;
  const TransferResult result = known.fetch(
      blob_, done, [&](std::uint64_t, std::span<const std::byte>) { is_known_ = false; });
  EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
}

TEST_F(TransferTest, APutIsHandedOver) {
  blobs_.allow_put(wanted(got_, "oslo"));
  blobs_.hand_over("given", "lyon");
  Remote remote(to(server_.address()));
  const TransferResult result =
      patiently([&] { return remote.put(given(), done_, reader_of(content_)); });
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  blobs_.hand_over("given", "oslo");
  std::vector<bool> again;
  EXPECT_EQ(remote.put(given(), again, reader_of(content_)).end, TransferEnd::kRefused);
}

}  // namespace
}  // namespace atl::wire
