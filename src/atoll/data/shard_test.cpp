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

TEST(Shard, MaskComesBackBitForBit) {
  const TemporaryDirectory directory;
  for (const std::int64_t size : {1, 63, 64, 65, 1000}) {
    std::vector<std::uint8_t> mask;
    for (std::int64_t i = 0; i < size; ++i) mask.push_back(i * i % 7 < 3 ? 1 : 0);
    const std::vector<std::uint64_t> starts = {0};
    const ShardInfo info =
        write_shard(directory / "a.atsh", {counting(size), starts, 1000, {}, mask});
    EXPECT_TRUE(info.has_mask);
    const Shard shard(directory / "a.atsh");
    EXPECT_EQ(all_tokens(shard), counting(size));
    EXPECT_THAT(shard.document_starts(), ::testing::ElementsAre(0));
    for (std::int64_t begin = 0; begin <= size; begin += 13) {
      std::vector<std::uint8_t> got(static_cast<std::size_t>(size - begin), 9);
      shard.copy_mask(static_cast<std::uint64_t>(begin), got);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), mask.begin() + begin));
    }
    std::vector<std::uint8_t> beyond(2);
    EXPECT_THROW(shard.copy_mask(static_cast<std::uint64_t>(size) - 1, beyond), Error);
    EXPECT_EQ(std::filesystem::file_size(directory / "a.atsh"),
              static_cast<std::uint64_t>(96 + (2 * size + 7) / 8 * 8 + 8 + (size + 63) / 64 * 8));
  }
}

TEST(Shard, WithoutAMaskIsOfVersionOneAndAllOnes) {
  const TemporaryDirectory directory;
  write_shard(directory / "a.atsh", {counting(10), {}, 10, {}});
  EXPECT_EQ(read_file(directory / "a.atsh")[8], 1);
  std::vector<std::uint8_t> mask(4, 0);
  Shard(directory / "a.atsh").copy_mask(6, mask);
  EXPECT_THAT(mask, ::testing::Each(1));
}

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
  const std::vector<std::uint8_t> mask = {1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1};
  write_shard(directory / "good.atsh", {counting(11), starts, 300, {3, 4}, mask});
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
  const std::vector<std::uint8_t> mask(11, 0);
  write_shard(directory / "a.atsh", {counting(11), starts, 300, {}, mask});
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
  content[8] = 3;
  write_file(directory / "a.atsh", content);
  EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
              ::testing::AllOf(::testing::HasSubstr("version 3"),
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

TEST(Shard, RefusesAMaskOfAnotherSizeThanItsTokens) {
  const TemporaryDirectory directory;
  const std::vector<std::uint8_t> mask(11, 0);
  write_shard(directory / "a.atsh", {counting(11), {}, 300, {}, mask});
  const std::string good = read_file(directory / "a.atsh");
  for (const std::uint64_t bytes : {std::uint64_t{16}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    std::string bad = good;
    bad.replace(72, 8, reinterpret_cast<const char*>(&bytes), 8);
    const Hash128 hash = hash_bytes(bad.data(), 80);
    bad.replace(80, 16, reinterpret_cast<const char*>(&hash), 16);
    write_file(directory / "a.atsh", bad);
    EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
                ::testing::HasSubstr("says at byte 72"));
  }
}

// A header's field, and hashes that fit it.
std::string with_vocab_size(std::string image, std::uint64_t vocab_size) {
  image.replace(32, 8, reinterpret_cast<const char*>(&vocab_size), 8);
  const Hash128 hash = hash_bytes(image.data(), 72);
  return image.replace(72, 16, reinterpret_cast<const char*>(&hash), 16);
}

TEST(Shard, RefusesTokensBeyondItsVocabulary) {
  const TemporaryDirectory directory;
  for (const auto& [written, stated] : {std::pair{300U, 10U}, {100'000U, 65'537U}}) {
    std::vector<std::int32_t> tokens = {0, 9, static_cast<std::int32_t>(written - 1), 3};
    write_shard(directory / "a.atsh", {tokens, {}, written, {}});
    const std::string good = read_file(directory / "a.atsh");
    write_file(directory / "a.atsh", with_vocab_size(good, stated));
    EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
                ::testing::HasSubstr(
                    fmt::format("token 2 is {} in a vocabulary of {}", written - 1, stated)));
    write_file(directory / "a.atsh", with_vocab_size(good, (std::uint64_t{1} << 31) + 1));
    EXPECT_THAT(error_of([&] { const Shard shard(directory / "a.atsh"); }),
                ::testing::HasSubstr("at byte 32"));
  }
}

}  // namespace
}  // namespace atl::data
