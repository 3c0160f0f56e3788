#include "atoll/data/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using testing::counting;
using testing::error_of;
using testing::TemporaryDirectory;

std::vector<std::int32_t> all_tokens(const Shard& shard) {
  std::vector<std::int32_t> tokens(shard.info().num_tokens);
  shard.copy(0, tokens);
  return tokens;
}

class ShardRoundTrip : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ShardRoundTrip, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  std::vector<std::int32_t> tokens = counting(1001);
  tokens.back() = static_cast<std::int32_t>(GetParam() - 1);
  const std::vector<std::uint64_t> starts = {0, 7, 1000};
  const Hash128 tokenizer = {1, 2};
  const ShardInfo written =
      write_shard(directory / "a.atsh", {tokens, starts, GetParam(), tokenizer});
  const Shard shard(directory / "a.atsh");
  EXPECT_EQ(all_tokens(shard), tokens);
  EXPECT_THAT(shard.document_starts(), ::testing::ElementsAreArray(starts));
  EXPECT_EQ(shard.info().vocab_size, GetParam());
  EXPECT_EQ(shard.info().tokenizer_hash, tokenizer);
  EXPECT_EQ(shard.info().payload_hash, written.payload_hash);
  const std::uint64_t token_bytes = GetParam() <= 65536 ? 2 : 4;
  const std::uint64_t padded = (1001 * token_bytes + 7) / 8 * 8;
  EXPECT_EQ(std::filesystem::file_size(directory / "a.atsh"), 88 + padded + 3 * 8);
}

INSTANTIATE_TEST_SUITE_P(TokenWidths, ShardRoundTrip,
                         ::testing::Values(1001, 65536, 65537, 2147483647));

TEST(Shard, CopiesAnyRangeAndRefusesOneBeyondTheEnd) {
  const TemporaryDirectory directory;
  write_shard(directory / "a.atsh", {counting(10), {}, 10, {}});
  const Shard shard(directory / "a.atsh");
  std::vector<std::int32_t> out(3);
  shard.copy(7, out);
  EXPECT_THAT(out, ::testing::ElementsAre(7, 8, 9));
  EXPECT_THROW(shard.copy(8, out), Error);
  EXPECT_THROW(shard.copy(~std::uint64_t{0}, out), Error);
}

TEST(Shard, HoldsNoTokensAtAll) {
  const TemporaryDirectory directory;
  write_shard(directory / "a.atsh", {{}, {}, 10, {}});
  EXPECT_EQ(Shard(directory / "a.atsh").info().num_tokens, 0U);
}

TEST(Shard, RefusesToWriteATokenOutsideTheVocabulary) {
  const TemporaryDirectory directory;
  const std::vector<std::int32_t> negative = {-1};
  EXPECT_THROW(write_shard(directory / "a.atsh", {counting(11), {}, 10, {}}), Error);
  EXPECT_THROW(write_shard(directory / "a.atsh", {negative, {}, 10, {}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Shard, DetectsEveryFlippedBit) {
  const TemporaryDirectory directory;
  const std::vector<std::uint64_t> starts = {0, 5};
  write_shard(directory / "good.atsh", {counting(11), starts, 300, {3, 4}});
  const std::string good = read_file(directory / "good.atsh");
  std::fstream file(directory / "good.atsh", std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t place, char value) {
    file.seekp(static_cast<std::streamoff>(place)).put(value).flush();
  };
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    put(bit / 8, static_cast<char>(good[bit / 8] ^ (1 << bit % 8)));
    ASSERT_NE(error_of([&] { const Shard shard(directory / "good.atsh"); }), "") << "bit " << bit;
    put(bit / 8, good[bit / 8]);
  }
  EXPECT_EQ(error_of([&] { const Shard shard(directory / "good.atsh"); }), "");
}

TEST(Shard, DetectsEveryTruncationAndAnAddedByte) {
  const TemporaryDirectory directory;
  const std::vector<std::uint64_t> starts = {0, 5};
  write_shard(directory / "a.atsh", {counting(11), starts, 300, {}});
  const std::string good = read_file(directory / "a.atsh");
  for (std::size_t size = good.size() + 1; size-- > 0;) {
    if (size == good.size()) continue;
    std::filesystem::resize_file(directory / "a.atsh", size);
    EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
                ::testing::HasSubstr("a.atsh ends at byte " + std::to_string(size)));
  }
  write_file(directory / "a.atsh", good + '\0');
  EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
              ::testing::HasSubstr("ends at byte " + std::to_string(good.size() + 1)));
}

TEST(Shard, SaysHowToRebuildAnotherVersion) {
  const TemporaryDirectory directory;
  write_shard(directory / "a.atsh", {counting(11), {}, 300, {}});
  std::string content = read_file(directory / "a.atsh");
  content[8] = 2;
  write_file(directory / "a.atsh", content);
  EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
              ::testing::AllOf(::testing::HasSubstr("version 2"),
                               ::testing::HasSubstr("atoll tokenize again")));
}

TEST(Shard, SurvivesCountsThatOverflow) {
  const TemporaryDirectory directory;
  write_shard(directory / "a.atsh", {counting(11), {}, 300, {}});
  const std::string good = read_file(directory / "a.atsh");
  for (const std::size_t field : {16U, 24U}) {
    for (const std::uint64_t count : {~std::uint64_t{0}, std::uint64_t{1} << 63,
                                      (std::uint64_t{1} << 63) + 11, std::uint64_t{1} << 61}) {
      std::string bad = good;
      bad.replace(field, 8, reinterpret_cast<const char*>(&count), 8);
      const Hash128 hash = hash_bytes(bad.data(), 72);  // a header that is consistent in itself
      bad.replace(72, 16, reinterpret_cast<const char*>(&hash), 16);
      write_file(directory / "a.atsh", bad);
      EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
                  ::testing::HasSubstr("ends at byte"));
    }
  }
}

}  // namespace
}  // namespace atl::data
