#include "atoll/island/client/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/island/client/exchange.h"
#include "atoll/island/client/rank_orders.h"
#include "atoll/wire/server.h"

namespace atl::island {
namespace {

using ::testing::ElementsAre;

TEST(ShardRange, CutsEachFragmentBetweenPiecesAndBlocks) {
  for (const std::int64_t elements : {1LL, 4095LL, 30'000LL, 600'000LL, (1LL << 25) + 3}) {
    for (const int vectors : {1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 7, 16}) {
        std::int64_t at = 0;
        for (int r = 0; r < ranks; ++r) {
          const auto range = shard_range(elements, vectors, {r, ranks});
          EXPECT_EQ(range.begin, at);
          EXPECT_TRUE(range.end == elements || range.end % piece_size(elements) == 0);
          (void)StatePart(elements, range, vectors);  // checks that it is cut between blocks
          at = range.end;
          // Where there are pieces enough, nobody has much more than its share.
          if (elements > 1 << 25) {
            EXPECT_LE(range.size(), elements / ranks + piece_size(elements));
          }
        }
        EXPECT_EQ(at, elements);
      }
    }
  }
}

TEST(ShardAddresses, AreOneForEachRankOrTheFirstOnes) {
  EXPECT_EQ(address_of_rank("10.0.0.2:7412", "island.listen", {2, 4}), "10.0.0.2:7414");
  EXPECT_EQ(address_of_rank("127.0.0.1:0", "island.listen", {2, 4}), "127.0.0.1:0");
  EXPECT_EQ(address_of_rank("a:1,b:2", "island.listen", {1, 2}), "b:2");
  EXPECT_THROW(address_of_rank("a:1,b:2", "island.listen", {1, 3}), Error);
  EXPECT_THROW(address_of_rank("a:65535", "island.listen", {1, 2}), Error);
  EXPECT_THAT(split_addresses(join_addresses({"a:1", "b:2"})), ElementsAre("a:1", "b:2"));
  EXPECT_THAT(split_addresses(""), ElementsAre(""));
}

// Islands of several ranks, each rank with a server, as one island sees them.
class Ranks {
 public:
  static constexpr std::int64_t kElements = 40 * 4096 + 77;
  static constexpr int kVectors = 2;

  Ranks(std::vector<int> sizes, const std::string& codec) : codecs_(codec) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<float> delta(kElements);
      const RngStream stream(i + 1, RngPurpose::kSynthetic);
      for (std::size_t k = 0; k < delta.size(); ++k) {
        delta[k] = static_cast<float>(static_cast<double>(stream.word(k) >> 8) * 0x1p-56 - 0.5);
      }
      std::vector<std::string> addresses;
      for (int r = 0; r < sizes[i]; ++r) {
        ranks_.push_back(std::make_unique<Rank>());
        Rank& rank = *ranks_.back();
        rank.island = static_cast<IslandId>(i + 1);
        const ShardPlace place = {r, sizes[i]};
        rank.own = shard_range(kElements, kVectors, place);
        rank.delta.assign(delta.begin() + rank.own.begin, delta.begin() + rank.own.end);
        rank.server = std::make_unique<wire::Server>(wire::ServerOptions{}, nullptr, &rank.store);
        rank.exchange = std::make_unique<Exchange>(
            ExchangeOptions{.place = place, .state_vectors = kVectors}, rank.store, codecs_);
        addresses.push_back(rank.server->address());
      }
      reduce_.participants.push_back({.island = static_cast<IslandId>(i + 1),
                                      .address = join_addresses(addresses),
                                      .weight = 1.0 / static_cast<double>(sizes.size())});
    }
  }

  // The mean, as each island has it of its ranks together.
  std::vector<std::vector<float>> run() {
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) {
      threads.emplace_back([this, &rank = *rank] {
        const auto encoded =
            std::make_shared<EncodedDelta>(room_for(codecs_.of(""), kElements, rank.own));
        rank.exchange->offer(7, encoded);
        rank.error.assign(rank.delta.size(), 0.0F);
        const bool keeps = codecs_.of("").wants_error();
        encode_pieces(codecs_.of(""), rank.delta,
                      keeps ? std::span(rank.error) : std::span<float>(), *encoded);
      });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (auto& rank : ranks_) {
      threads.emplace_back([this, &rank = *rank] {
        rank.mean.assign(rank.delta.size(), 0.0F);
        rank.result = rank.exchange->reduce({.outer_step = 7, .attempt = 1}, reduce_, rank.island,
                                            {}, kElements, rank.mean, stop_.get_token());
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::vector<float>> means(reduce_.participants.size());
    for (const auto& rank : ranks_) {
      EXPECT_TRUE(rank->result.is_done) << rank->result.why;
      auto& mean = means[rank->island - 1];
      mean.insert(mean.end(), rank->mean.begin(), rank->mean.end());
    }
    return means;
  }

  struct Rank {
    IslandId island = kNobody;
    parallel::ElementRange own;
    wire::BlobStore store;
    std::unique_ptr<wire::Server> server;
    std::unique_ptr<Exchange> exchange;
    std::vector<float> delta, error, mean;
    ExchangeResult result;
  };
  Rank& rank(std::size_t i) { return *ranks_[i]; }
  Source source(std::size_t island) const {
    return {reduce_.participants[island].island, reduce_.participants[island].address};
  }

 private:
  OuterCodecs codecs_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Reduce reduce_;
  std::stop_source stop_;
};

TEST(ExchangeOfRanks, HasTheBitsOfIslandsWithOneRank) {
  for (const char* codec : {"f32", "int8", "topk"}) {
    const auto expected = Ranks({1, 1, 1, 1}, codec).run();
    for (const std::vector<int>& sizes :
         {std::vector<int>{2, 1, 3, 1}, std::vector<int>{4, 2, 2, 5}}) {
      for (const auto& mean : Ranks(sizes, codec).run()) EXPECT_EQ(mean, expected[0]) << codec;
    }
  }
}

TEST(ExchangeOfRanks, FetchTheirPartsOfAStateFromOtherNumbersOfRanks) {
  Ranks ranks({2, 3}, "f32");
  constexpr StateHash kHash = {1, 2};
  std::vector<float> values(Ranks::kElements * Ranks::kVectors);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto part_of = [&](const Ranks::Rank& rank) {
    return StatePart(Ranks::kElements, rank.own, Ranks::kVectors);
  };
  const auto held = [&](const StatePart& part) {
    std::vector<float> mine;
    for (int v = 0; v < Ranks::kVectors; ++v) {
      const auto begin = values.begin() + v * Ranks::kElements;
      mine.insert(mine.end(), begin + part.own().begin, begin + part.own().end);
    }
    return mine;
  };
  for (std::size_t r = 0; r < 2; ++r) {
    const StatePart part = part_of(ranks.rank(r));
    const auto mine = std::make_shared<const std::vector<float>>(held(part));
    ranks.rank(r).exchange->publish_state(0, kHash, part, *mine, mine);
  }
  for (std::size_t r = 2; r < 5; ++r) {
    const StatePart part = part_of(ranks.rank(r));
    std::vector<float> fetched(part.size());
    const ExchangeResult result = ranks.rank(r).exchange->fetch_state(
        kHash, {ranks.source(0)}, {}, part, fetched, std::stop_token());
    EXPECT_TRUE(result.is_done) << result.why;
    EXPECT_EQ(fetched, held(part));
  }
}

TEST(RankOrders, ComeAsTheyWereSent) {
  const RankOrder order = {
      .what = RankOrder::What::kReduce,
      .outer_step = 5,
      .fragment = 1,
      .hash = {~0ULL, 3},
      .was_mine = true,
      .codec = "topk:64/4096",
      .stamp = {.fence = 1, .view = 2, .outer_step = 5, .attempt = 1},
      .reduce =
          {.fragment = 1,
           .participants = {{.island = 2, .address = "a:1,b:2", .weight = 1.0 / 3, .tokens = 7}}},
      .self = 2,
      .contacts = {{2, {"oslo", std::string(32, 'a')}}},
      .sources = {{2, "a:1"}},
      .hashes = {{1, 2}, {}},
      .connection = 9};
  const RankOrder back = decode_order(encode(order));
  EXPECT_EQ(encode(back), encode(order));
  EXPECT_EQ(back.reduce, order.reduce);
  EXPECT_EQ(back.hash, order.hash);
  const RankAnswer answer = {.error = "no \xff",
                             .exchange = {.is_done = true, .unreachable = {3}, .why = "x"},
                             .hash = {1, ~0ULL},
                             .squares = {0.1, 1e300},
                             .sent_bytes = 12};
  EXPECT_EQ(decode_answer(encode(answer)).squares, answer.squares);
  EXPECT_EQ(encode(decode_answer(encode(answer))), encode(answer));
  EXPECT_THROW(decode_order("x"), Error);
}

}  // namespace
}  // namespace atl::island
