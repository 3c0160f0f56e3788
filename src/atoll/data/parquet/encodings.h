#pragma once

// How values and levels are written in Parquet's pages. Source: parquet-format, Encodings.md. All
// readers here give one value at a time, so that a page that says it has many takes no memory.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "atoll/data/parquet/metadata.h"

namespace atl::data {

/// A value: of numbers the bits (a float's in the low 32), of texts and of the types of a fixed
/// length the bytes. Valid until the next one is read.
struct ParquetValue {
  std::int64_t number = 0;
  std::string_view text;
};

/// Numbers of up to 32 bits in runs: RLE and bit-packed, mixed. Throws std::runtime_error where the
/// bytes end too soon.
class RleReader {
 public:
  RleReader() = default;
  /// Of so many bits a number: 0 to 32. With 0 all are 0.
  RleReader(std::string_view bytes, int bits) : bytes_(bytes), bits_(bits) {}
  std::uint32_t next() {
    if (repeats_ > 0) {
      --repeats_;
      return repeated_;
    }
    return next_packed();
  }

 private:
  std::uint32_t next_packed();
  void begin_run();

  std::string_view bytes_;
  int bits_ = 0;
  std::uint64_t repeats_ = 0;
  std::uint32_t repeated_ = 0;
  std::uint64_t packed_ = 0;  // numbers left in a run that is bit-packed
  std::uint64_t buffer_ = 0;  // bits of it that are read ahead, the next ones lowest
  int buffered_ = 0;
};

/// DELTA_BINARY_PACKED: blocks of differences. Throws std::runtime_error for damage.
class DeltaReader {
 public:
  /// `bytes` may go on behind the numbers.
  explicit DeltaReader(std::string_view bytes);
  std::uint64_t num_values() const { return total_; }
  std::int64_t next();
  /// The bytes that all numbers take.
  static std::size_t encoded_bytes(std::string_view bytes);

 private:
  void begin_block();

  std::string_view bytes_;
  std::uint64_t block_ = 0;        // values
  std::uint64_t mini_blocks_ = 0;  // in a block
  std::uint64_t total_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t min_delta_ = 0;
  std::string_view widths_;  // of the mini-blocks that are left
  std::uint64_t left_in_mini_ = 0;
  int width_ = 0;
  std::size_t bit_ = 0;  // in the mini-block, which bytes_ begins with
};

/// The values of a page, in their order.
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  /// The next value. Throws std::runtime_error behind the last one.
  virtual void next(ParquetValue& value) = 0;
};

/// A reader of `bytes` in that encoding, of a column of that type. `dictionary` is the chunk's, or
/// null, and must outlive the reader. Throws std::runtime_error naming an encoding that is unknown,
/// or that this type does not have.
std::unique_ptr<ValueReader> make_value_reader(std::int32_t encoding, const ParquetElement& column,
                                               std::string_view bytes,
                                               const std::vector<ParquetValue>* dictionary);

}  // namespace atl::data
