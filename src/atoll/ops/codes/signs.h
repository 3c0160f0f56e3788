#pragma once

// Momenta as signs with a scale, of parts of a flat vector that lies in a GPU's memory: what 1-bit
// and 0/1 Adam do with them (parallel/compress/sign_exchange.h). The bits are those of a CPU's
// threads there.

#include <cstdint>
#include <span>

#include "atoll/ops/codes/signs_layout.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// A flat f32 tensor, and the column that says where a piece begins in it: kSignBegin, kSignOwned
/// or kSignHeld.
struct Placed {
  Tensor tensor;
  SignColumn column = kSignBegin;
};

/// Where the codes of pieces lie that several ranks have sent: as of DecodeCodes.
struct SentSigns {
  Tensor codes;  ///< u8
  std::int64_t byte_first = 0;
  std::int64_t sources = 0;
  std::int64_t source_bytes = 0;
};

/// Adds to the residual of each element, residual residual_share + what is added, and encodes that
/// as its sign, with the mean magnitude of the piece, in `units` of v. What this does not say is
/// left in `residual`, rounded as by compress::round_residual. v 0 masks an element: it has no
/// residual.
struct EncodeSigns {
  enum class Adds : std::uint8_t {
    kNothing,    ///< `residual` is encoded as it is
    kGradients,  ///< 1-bit Adam: beta1 times the sign in `codes` in units, and rest grads[e]
    kMoves,      ///< 0/1 Adam: (anchor[e] - values[e]) per_moved in units; of per_moved 0, m[e]
    kRanks,      ///< share times the sum of the signs in `sent`, in units
  };
  Adds adds = Adds::kNothing;
  SignUnits units;
  Tensor pieces;  ///< (pieces, kSignColumns) i64
  Tensor codes;   ///< u8
  Placed v, residual;
  float residual_share = 1;
  Tensor grads, values, anchor, m;  ///< f32, the whole flat vector
  float beta1 = 0, rest = 0;
  float per_moved = 0;
  SentSigns sent;
  float share = 0;
};
void encode_signs(Run& run, const EncodeSigns& args);

/// The step that all ranks take with the signs of the mean, s, which are 0 where v is:
///   m = s in units;  x = x - (step_size s + decay x)
///   with an anchor:  x = anchor - step_size s - decay anchor
/// `decay` is for pieces that have it. Of pieces that `m` does not have, there is none.
struct ApplySigns {
  SignUnits units;
  Tensor pieces, codes;
  Placed v, m;
  Tensor x, anchor;  ///< f32, the whole flat vector; anchor may be undefined
  float step_size = 0, decay = 0;
};
void apply_signs(Run& run, const ApplySigns& args);

/// A step of 0/1 Adam without an exchange, over whole flat vectors of f32:
///   sums:   g = grad_scale grads; m = beta1 m + rest1 g; v = beta2 v + rest2 g g;
///           x = x - (step_size m / units(v), or 0 where v is, + decay x)
///   else:   anchor = x where is_first; m = beta1 m + rest1 grads; x = x - step_size m / units(v)
///           where v is not 0
struct ZeroOneStep {
  bool sums = false, is_first = false;
  SignUnits units;
  Tensor pieces;
  Tensor x, grads, m, v, anchor;
  float beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0, grad_scale = 1;
  float step_size = 0, decay = 0;
};
void zero_one_step(Run& run, const ZeroOneStep& args);

/// to += scale from, of pieces.
void add_scaled(Run& run, const Tensor& pieces, float scale, const Placed& from, const Placed& to);

/// sums[k] = the sum of x[i] over i % numbers = k, each times a random sign (Charikar et al. 2002),
/// of as many numbers as `sums` has: a multiple of 64 that divides kSketchPartials. x: f32. Waits
/// for the GPU, as the host gets the sums.
void sketch(Run& run, const Tensor& x, std::span<float> sums);

}  // namespace atl::ops
