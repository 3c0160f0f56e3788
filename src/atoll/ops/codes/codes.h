#pragma once

// Codes of 4 and 8 bits of parts of a flat vector that lies in a GPU's memory. The bytes and what
// is residual are those of compress::encode_residual with the codecs int4 and int8, which serve a
// CPU.

#include <cstdint>

#include "atoll/ops/codes/layout.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// What is encoded of element e of a piece: x[e - x_first] + residual[e], or x[e - x_first] -
/// minus[e]. `residual` then is what the bytes do not say, rounded as by compress::round_residual.
/// A block that has a value that is not finite, or 2^126 and more, gets NaN as its scale and leaves
/// `residual` as it was.
struct EncodeCodes {
  int bits = 8;   ///< 4 or 8
  Tensor pieces;  ///< (pieces, 3) i64, see PieceColumn
  Tensor x;       ///< f32, flat
  std::int64_t x_first = 0;
  Tensor residual;  ///< f32, the whole flat vector; undefined: there is no residual
  Tensor minus;     ///< f32, the whole flat vector; undefined: nothing is taken away
  Tensor codes;     ///< u8
};
void encode_codes(Run& run, const EncodeCodes& args);

/// to[e - to_first] = the sum of what `sources` have sent of element e, in their order; with `adds`
/// that sum is added to what is there. The code of a piece from source s begins at
/// s source_bytes + its byte - byte_first. Blocks that cannot be encode_codes()'s, and those with
/// NaN as their scale, make the sum NaN: on a CPU the first kind is an error.
struct DecodeCodes {
  int bits = 8;
  Tensor pieces;  ///< (pieces, 3) i64
  Tensor codes;   ///< u8
  std::int64_t byte_first = 0;
  std::int64_t sources = 1;
  std::int64_t source_bytes = 0;
  bool adds = false;
  Tensor to;  ///< f32, flat
  std::int64_t to_first = 0;
};
void decode_codes(Run& run, const DecodeCodes& args);

}  // namespace atl::ops
