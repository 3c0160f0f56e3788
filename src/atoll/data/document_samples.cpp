#include "atoll/data/document_samples.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"

namespace atl::data {

namespace {

// What the second name of an epoch's stream says; 0 is the order of windows.
constexpr std::uint64_t kDocumentOrder = 1;
constexpr std::uint64_t kRowOrder = 2;

Permutation permutation(std::uint64_t seed, std::int64_t epoch, std::uint64_t what,
                        std::int64_t size) {
  const RngStream stream(seed, RngPurpose::kShuffle, static_cast<std::uint64_t>(epoch), what);
  return {stream, static_cast<std::uint64_t>(size)};
}

}  // namespace

DocumentTable::DocumentTable(const TokenSource& source) : bounds_(source.document_starts()) {
  if (source.num_tokens() > 0 && (bounds_.empty() || bounds_.front() > 0)) {
    bounds_.insert(bounds_.begin(), 0);
  }
  bounds_.push_back(source.num_tokens());
}

PackedRows::PackedRows(const DocumentTable& documents, std::int64_t context, const Order& order)
    : context_(context) {
  std::int64_t used = context;  // no row is open yet
  for (std::int64_t place = 0; place < documents.size(); ++place) {
    const std::int64_t document = order(place);
    const std::int64_t size = documents.end(document) - documents.begin(document);
    for (std::int64_t offset = 0; offset < size; offset += context) {
      const std::int64_t piece = std::min(context, size - offset);
      if (piece > context - used) {
        rows_.push_back({place, offset});
        used = 0;
      }
      used += piece;
    }
  }
}

void PackedRows::cut(std::int64_t row, const DocumentTable& documents, const Order& order,
                     std::vector<Segment>& segments) const {
  segments.clear();
  ATOLL_CHECK(0 <= row && row < size(), "row {} of {}", row, size());
  const bool last = row + 1 == size();
  const Place end = last ? Place{documents.size(), 0} : rows_[static_cast<std::size_t>(row) + 1];
  Place at = rows_[static_cast<std::size_t>(row)];
  while (at.place < end.place || (at.place == end.place && at.offset < end.offset)) {
    const std::int64_t document = order(at.place);
    const std::int64_t first = documents.begin(document) + at.offset;
    const std::int64_t left = documents.end(document) - first;
    segments.push_back({first, std::min(left, context_), left > context_});
    if (left > context_) {
      at.offset += context_;
    } else {
      at = {at.place + 1, 0};
    }
  }
}

struct DocumentSamples::Epoch {
  Epoch(const DocumentTable& documents, std::uint64_t seed, std::int64_t context,
        std::int64_t number)
      : number(number),
        order([documents = permutation(seed, number, kDocumentOrder, documents.size())](
                  std::int64_t place) {
          return static_cast<std::int64_t>(documents(static_cast<std::uint64_t>(place)));
        }),
        rows(documents, context, order),
        row_order(permutation(seed, number, kRowOrder, rows.size())) {}

  std::int64_t number;
  PackedRows::Order order;
  PackedRows rows;
  Permutation row_order;
};

DocumentSamples::DocumentSamples(const TokenSource& source, std::uint64_t seed,
                                 std::int64_t context)
    : source_(source), seed_(seed), context_(context), documents_(source) {
  if (context < 1) throw user_error("a context must be at least 1 token, not {}", context);
  if (source.num_tokens() < 2) {
    throw user_error(
        "{} has {} tokens and packing documents needs at least 2; give more text (data.text)",
        source.name(), source.num_tokens());
  }
}

std::shared_ptr<const DocumentSamples::Epoch> DocumentSamples::find_epoch(
    std::int64_t number) const {
  std::shared_ptr<const Epoch>& slot = cached_[number % 2];
  if (!slot || slot->number != number) {
    slot.reset();  // first: an epoch may be large
    slot = std::make_shared<const Epoch>(documents_, seed_, context_, number);
  }
  return slot;
}

void DocumentSamples::count_rows_to(std::int64_t sample) const {
  while (ends_.empty() || ends_.back() <= sample) {
    const std::int64_t before = ends_.empty() ? 0 : ends_.back();
    const auto number = static_cast<std::int64_t>(ends_.size());
    ends_.push_back(before + find_epoch(number)->rows.size());
  }
}

std::int64_t DocumentSamples::num_rows(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  return find_epoch(epoch)->rows.size();
}

const TokenSource& DocumentSamples::cut(std::int64_t sample, RowScratch& scratch) const {
  ATOLL_CHECK(sample >= 0, "sample {}", sample);
  std::shared_ptr<const Epoch> epoch;
  std::int64_t place = sample;
  {
    const std::lock_guard lock(mutex_);
    count_rows_to(sample);
    const auto number = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
    if (number > 0) place -= ends_[static_cast<std::size_t>(number) - 1];
    epoch = find_epoch(number);
  }
  const std::uint64_t row = epoch->row_order(static_cast<std::uint64_t>(place));
  epoch->rows.cut(static_cast<std::int64_t>(row), documents_, epoch->order, scratch.segments);
  return source_;
}

}  // namespace atl::data
