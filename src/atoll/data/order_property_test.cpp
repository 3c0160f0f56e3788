// What holds for every corpus, seed and layout, tried on random ones.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "atoll/data/document_samples.h"
#include "atoll/data/loader.h"
#include "atoll/data/mixture.h"
#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using testing::counting;

using Tokens = std::vector<std::int32_t>;

TokenVector random_source() {
  const auto size = *rc::gen::inRange<std::int64_t>(2, 300);
  std::set<std::int64_t> starts;
  for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
    starts.insert(*rc::gen::inRange<std::int64_t>(0, size));
  }
  std::vector<std::uint8_t> mask;
  if (*rc::gen::arbitrary<bool>()) {
    mask.resize(static_cast<std::size_t>(size), 1);
    const int period = *rc::gen::inRange(2, 9);
    for (std::size_t i = 0; i < mask.size(); i += static_cast<std::size_t>(period)) mask[i] = 0;
  }
  return {"random", counting(size), {starts.begin(), starts.end()}, mask};
}

Packing random_packing() {
  return *rc::gen::element(Packing::kStream, Packing::kMasked, Packing::kDocuments);
}

// A batch as a list of rows, each with everything in it.
std::vector<Tokens> rows_of(const Batch& batch) {
  std::vector<Tokens> rows;
  const std::int64_t T = batch.tokens.shape().dim(1);
  for (std::int64_t b = 0; b < batch.tokens.shape().dim(0); ++b) {
    Tokens row;
    for (const Tensor& tensor : {batch.tokens, batch.targets, batch.positions}) {
      if (!tensor.defined()) continue;
      const auto* data = tensor.data<std::int32_t>() + b * T;
      row.insert(row.end(), data, data + T);
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<Tokens> read(const SampleSource& samples, const LoaderOptions& options,
                         std::int64_t num_batches) {
  Loader loader(samples, options);
  std::vector<Tokens> rows;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    for (Tokens& row : rows_of(loader.next())) rows.push_back(std::move(row));
  }
  return rows;
}

RC_GTEST_PROP(SamplerProperty, EpochIsAPermutationOfItsWindows, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto context = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto num_tokens = context + *rc::gen::inRange<std::int64_t>(1, 2000);
  const Sampler sampler(seed, num_tokens, context);
  const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1000);
  std::set<std::int64_t> windows;
  for (std::int64_t i = 0; i < sampler.num_windows(); ++i) {
    const SampleRef ref = sampler.sample(epoch * sampler.num_windows() + i);
    RC_ASSERT(ref.epoch == epoch);
    RC_ASSERT(ref.first_token >= 0 && ref.first_token + context + 1 <= num_tokens);
    windows.insert(ref.window);
  }
  RC_ASSERT(static_cast<std::int64_t>(windows.size()) == sampler.num_windows());
  RC_ASSERT(*windows.begin() == 0 && *windows.rbegin() == sampler.num_windows() - 1);
}

RC_GTEST_PROP(PackingProperty, EpochOfDocumentsTakesEveryTokenOnce, ()) {
  const TokenVector source = random_source();
  const auto context = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const DocumentSamples samples(source, seed, context);
  std::vector<std::int64_t> starts = source.document_starts();
  RowScratch scratch;
  std::int64_t sample = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Tokens inputs;
    std::vector<std::int64_t> targets;
    for (std::int64_t row = 0; row < samples.num_rows(epoch); ++row) {
      samples.cut(sample++, scratch);
      std::int64_t used = 0;
      for (const Segment& segment : scratch.segments) {
        used += segment.size;
        for (std::int64_t i = 0; i < segment.size; ++i) {
          inputs.push_back(static_cast<std::int32_t>(segment.first + i));
          if (i + 1 < segment.size || segment.continues) targets.push_back(segment.first + i + 1);
        }
      }
      RC_ASSERT(used > 0 && used <= context);
    }
    std::sort(inputs.begin(), inputs.end());
    RC_ASSERT(inputs == counting(source.num_tokens()));
    // And each token but the first of a document is a target once.
    std::sort(targets.begin(), targets.end());
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 1; i < source.num_tokens(); ++i) {
      if (!std::binary_search(starts.begin(), starts.end(), i)) expected.push_back(i);
    }
    RC_ASSERT(targets == expected);
  }
}

RC_GTEST_PROP(LoaderProperty, RanksMicroBatchesPrefetchAndRestartsChangeNoRow, ()) {
  const TokenVector source = random_source();
  const auto context =
      *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(30, source.num_tokens()));
  const auto samples =
      make_samples(source, *rc::gen::arbitrary<std::uint64_t>(), context, random_packing());
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 5);
  const auto micro_batch = *rc::gen::inRange<std::int64_t>(1, 4);
  const std::int64_t global_batch = ranks * micro_batch * *rc::gen::inRange<std::int64_t>(1, 4);
  const auto first_step = *rc::gen::inRange<std::int64_t>(0, 20);
  constexpr std::int64_t kSteps = 3;
  // The whole order, from its beginning, row by row on one rank.
  const auto all_targets = [&] {
    RowScratch scratch;
    for (std::int64_t step = 0; step < first_step + kSteps; ++step) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < global_batch; ++i) {
        count += samples->count_targets(step * global_batch + i, scratch);
      }
      if (count == 0) return false;
    }
    return true;
  };
  RC_PRE(all_targets());  // a step without any is an error, tested elsewhere
  const std::vector<Tokens> serial =
      read(*samples, {.micro_batch = 1, .global_batch = global_batch},
           (first_step + kSteps) * global_batch);
  const std::int64_t per_step = global_batch / (ranks * micro_batch);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    LoaderOptions options = {micro_batch, global_batch, {}, first_step, 0, *rc::gen::inRange(1, 6)};
    for (std::int64_t i = 0; i < per_step; ++i) options.micro_batches.push_back(i * ranks + rank);
    const std::vector<Tokens> part = read(*samples, options, kSteps * per_step);
    const std::int64_t rows = per_step * micro_batch;  // of a step on this rank
    for (std::int64_t i = 0; i < kSteps * rows; ++i) {
      const std::int64_t round = i % rows / micro_batch;
      const std::int64_t global = (first_step + i / rows) * global_batch +
                                  (round * ranks + rank) * micro_batch + i % micro_batch;
      RC_ASSERT(part[static_cast<std::size_t>(i)] == serial[static_cast<std::size_t>(global)]);
    }
  }
}

RC_GTEST_PROP(MixtureProperty, EveryPrefixHoldsTheWeightsAndEachCorpusIsReadInOrder, ()) {
  const auto k = *rc::gen::inRange<std::size_t>(1, 12);
  std::vector<double> weights;
  for (std::size_t i = 0; i < k; ++i) weights.push_back(*rc::gen::inRange(1, 100) / 7.0);
  const MixtureOrder order(*rc::gen::arbitrary<std::uint64_t>(), weights);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double bound = std::ceil(std::log2(static_cast<double>(k))) + 1e-6;
  std::vector<std::int64_t> taken(k, 0);
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    const MixtureRef ref = order.locate(sample);
    RC_ASSERT(ref.part < k);
    RC_ASSERT(ref.sample == taken[ref.part]++);
    for (std::size_t i = 0; i < k; ++i) {
      const double share = static_cast<double>(sample + 1) * weights[i] / total;
      RC_ASSERT(std::abs(static_cast<double>(taken[i]) - share) <= bound);
    }
  }
}

}  // namespace
}  // namespace atl::data
