#include "atoll/data/samples.h"

#include "atoll/data/document_samples.h"
#include "atoll/data/pairs/pair_samples.h"

namespace atl::data {

std::unique_ptr<SampleSource> make_samples(const TokenSource& source, std::uint64_t seed,
                                           std::int64_t context, Packing packing) {
  if (packing == Packing::kDocuments) {
    return std::make_unique<DocumentSamples>(source, seed, context);
  }
  if (packing == Packing::kPairs) {
    return std::make_unique<PairSamples>(source, seed, context, PairSamples::Order::kShuffled);
  }
  return std::make_unique<WindowSamples>(source, Sampler(seed, source.num_tokens(), context),
                                         packing);
}

}  // namespace atl::data
