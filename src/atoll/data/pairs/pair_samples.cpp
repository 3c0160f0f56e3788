#include "atoll/data/pairs/pair_samples.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/rng.h"

namespace atl::data {

namespace {

// What the second name of an epoch's stream says; windows have 0, documents 1, rows 2.
constexpr std::uint64_t kPairOrder = 3;

Segment first_part(const DocumentTable& documents, std::int64_t document, std::int64_t context) {
  const std::int64_t begin = documents.begin(document);
  const std::int64_t size = documents.end(document) - begin;
  return {begin, std::min(size, context), size > context};
}

}  // namespace

PairSamples::PairSamples(const TokenSource& source, std::uint64_t seed, std::int64_t context,
                         Order order)
    : source_(source), seed_(seed), context_(context), order_(order), documents_(source) {
  if (context < 1) throw user_error("a context must be at least 1 token, not {}", context);
  if (documents_.size() % 2 != 0 || !source.has_mask()) {
    throw user_error(
        "{} has no pairs of answers; make it of rows with chosen and rejected answers, or labels",
        source.name());
  }
  find_pairs();
}

void PairSamples::find_pairs() {
  std::int64_t first_cut = -1;
  const std::int64_t all = documents_.size() / 2;
  RowScratch scratch;
  for (std::int64_t pair = 0; pair < all; ++pair) {
    bool has_both = true;
    for (const std::int64_t document : {2 * pair, 2 * pair + 1}) {
      scratch.segments = {first_part(documents_, document, context_)};
      has_both = has_both && data::count_targets(source_, scratch) > 0;
    }
    if (has_both) pairs_.push_back(pair);
    if (!has_both && first_cut < 0) first_cut = pair;
  }
  if (first_cut < 0) return;
  if (pairs_.empty()) {
    throw user_error(
        "no pair of {} has both answers within {}: raise train.context, or give shorter prompts",
        source_.name(), counted(context_, "token"));
  }
  log::warning(
      "{} of {} in {} are left out, for a prompt fills all of train.context = {}: first pair {}",
      format_count(all - num_pairs()), counted(all, "pair"), source_.name(), context_,
      first_cut + 1);
}

std::int64_t PairSamples::document_of(std::int64_t sample) const {
  ATOLL_CHECK(sample >= 0 && num_pairs() > 0, "sample {} of {} pairs", sample, num_pairs());
  const std::int64_t epoch = sample / samples_in(0);
  std::int64_t place = sample % samples_in(0) / 2;
  if (order_ == Order::kShuffled) {
    const RngStream stream(seed_, RngPurpose::kShuffle, static_cast<std::uint64_t>(epoch),
                           kPairOrder);
    const Permutation permutation(stream, static_cast<std::uint64_t>(num_pairs()));
    place = static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(place)));
  }
  return 2 * pairs_[static_cast<std::size_t>(place)] + sample % 2;
}

bool PairSamples::is_marked(std::int64_t document) const {
  std::uint8_t mark = 0;
  source_.copy_mask(documents_.begin(document), std::span(&mark, 1));
  return mark != 0;
}

const TokenSource& PairSamples::cut(std::int64_t sample, RowScratch& scratch) const {
  scratch.segments = {first_part(documents_, document_of(sample), context_)};
  return source_;
}

std::int64_t PairSamples::count_targets(std::int64_t sample, RowScratch& /*scratch*/) const {
  return sample % 2 == 0 ? 1 : 0;
}

void mark_document(bool mark, std::vector<std::uint8_t>& mask) {
  ATOLL_CHECK(!mask.empty());
  mask.front() = mark ? 1 : 0;
}

}  // namespace atl::data
