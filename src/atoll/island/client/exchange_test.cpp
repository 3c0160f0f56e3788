#include "atoll/island/client/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <thread>

#include "atoll/base/rng.h"
#include "atoll/compress/codec.h"
#include "atoll/wire/server.h"

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kElements = (std::int64_t{1} << 19) + 1234;

// Islands 1 to n, each with a server of its own.
class Exchanges {
 public:
  Exchanges(int n, const std::string& codec, const std::string& sum_codec = "f32")
      : codec_(compress::make_codec(codec)), codecs_(codec, sum_codec) {
    for (int i = 0; i < n; ++i) {
      places_.push_back(std::make_unique<Place>());
      Place& place = *places_.back();
      place.server = std::make_unique<wire::Server>(wire::ServerOptions{}, nullptr, &place.store);
      place.exchange = std::make_unique<Exchange>(ExchangeOptions{}, place.store, codecs_);
      const RngStream stream(static_cast<std::uint64_t>(i + 1), RngPurpose::kSynthetic);
      for (std::int64_t k = 0; k < kElements; ++k) {
        const auto word = static_cast<double>(stream.word(static_cast<std::uint64_t>(k)) >> 8);
        place.delta.push_back(static_cast<float>(word * 0x1p-56 - 0.5));
      }
      reduce_.participants.push_back({.island = static_cast<IslandId>(i + 1),
                                      .address = place.server->address(),
                                      .weight = 1.0 / n});
    }
  }

  // Who offers, for island i from 0.
  void offer(int i) {
    Place& place = *places_[static_cast<std::size_t>(i)];
    const auto encoded = std::make_shared<EncodedDelta>(room_for(*codec_, kElements));
    place.exchange->offer(7, encoded);
    encode_pieces(*codec_, place.delta, {}, *encoded);
  }
  // All of them at once; those that are only to listen have no place among the participants.
  std::vector<ExchangeResult> run(int n) {
    std::vector<ExchangeResult> results(static_cast<std::size_t>(n));
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) {
      threads.emplace_back([&, i] { results[static_cast<std::size_t>(i)] = run_one(i); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  ExchangeResult run_one(int i) {
    Place& place = *places_[static_cast<std::size_t>(i)];
    place.mean.assign(kElements, 0.0F);
    place.handed_on.assign(kElements, 0.0F);
    return place.exchange->reduce(
        {.outer_step = 7, .attempt = 1}, reduce_, static_cast<IslandId>(i + 1), {}, kElements,
        place.mean, stop_.get_token(), [&](std::size_t begin, std::span<const float> mean) {
          // Were one handed on twice, it would have the sum.
          for (std::size_t k = 0; k < mean.size(); ++k) {
            place.handed_on[begin + k] += mean[k];
          }
        });
  }
  void stop_server(int i) { places_[static_cast<std::size_t>(i)]->server->stop(); }

  Reduce& reduce() { return reduce_; }
  const std::vector<float>& mean(int i) const { return places_[static_cast<std::size_t>(i)]->mean; }
  const std::vector<float>& handed_on(int i) const {
    return places_[static_cast<std::size_t>(i)]->handed_on;
  }
  const std::vector<float>& delta(int i) const {
    return places_[static_cast<std::size_t>(i)]->delta;
  }
  Exchange& exchange(int i) { return *places_[static_cast<std::size_t>(i)]->exchange; }
  std::string address(int i) const {
    return reduce_.participants[static_cast<std::size_t>(i)].address;
  }
  std::stop_source& stop() { return stop_; }

 private:
  struct Place {
    wire::BlobStore store;
    std::unique_ptr<wire::Server> server;
    std::unique_ptr<Exchange> exchange;
    std::vector<float> delta, mean, handed_on;
  };

  std::unique_ptr<compress::Codec> codec_;
  OuterCodecs codecs_;
  std::vector<std::unique_ptr<Place>> places_;
  Reduce reduce_;
  std::stop_source stop_;
};

TEST(Exchange, AllHaveTheMeanInTheOrderOfIslands) {
  for (const int n : {1, 2, 3, 4}) {
    Exchanges islands(n, "f32");
    for (int i = 0; i < n; ++i) islands.offer(i);
    for (const ExchangeResult& result : islands.run(n)) ASSERT_TRUE(result.is_done) << result.why;
    std::vector<float> expected(kElements, 0.0F);
    const auto weight = static_cast<float>(1.0 / n);
    for (int i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const float part = weight * islands.delta(i)[k];
        expected[k] += part;
      }
    }
    for (int i = 0; i < n; ++i) EXPECT_EQ(islands.mean(i), expected) << n << " islands";
  }
}

TEST(Exchange, EveryCodecGivesAllTheSameBits) {
  for (const char* codec : {"bf16", "int8", "e3m0", "topk"}) {
    Exchanges islands(3, codec, "bf16");
    for (int i = 0; i < 3; ++i) islands.offer(i);
    for (const ExchangeResult& result : islands.run(3)) ASSERT_TRUE(result.is_done) << result.why;
    EXPECT_EQ(islands.mean(0), islands.mean(1)) << codec;
    EXPECT_EQ(islands.mean(0), islands.mean(2)) << codec;
  }
}

TEST(Exchange, WhoContributesNothingHasTheMeanToo) {
  for (const char* codec : {"f32", "e3m0"}) {
    Exchanges islands(3, codec);
    islands.reduce().participants.pop_back();
    islands.offer(0);
    islands.offer(1);
    for (const ExchangeResult& result : islands.run(3)) ASSERT_TRUE(result.is_done) << result.why;
    EXPECT_EQ(islands.mean(0), islands.mean(2)) << codec;
  }
  Exchanges islands(4, "f32");  // sums come from those that make them
  islands.reduce().participants.pop_back();
  for (int i = 0; i < 3; ++i) islands.offer(i);
  for (const ExchangeResult& result : islands.run(4)) ASSERT_TRUE(result.is_done) << result.why;
  EXPECT_EQ(islands.mean(0), islands.mean(3));
  EXPECT_THAT(islands.exchange(3).heard().take(), ElementsAre(1, 2, 3));
}

TEST(Exchange, NothingIsGivenBeforeItsOwnerHasAskedTheOthers) {
  Exchanges islands(2, "f32");
  for (int i = 0; i < 2; ++i) islands.offer(i);
  // On a slow link the second's questions would wait behind what the first has got to send.
  std::future<ExchangeResult> first =
      std::async(std::launch::async, [&] { return islands.run_one(0); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(150)), std::future_status::timeout);
  EXPECT_EQ(islands.exchange(0).traffic().received_bytes, 0U);
  const ExchangeResult second = islands.run_one(1);
  EXPECT_TRUE(second.is_done) << second.why;
  EXPECT_TRUE(first.get().is_done);
  EXPECT_EQ(islands.mean(0), islands.mean(1));
}

TEST(Exchange, TheMeanIsHandedOnPieceByPiece) {
  for (const int n : {1, 2, 4}) {  // alone, everybody sums, each sums a part
    Exchanges islands(n, "bf16", "bf16");
    for (int i = 0; i < n; ++i) islands.offer(i);
    for (const ExchangeResult& result : islands.run(n)) ASSERT_TRUE(result.is_done) << result.why;
    for (int i = 0; i < n; ++i) EXPECT_EQ(islands.handed_on(i), islands.mean(i)) << n << " islands";
    const std::vector<IslandId> heard = islands.exchange(0).heard().take();
    EXPECT_EQ(heard.size(), static_cast<std::size_t>(n - 1)) << "all but itself";
  }
}

TEST(Exchange, WhoIsGoneIsNamed) {
  Exchanges islands(2, "f32");
  islands.offer(0);
  islands.offer(1);
  islands.stop_server(1);
  const std::vector<ExchangeResult> results = islands.run(1);
  EXPECT_FALSE(results[0].is_done);
  EXPECT_THAT(results[0].unreachable, ElementsAre(2));
  EXPECT_FALSE(results[0].why.empty());
}

TEST(Exchange, SumsAreSharedWhereThatMovesFewerBytes) {
  Exchanges islands(4, "f32");
  for (int i = 0; i < 4; ++i) islands.offer(i);
  for (const ExchangeResult& result : islands.run(4)) ASSERT_TRUE(result.is_done) << result.why;
  // Each fetches a quarter of three pseudo-gradients, and three quarters of the sum: pieces are
  // three here, so islands have one or none.
  std::uint64_t received = 0;
  for (int i = 0; i < 4; ++i) received += islands.exchange(i).traffic().received_bytes;
  EXPECT_EQ(received, 2 * 3 * static_cast<std::uint64_t>(kElements) * sizeof(float));
}

TEST(Exchange, StateIsFetchedInPartsFromAllWhoHaveIt) {
  Exchanges islands(3, "f32");
  const auto values = std::make_shared<const std::vector<float>>(islands.delta(0));
  const StatePart part(kElements, 1);
  const StateHash hash = {1, 2};
  islands.exchange(0).publish_state(0, hash, part, *values, values);
  islands.exchange(1).publish_state(0, hash, part, *values, values);
  std::vector<float> fetched(values->size());
  const std::vector<Source> sources = {{1, islands.address(0)}, {2, islands.address(1)}};
  ExchangeResult result =
      islands.exchange(2).fetch_state(hash, sources, {}, part, fetched, islands.stop().get_token());
  ASSERT_TRUE(result.is_done) << result.why;
  EXPECT_EQ(fetched, *values);
  EXPECT_THAT(result.unreachable, IsEmpty());
  // One of them is enough.
  islands.stop_server(0);
  std::fill(fetched.begin(), fetched.end(), 0.0F);
  result =
      islands.exchange(2).fetch_state(hash, sources, {}, part, fetched, islands.stop().get_token());
  ASSERT_TRUE(result.is_done) << result.why;
  EXPECT_EQ(fetched, *values);
  EXPECT_THAT(islands.exchange(2).heard().take(), ElementsAre(1, 2)) << "whose bytes came";
  EXPECT_THAT(islands.exchange(2).heard().take(), IsEmpty());
  // Nobody has another.
  result = islands.exchange(2).fetch_state({3, 4}, sources, {}, part, fetched,
                                           islands.stop().get_token());
  EXPECT_FALSE(result.is_done);
}

TEST(PieceSize, IsSmallEnoughForStreamsToEndTogether) {
  EXPECT_EQ(piece_size(1), 4096);
  EXPECT_EQ(piece_size(32 * 4096), 4096);
  EXPECT_EQ(piece_size(1'467'904), 32768);
  EXPECT_EQ(piece_size(std::int64_t{1} << 30), kMaxPieceElements);
}

}  // namespace
}  // namespace atl::island
