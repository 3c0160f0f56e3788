#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/compress/codec.h"
#include "atoll/ops/run.h"
#include "atoll/parallel/compress/code_pieces.h"

namespace atl::parallel {

/// Encodes and decodes pieces of a flat vector, in blocks that have a scale each, as
/// compress::encode_residual and decode_residual do. Threads work in a CPU's memory and kernels
/// (ops/codes/codes.h) in a GPU's, with the same bytes. So ranks with GPUs exchange only codes.
class PieceCoder {
 public:
  /// `codec`: "int4" or "int8". `layout` must outlive this.
  PieceCoder(const FlatLayout& layout, const std::string& codec);

  const std::vector<BucketCodes>& buckets() const { return codes_; }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Pieces [first, end) of a bucket.
  struct Pieces {
    std::size_t bucket = 0, first = 0, end = 0;
  };
  /// All pieces of a bucket, and the pieces of a rank's part of it.
  Pieces all(std::size_t bucket) const { return {bucket, 0, codes_[bucket].pieces.size()}; }
  Pieces part(std::size_t bucket, std::size_t rank) const {
    const std::vector<std::size_t>& firsts = codes_[bucket].first_of_parts;
    return {bucket, firsts[rank], firsts[rank + 1]};
  }

  /// The values to encode. For element e of the flat vector: x[e - x_first] + residual[e], or
  /// x[e - x_first] - minus[e].
  struct Values {
    Tensor x;
    std::int64_t x_first = 0;
    Tensor residual;  ///< of the whole flat vector; becomes the rounding errors. Undefined: those
                      ///< are lost
    Tensor
        minus;  ///< of the whole flat vector; undefined: nothing is subtracted. Not with `residual`
  };
  /// Writes the codes of the pieces to their places in `codes`, the bytes of the bucket.
  void encode(Run& run, const Pieces& pieces, const Values& values, const Tensor& codes) const;

  /// Decodes the codes of several sources: to[e - to_first] becomes the sum for element e.
  struct Sum {
    Tensor codes;                   ///< of one source after the other
    std::int64_t byte_first = 0;    ///< codes[0] of a source is this byte of the bucket
    std::int64_t sources = 1;       ///< ranks that have sent codes; summed in this order
    std::int64_t source_bytes = 0;  ///< bytes of each source in `codes`
    bool adds = false;              ///< to the content of `to`
    Tensor to;
    std::int64_t to_first = 0;
    bool alone = false;  ///< on this thread, without the run's threads
  };
  void decode(Run& run, const Pieces& pieces, const Sum& sum) const;

 private:
  Tensor table(const Pieces& pieces) const;

  int bits_;
  std::unique_ptr<compress::Codec> codec_;
  std::vector<BucketCodes> codes_;
  std::vector<std::int64_t> rows_;  // by bucket: its first row in the table; then the end
  int table_request_ = -1;
  Tensor table_;  // (pieces, ops::kPieceColumns), for kernels
};

}  // namespace atl::parallel
