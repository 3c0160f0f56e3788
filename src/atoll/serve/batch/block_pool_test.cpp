#include "atoll/serve/batch/block_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "atoll/base/rng.h"

namespace atl::serve {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens tokens_from(std::int32_t first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence of whole blocks, named under `key`.
std::vector<std::int32_t> hold(BlockPool& pool, const std::string& key, const Tokens& tokens) {
  std::vector<std::int32_t> blocks;
  BlockPool::Node node = BlockPool::kRoot;
  for (std::size_t at = 0; at < tokens.size(); at += 4) {
    blocks.push_back(pool.take().value());
    node = pool.add(key, node, std::span(tokens).subspan(at, 4), blocks.back());
  }
  return blocks;
}

TEST(BlockPool, GivesEachBlockOnceAndNothingWhenAllAreInUse) {
  BlockPool pool(3, 4);
  std::set<std::int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(pool.take().value());
  EXPECT_EQ(taken, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.take(), std::nullopt);
  pool.release(std::vector<std::int32_t>{1});
  EXPECT_EQ(pool.take(), 1);
}

TEST(BlockPool, FindsTheLongestBeginningOfTheSameKey) {
  BlockPool pool(8, 4);
  const Tokens tokens = tokens_from(0, 12);
  const auto blocks = hold(pool, "a", tokens);
  pool.release(blocks);
  EXPECT_EQ(pool.num_kept(), 3);

  Tokens longer = tokens_from(0, 8);
  longer.insert(longer.end(), {99, 100, 101, 102});
  const BlockPool::Prefix found = pool.find("a", longer, 9);
  EXPECT_EQ(found.blocks, (std::vector<std::int32_t>{blocks[0], blocks[1]}));
  EXPECT_EQ(pool.find("a", longer, 1).blocks.size(), 1U);
  EXPECT_TRUE(pool.find("b", longer, 9).blocks.empty());
  EXPECT_TRUE(pool.find("a", tokens_from(1, 8), 9).blocks.empty());
  EXPECT_TRUE(pool.find("a", tokens_from(0, 3), 9).blocks.empty());
}

TEST(BlockPool, TheSameTokensBehindAnotherBeginningAreAnotherBlock) {
  BlockPool pool(8, 4);
  const Tokens same = tokens_from(50, 4);
  Tokens first = tokens_from(0, 4), second = tokens_from(10, 4);
  first.insert(first.end(), same.begin(), same.end());
  second.insert(second.end(), same.begin(), same.end());
  const auto a = hold(pool, "", first);
  const auto b = hold(pool, "", second);
  EXPECT_EQ(pool.find("", first, 9).blocks, a);
  EXPECT_EQ(pool.find("", second, 9).blocks, b);
}

TEST(BlockPool, ForgetsTheEndOfWhatIsUnusedForLongestFirst) {
  BlockPool pool(4, 4);
  const auto old = hold(pool, "", tokens_from(0, 8));
  pool.release(old);
  const auto recent = hold(pool, "", tokens_from(100, 8));
  pool.release(recent);
  EXPECT_EQ(pool.take(), old[1]);
  EXPECT_EQ(pool.find("", tokens_from(0, 8), 9).blocks.size(), 1U);  // and is in use now
  EXPECT_EQ(pool.take(), recent[1]);
  EXPECT_EQ(pool.take(), recent[0]);
  EXPECT_EQ(pool.take(), std::nullopt);
}

TEST(BlockPool, OfTwoThatHoldTheSameTheFirstIsFound) {
  BlockPool pool(4, 4);
  const auto a = hold(pool, "", tokens_from(0, 4));
  const auto b = hold(pool, "", tokens_from(0, 4));
  EXPECT_EQ(pool.find("", tokens_from(0, 4), 1).blocks, a);
  pool.release(b);
  EXPECT_EQ(pool.num_free(), 3);  // b has no name
}

// Against a simple count of users, over many random steps.
TEST(BlockPool, NoBlockIsLostOrGivenTwice) {
  BlockPool pool(16, 4);
  const RngStream random(3, RngPurpose::kSynthetic, 0);
  std::vector<std::vector<std::int32_t>> held;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto draw = random.word(i);
    if (draw % 3 == 0 && !held.empty()) {
      const std::size_t at = draw / 3 % held.size();
      pool.release(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      const Tokens tokens = tokens_from(static_cast<std::int32_t>(draw / 3 % 5), 8);
      BlockPool::Prefix prefix = pool.find("", tokens, 2);
      BlockPool::Node node = prefix.node;
      while (prefix.blocks.size() < 2) {
        const auto block = pool.take();
        if (!block) break;
        node = pool.add("", node, std::span(tokens).subspan(prefix.blocks.size() * 4, 4), *block);
        prefix.blocks.push_back(*block);
      }
      held.push_back(prefix.blocks);
    }
    std::set<std::int32_t> used;
    for (const auto& blocks : held) used.insert(blocks.begin(), blocks.end());
    ASSERT_EQ(pool.num_available(), 16 - std::ssize(used)) << "step " << i;
  }
}

}  // namespace
}  // namespace atl::serve
