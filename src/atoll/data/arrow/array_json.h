#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/data/arrow/batch.h"

namespace atl::data {

/// Values of a dictionary, in the batches that they came in.
using ArrowDictionary = std::vector<ArrowBatch>;

/// The dictionaries of a file, by number.
using ArrowDictionaries = std::map<std::int64_t, ArrowDictionary>;

/// Writes values of arrays as JSON, as open_parquet() writes its values.
class ArrowJson {
 public:
  /// All must outlive this. `out` is appended to.
  ArrowJson(const ArrowDictionaries& dictionaries, std::string& out)
      : dictionaries_(dictionaries), out_(out) {}

  /// Appends a value. Throws std::runtime_error for damage, and for a row of more than 256 MiB.
  void write(const ArrowArray& array, std::int64_t at);

 private:
  bool is_null(const ArrowArray& array, std::int64_t at) const;
  void write_place(const ArrowArray& array, std::int64_t at);
  void write_number(const ArrowArray& array, std::int64_t at);
  void write_struct(const ArrowArray& array, std::int64_t at);
  void write_list(const ArrowArray& array, std::int64_t begin, std::int64_t size);
  void write_map(const ArrowArray& array, std::int64_t begin, std::int64_t size);

  const ArrowDictionaries& dictionaries_;
  std::string& out_;
  int depth_ = 0;
};

}  // namespace atl::data
