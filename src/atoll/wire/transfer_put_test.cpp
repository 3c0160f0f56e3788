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
  BlobClient remote(to(server_.address()));
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
  PutPermission request = wanted(got_);
  request.writer = [&](std::uint64_t offset, std::span<const std::byte> data) {
    ++writes;
    writer_to(got_)(offset, data);
  };
  blobs_.allow_put(std::move(request));
  test::Relay relay(server_.address(), {});
  BlobClient remote(to(relay.address(), 2));
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
  BlobClient remote(to(server_.address()));
  TransferResult result = remote.put(given(), done_, reader_of(content_));
  EXPECT_EQ(result.end, TransferEnd::kRefused);
  EXPECT_THAT(result.why, HasSubstr("given is not for lyon"));
  BlobTransfer unknown = given();
  unknown.key = "unwanted";
  result = remote.put(unknown, done_, reader_of(content_));
  EXPECT_EQ(result.end, TransferEnd::kGone);
  EXPECT_EQ(done_, std::vector<bool>(101, false));
}

TEST_F(TransferTest, WhatOnePutsOthersFetchMeanwhile) {
  std::vector<std::byte> relayed(content_.size());
  PutPermission request = wanted(relayed);
  request.writer = [&](std::uint64_t offset, std::span<const std::byte> data) {
    writer_to(relayed)(offset, data);
    blobs_.mark("given", offset / kChunk);
  };
  blobs_.allow_put(std::move(request));
  blobs_.publish({.key = "given",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(relayed)});
  BlobClient lyon(to(server_.address()));
  BlobClient oslo({.address = server_.address(), .identity = pki().identity("oslo")});
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
class AuthenticateTest : public ::testing::Test {
 protected:
  ~AuthenticateTest() override { server_.stop(); }
  BlobClient remote(const std::string& token) const {
    return BlobClient({.address = server_.address(),
                       .identity = pki().identity("lyon"),
                       .access_token = token,
                       .streams = 1});
  }

  const std::vector<std::byte> content_ = test::random_bytes(2 * kChunk);
  std::vector<std::byte> got_ = std::vector<std::byte>(content_.size());
  const BlobTransfer blob_ = {.key = "blob", .bytes = content_.size(), .chunk_bytes = kChunk};
  std::atomic<bool> is_known_ = true;
  BlobStore blobs_{[this](const Caller& caller) -> std::optional<std::string> {
    if (!is_known_ || caller.name != "lyon" || caller.access_token != "secret") return std::nullopt;
    return "one";
  }};
  Server server_{{.identity = pki().identity("server")}, nullptr, &blobs_};
};

TEST_F(AuthenticateTest, OnlyAuthenticatedCallersAreServed) {
  blobs_.allow_put({.key = "blob",
                    .bytes = content_.size(),
                    .chunk_bytes = kChunk,
                    .writer = writer_to(got_),
                    .peer = "one"});
  for (const char* token : {"", "another", "secret2"}) {
    for (const char* key : {"blob", "unknown"}) {
      std::vector<bool> done;
      BlobTransfer transfer = blob_;
      transfer.key = key;
      const TransferResult result =
          patiently([&] { return remote(token).put(transfer, done, reader_of(content_)); });
      EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
      EXPECT_THAT(result.why, HasSubstr("lyon has not joined the run here"));
    }
  }
  std::vector<bool> done;
  BlobClient known = remote("secret");
  const TransferResult result =
      patiently([&] { return known.put(blob_, done, reader_of(content_)); });
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  EXPECT_TRUE(got_ == content_);
}

TEST_F(AuthenticateTest, ACallerThatIsNoLongerAuthenticatedIsRefused) {
  blobs_.publish({.key = "blob",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  blobs_.mark("blob", 0);
  BlobClient known = remote("secret");
  std::vector<bool> done;
  const TransferResult result =
      known.fetch(blob_, done, [&](std::uint64_t, std::span<const std::byte>) {
        is_known_ = false;
        blobs_.mark("blob", 1);
      });
  EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
  EXPECT_EQ(done, (std::vector<bool>{true, false}));
}

TEST_F(AuthenticateTest, ACallerThatIsNoLongerAuthenticatedDoesNotWait) {
  blobs_.publish({.key = "blob",
                  .bytes = content_.size(),
                  .chunk_bytes = kChunk,
                  .reader = reader_of(content_)});
  blobs_.mark("blob", 0);
  BlobClient known = remote("secret");
  std::vector<bool> done;
  const TransferResult result = known.fetch(
      blob_, done, [&](std::uint64_t, std::span<const std::byte>) { is_known_ = false; });
  EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
}

TEST_F(TransferTest, APutIsHandedOver) {
  blobs_.allow_put(wanted(got_, "oslo"));
  blobs_.hand_over("given", "lyon");
  BlobClient remote(to(server_.address()));
  const TransferResult result =
      patiently([&] { return remote.put(given(), done_, reader_of(content_)); });
  EXPECT_EQ(result.end, TransferEnd::kDone) << result.why;
  blobs_.hand_over("given", "oslo");
  std::vector<bool> again;
  EXPECT_EQ(remote.put(given(), again, reader_of(content_)).end, TransferEnd::kRefused);
}

}  // namespace
}  // namespace atl::wire
