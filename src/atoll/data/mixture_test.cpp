#include "atoll/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "atoll/data/loader.h"
#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using testing::counting;
using testing::error_of;
using ::testing::HasSubstr;

TEST(Mixture, GivesEachCorpusItsOwnSamplesInTheirOrder) {
  const TokenVector small("small", counting(100));
  const TokenVector large("large", std::vector<std::int32_t>(500, 7), {0, 8, 300});
  const auto a = make_samples(small, 1, 8, Packing::kStream);
  const auto b = make_samples(large, 2, 8, Packing::kDocuments);
  const Mixture mixture(5, {{a.get(), 1}, {b.get(), 3}});
  EXPECT_TRUE(mixture.has_documents());
  Loader mixed(mixture, {});
  Loader from_a(*a, {});
  Loader from_b(*b, {});
  const auto tokens = [](const Batch& batch) {
    const auto* data = batch.tokens.data<std::int32_t>();
    return std::vector<std::int32_t>(data, data + batch.tokens.num_elements());
  };
  int parts[2] = {};
  for (std::int64_t i = 0; i < 400; ++i) {
    const MixtureRef ref = mixture.locate(i);
    ASSERT_EQ(ref.sample, parts[ref.part]++);
    ASSERT_EQ(tokens(mixed.next()), tokens((ref.part == 0 ? from_a : from_b).next()));
    EXPECT_THAT(mixture.describe(i), HasSubstr(ref.part == 0 ? "small" : "large"));
  }
  EXPECT_NEAR(parts[0], 100, 1);
}

TEST(MixtureOrder, ResumesFarIntoARunWithoutCounting) {
  const MixtureOrder order(3, {0.2, 0.3, 0.5});
  const std::int64_t far = std::int64_t{1} << 60;
  const MixtureRef ref = order.locate(far);
  const double share[] = {0.2, 0.3, 0.5};
  EXPECT_NEAR(static_cast<double>(ref.sample) / static_cast<double>(far), share[ref.part], 1e-15);
}

// Computed by tools/golden/data_order.py from docs/data-order.md alone.
TEST(MixtureOrder, AgreesWithTheIndependentImplementation) {
  struct Known {
    std::uint64_t seed;
    std::vector<double> weights;
    std::int64_t index;
    std::size_t part;
    std::int64_t sample;
  };
  const std::vector<Known> all = {
#include "atoll/data/mixture_known_values.inc"
  };
  for (const Known& known : all) {
    const MixtureRef ref = MixtureOrder(known.seed, known.weights).locate(known.index);
    EXPECT_EQ(ref.part, known.part) << known.index;
    EXPECT_EQ(ref.sample, known.sample) << known.index;
  }
}

TEST(MixtureOrder, SeedsBeginWithDifferentCorpora) {
  int first = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    first += MixtureOrder(seed, {1, 1}).locate(0).part == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first, 50, 25);  // five standard deviations
}

TEST(MixtureOrder, RefusesWeightsThatAreNone) {
  EXPECT_THAT(error_of([] { MixtureOrder(1, {}); }), HasSubstr("at least one"));
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error_of([&] { MixtureOrder(1, {1, bad}); }), HasSubstr("weight of corpus 2"));
  }
  const double huge = std::numeric_limits<double>::max();
  EXPECT_THAT(error_of([&] { MixtureOrder(1, {huge, huge}); }), HasSubstr("add up"));
}

}  // namespace
}  // namespace atl::data
