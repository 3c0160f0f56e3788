#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "atoll/data/samples.h"

namespace atl::data {

/// Where the documents of a source lie. Memory: 8 bytes a document.
class DocumentTable {
 public:
  /// Takes what lies before the first start for a document too.
  explicit DocumentTable(const TokenSource& source);

  std::int64_t size() const { return static_cast<std::int64_t>(bounds_.size()) - 1; }
  std::int64_t begin(std::int64_t document) const { return bounds_.at(std::size_t(document)); }
  std::int64_t end(std::int64_t document) const { return bounds_.at(std::size_t(document) + 1); }

 private:
  std::vector<std::int64_t> bounds_;  // size() + 1
};

/// Documents packed into rows by next-fit: each goes into the open row when it fits, else opens the
/// next; one longer than a row is cut into pieces of a whole row and a rest. Every token is an
/// input of exactly one row. Memory: 16 bytes a row.
class PackedRows {
 public:
  /// The order of documents: the one in place 0, 1, ..., size - 1.
  using Order = std::function<std::int64_t(std::int64_t place)>;
  PackedRows(const DocumentTable& documents, std::int64_t context, const Order& order);

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Puts the segments of a row into `segments`. `documents` and `order` as in the constructor.
  void cut(std::int64_t row, const DocumentTable& documents, const Order& order,
           std::vector<Segment>& segments) const;

 private:
  struct Place {
    std::int64_t place;   // in the order of documents
    std::int64_t offset;  // token of that document
  };
  std::int64_t context_;
  std::vector<Place> rows_;  // where each begins
};

/// Packing kDocuments: in each epoch all documents in a new order, packed into rows, and the rows
/// in a new order. As the number of rows differs by epoch, the first use of epoch e packs the
/// epochs before it too (some 0.5 us a document).
class DocumentSamples final : public SampleSource {
 public:
  /// `source` must outlive this. Throws Error(kUser) when it has no tokens.
  DocumentSamples(const TokenSource& source, std::uint64_t seed, std::int64_t context);

  std::int64_t context() const override { return context_; }
  bool has_documents() const override { return true; }
  bool may_ignore() const override { return true; }
  const TokenSource& cut(std::int64_t sample, RowScratch& scratch) const override;
  std::int64_t samples_in(std::int64_t epoch) const override { return num_rows(epoch); }
  std::int64_t num_rows(std::int64_t epoch) const;

 private:
  struct Epoch;
  // Shared: a thread may use an epoch that another has replaced in the cache.
  std::shared_ptr<const Epoch> find_epoch(std::int64_t number) const;  // the caller holds mutex_
  void count_rows_to(std::int64_t sample) const;                       // likewise

  const TokenSource& source_;
  std::uint64_t seed_;
  std::int64_t context_;
  DocumentTable documents_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> ends_;          // samples up to the end of each epoch
  mutable std::shared_ptr<const Epoch> cached_[2];  // by the parity of its number
};

}  // namespace atl::data
