#include "atoll/island/coordinator/blob_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <span>

#include "atoll/island/client/exchange.h"
#include "atoll/island/outer/state.h"
#include "atoll/wire/blob_table.h"

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A fragment's state of two chunks, the last one not whole.
class BlobRelayTest : public ::testing::Test {
 protected:
  BlobRelayTest() : values(kChunkBytes / sizeof(float) + 100) {
    EXPECT_EQ(state_chunk_bytes(bytes()), kChunkBytes);
    std::iota(values.begin(), values.end(), 1.0F);
    hash = hash_of(values);
  }

  static constexpr std::size_t kChunkBytes = std::size_t{16} << 10;
  std::uint64_t bytes() const { return values.size() * sizeof(float); }
  wire::BlobCall call(const std::string& key) const {
    return {.key = key, .bytes = bytes(), .chunk_bytes = kChunkBytes, .peer = Roster::name_of(by)};
  }
  wire::BlobAnswer put(std::uint64_t chunk) {
    const auto all = std::as_bytes(std::span(values));
    const std::size_t begin = chunk * kChunkBytes;
    const std::size_t size = std::min<std::size_t>(kChunkBytes, all.size() - begin);
    return blob_relay.store()
        .table()
        .write(call(kPutPrefix + state_key(hash)), chunk, all.subspan(begin, size))
        .answer;
  }
  wire::BlobAnswer fetch(std::uint64_t chunk) {
    return blob_relay.store()
        .table()
        .read(
            call(state_key(hash)), chunk, [] { return true; }, fetched)
        .answer;
  }

  Roster roster;
  BlobRelay blob_relay{roster};
  IslandId by = 1;  // who puts and fetches
  std::vector<float> values;
  StateHash hash;
  std::string fetched;
};

TEST_F(BlobRelayTest, PassesOnChunksAsTheyCome) {
  EXPECT_THAT(blob_relay.serve({bytes()}, {{hash}}, 1)->hashes, ElementsAre(hash));
  EXPECT_EQ(fetch(1), wire::BlobAnswer::kCancelled) << "not there yet";
  ASSERT_EQ(put(1), wire::BlobAnswer::kOk);
  ASSERT_EQ(fetch(1), wire::BlobAnswer::kOk);
  EXPECT_EQ(fetched.size(), 400);
  EXPECT_EQ(std::memcmp(fetched.data(), values.data() + kChunkBytes / sizeof(float), 400), 0);
  EXPECT_EQ(fetch(0), wire::BlobAnswer::kCancelled);
}

TEST_F(BlobRelayTest, SaysWhosePseudoGradientsCome) {
  blob_relay.serve({.outer_step = 4}, {{1, bytes(), kChunkBytes}, {2, bytes(), kChunkBytes}});
  EXPECT_THAT(blob_relay.heard(), IsEmpty());
  const auto all = std::as_bytes(std::span(values));
  const std::string key = kPutPrefix + relay_key(4, 2);
  by = 2;
  ASSERT_TRUE(blob_relay.store().table().write(call(key), 1, all.subspan(kChunkBytes)).ok());
  EXPECT_THAT(blob_relay.heard(), ElementsAre(2));
  EXPECT_THAT(blob_relay.heard(), IsEmpty());
}

TEST_F(BlobRelayTest, AsksOnlyForWhatIsNotThere) {
  const StateHash other = {7, 7};
  const std::vector<std::uint64_t> sizes = {bytes(), 400};
  EXPECT_THAT(blob_relay.serve(sizes, {{hash, other}}, 1)->hashes, ElementsAre(hash, other));
  ASSERT_EQ(put(0), wire::BlobAnswer::kOk);
  EXPECT_THAT(blob_relay.serve(sizes, {{hash, other}}, 1)->hashes, ElementsAre(hash, other));
  ASSERT_EQ(put(1), wire::BlobAnswer::kOk);
  EXPECT_THAT(blob_relay.serve(sizes, {{hash, other}}, 1)->hashes, ElementsAre(StateHash{}, other));
  EXPECT_EQ(blob_relay.serve({bytes()}, {{hash}}, 1), std::nullopt);
  EXPECT_EQ(fetch(0), wire::BlobAnswer::kOk);
}

TEST_F(BlobRelayTest, TakesAnewWhatIsNotWhatItsHashSays) {
  blob_relay.serve({bytes()}, {{hash}}, 1);
  values[5] = -1;
  ASSERT_EQ(put(0), wire::BlobAnswer::kOk);
  ASSERT_EQ(put(1), wire::BlobAnswer::kOk);
  EXPECT_THAT(blob_relay.serve({bytes()}, {{hash}}, 1)->hashes, ElementsAre(hash));
  EXPECT_EQ(fetch(0), wire::BlobAnswer::kCancelled) << "what was wrong is gone";
  values[5] = 6;
  ASSERT_EQ(put(0), wire::BlobAnswer::kOk);
  ASSERT_EQ(put(1), wire::BlobAnswer::kOk);
  EXPECT_EQ(blob_relay.serve({bytes()}, {{hash}}, 1), std::nullopt);
}

TEST_F(BlobRelayTest, WhatDoesNotFitTheMemoryIsNotServed) {
  EXPECT_EQ(blob_relay.serve({std::uint64_t{1} << 62}, {{hash}}, 1), std::nullopt);
  EXPECT_EQ(blob_relay.serve({~std::uint64_t{0}, ~std::uint64_t{0}}, {{hash, {7, 7}}}, 1),
            std::nullopt);
  // Each of them would fit alone.
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const std::uint64_t most = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) / 4 * 3;
  EXPECT_EQ(blob_relay.serve({most, most}, {{hash, {7, 7}}}, 1), std::nullopt);
  EXPECT_EQ(fetch(0), wire::BlobAnswer::kGone);
  EXPECT_NE(blob_relay.serve({bytes()}, {{hash}}, 1), std::nullopt);
}

TEST_F(BlobRelayTest, KeepsStateWhileSomebodyFetches) {
  blob_relay.serve({bytes()}, {{hash}}, 1);
  blob_relay.tick(true);
  blob_relay.tick(false);  // it may have lost its connection only
  EXPECT_EQ(put(0), wire::BlobAnswer::kOk);
  blob_relay.serve({bytes()}, {{{7, 7}}}, 1);
  EXPECT_EQ(put(1), wire::BlobAnswer::kGone);
}

}  // namespace
}  // namespace atl::island
