#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/compress/codec.h"
#include "atoll/ops/run.h"
#include "atoll/parallel/compress/code_pieces.h"

namespace atl::parallel {

/// Encodes and decodes pieces of a flat vector in blocks with a scale, as compress::encode_residual
/// and decode_residual do: of a CPU's memory with its threads, of a GPU's with kernels
/// (ops/codes/codes.h), in the same bytes. Between GPUs only codes move.
class PieceCoder {
 public:
  /// `codec`: int4 or int8. `layout` must outlive this.
  PieceCoder(const FlatLayout& layout, const std::string& codec);

  const std::vector<BucketCodes>& buckets() const { return codes_; }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Pieces [first, end) of a bucket.
  struct Pieces {
    std::size_t bucket = 0, first = 0, end = 0;
  };
  /// All of a bucket, and those of a rank's part.
  Pieces all(std::size_t bucket) const { return {bucket, 0, codes_[bucket].pieces.size()}; }
  Pieces part(std::size_t bucket, std::size_t rank) const {
    const std::vector<std::size_t>& firsts = codes_[bucket].first_of_parts;
    return {bucket, firsts[rank], firsts[rank + 1]};
  }

  /// What is encoded of element e: x[e - x_first] and its residual, or less `minus` of it.
  struct Values {
    Tensor x;
    std::int64_t x_first = 0;
    Tensor residual;  ///< of the whole flat vector; undefined: there is no residual, what is not
                      ///< said is lost
    Tensor
        minus;  ///< of the whole flat vector; undefined: nothing is taken away. Not with `residual`
  };
  /// Writes the pieces' codes to their places among the bucket's.
  void encode(Run& run, const Pieces& pieces, const Values& values, const Tensor& codes) const;

  /// Sums of codes: to[e - to_first] of element e.
  struct Sum {
    Tensor codes;
    std::int64_t byte_first = 0;    ///< the place among the bucket's codes of the first source's
    std::int64_t sources = 1;       ///< in whose order it is made
    std::int64_t source_bytes = 0;  ///< from one source's to the next one's
    bool adds = false;              ///< to what is there
    Tensor to;
    std::int64_t to_first = 0;
    bool alone = false;  ///< not in the run's threads
  };
  void decode(Run& run, const Pieces& pieces, const Sum& sum) const;

 private:
  Tensor table(const Pieces& pieces) const;

  int bits_;
  std::unique_ptr<compress::Codec> codec_;
  std::vector<BucketCodes> codes_;
  std::vector<std::int64_t> rows_;  // of each bucket's first piece in the table, and of the end
  int table_request_ = -1;
  Tensor table_;  // (pieces, ops::kPieceColumns), for kernels
};

}  // namespace atl::parallel
