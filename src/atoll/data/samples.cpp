#include "atoll/data/samples.h"

#include "atoll/base/check.h"

namespace atl::data {

void SampleSource::fill(std::int64_t sample, const RowView& row, RowScratch& scratch) const {
  const TokenSource& source = cut(sample, scratch);
  fill_row(source, row, scratch);
}

std::int64_t SampleSource::count_targets(std::int64_t sample, RowScratch& scratch) const {
  const TokenSource& source = cut(sample, scratch);
  return data::count_targets(source, scratch);
}

std::string SampleSource::describe(std::int64_t sample) const {
  RowScratch scratch;
  const TokenSource& source = cut(sample, scratch);
  std::string places;
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < scratch.segments.size(); ++i) {
    const Segment& segment = scratch.segments[i];
    if (i == kShown) {
      places += fmt::format(" and {} more pieces", scratch.segments.size() - kShown);
      break;
    }
    places += fmt::format("{}{} to {}", i == 0 ? "tokens " : ", ", segment.first,
                          segment.first + segment.size - 1);
  }
  return fmt::format("{} of {}", places, source.name());
}

WindowSamples::WindowSamples(const TokenSource& source, const Sampler& sampler, Packing packing)
    : source_(source), sampler_(sampler), packing_(packing) {
  ATOLL_CHECK(packing != Packing::kDocuments, "documents are not windows");
  ATOLL_CHECK_EQ(source.num_tokens(), sampler.num_tokens());
}

const TokenSource& WindowSamples::cut(std::int64_t sample, RowScratch& scratch) const {
  cut_window(source_, sampler_.sample(sample).first_token, sampler_.context(), packing_, scratch);
  return source_;
}

}  // namespace atl::data
