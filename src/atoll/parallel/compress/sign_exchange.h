#pragma once

// A mean over ranks of which each sends a bit an element, and what the bits do not say.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/codes/signs.h"
#include "atoll/ops/run.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// The name of the vector of owners' residuals in a checkpoint: each element is its owner's.
inline constexpr const char* kResidualSum = "owed_sum";

using ops::SignUnits;
/// Those of a second moment after so many updates.
SignUnits sign_units(double beta2, double eps, std::int64_t updates);

/// At most kBlockElements elements whose signs have one scale, from a place where no part of a rank
/// ends within.
struct SignPiece {
  std::int64_t begin = 0;  ///< element of the flat vector
  std::int64_t count = 0;
  std::int64_t byte = 0;   ///< where its code begins
  std::int64_t owned = 0;  ///< where its elements begin among those of its owner
  bool decay = false;      ///< Does weight decay apply?
};

/// The signs of a piece times their scale.
class Signs {
 public:
  explicit Signs(const std::byte* code) : bits_(code + sizeof(float)) {
    std::memcpy(&scale_, code, sizeof(float));
  }
  float operator()(std::size_t i) const {
    const auto bit = std::to_integer<unsigned>(bits_[i / 8]) >> (i % 8) & 1U;
    return bit != 0 ? -scale_ : scale_;
  }

 private:
  const std::byte* bits_;
  float scale_ = 0;
};

/// Writes momenta as their mean magnitude and signs, in `units` of the second moment `v`, and
/// leaves of each what they do not say (compress::round_residual). `v` 0 masks an element: it never
/// had a gradient. `out`: 4 bytes, and a bit an element.
void encode_signs(std::span<float> momenta, const float* v, const SignUnits& units, std::byte* out);

/// Writes momenta that were made from signs, as Signs times units.of(v), as the signs that give
/// these bits again.
void recover_signs(std::span<const float> momenta, const float* v, const SignUnits& units,
                   std::byte* out);

/// The mean over ranks with error feedback both ways (Tang et al. 2021, arXiv 2102.02888, section
/// 4): each rank sends the signs of all elements to the ranks that own them, and an owner those of
/// the mean to all. Both keep what their signs do not say. Owners have the parts of the layout's
/// buckets, as in ZeRO. A rank sends 2 (N - 1)/N bits an element, and 4 bytes for each piece.
class SignExchange {
 public:
  /// f32. `layout`, of the ranks of a group, must outlive this.
  SignExchange(const FlatLayout& layout, int rank);

  void request(MemoryPlan& plan);
  /// `held`: of each piece, where its moments begin among those that this rank has; -1: it has
  /// not. Empty: moments are of the whole flat vector.
  void bind(const Arena& arena, std::span<const std::int64_t> held = {});
  void connect(comm::Group& group) { group_ = &group; }
  comm::Group& group() const;

  /// In the order of owners, and for each in that of the flat vector.
  std::span<const SignPiece> pieces() const { return pieces_; }
  /// Those of this rank.
  std::span<const SignPiece> owned() const;
  /// Where a piece's code lies: of this rank's own values, and after average() of the mean.
  std::byte* code(const SignPiece& piece) const {
    return static_cast<std::byte*>(sent_.raw()) + piece.byte;
  }
  Signs signs(const SignPiece& piece) const { return Signs(code(piece)); }
  /// The residual of a piece on this rank, and the residual of the owner of one.
  std::span<float> residual(const SignPiece& piece) const;
  std::span<float> residual_sum(const SignPiece& piece) const;

  /// The second moments of a piece.
  using Moments = std::function<const float*(const SignPiece& piece)>;
  /// Adds what this rank has of a piece to its residual. signs(piece) are still the last.
  using Add = std::function<void(const SignPiece& piece, std::span<float> residual)>;
  /// Makes signs() the mean over ranks of what `add` has added, and of the residual, times
  /// `residual_share`. Every rank must call it.
  void average(Run& run, const SignUnits& units, const Moments& moments, float residual_share,
               const Add& add);
  /// The same of a GPU's memory, with kernels: `added` says what is added, v, units and
  /// residual_share.
  void average(Run& run, ops::EncodeSigns added);
  /// Whether memory is a GPU's.
  bool is_on_gpu() const { return is_on_gpu_; }
  /// For ops/codes/signs.h: all pieces or those of this rank, their codes, and the residual of
  /// each.
  Tensor table() const { return table_; }
  Tensor owned_table() const;
  Tensor codes() const { return sent_; }
  ops::Placed residual_sums() const { return {residual_sum_, ops::kSignOwned}; }
  /// Gives all ranks the codes of the pieces that each owns. Every rank must call it.
  void gather();

  /// What a checkpoint holds of it.
  std::vector<optim::StateTensor> state() const;

 private:
  void sum_received(Run& run, const SignUnits& units, const Moments& moments, float residual_share);

  const FlatLayout& layout_;
  std::size_t rank_;
  comm::Group* group_ = nullptr;
  std::vector<SignPiece> pieces_;
  std::vector<std::size_t> piece_parts_;  // of rank r: pieces [r, r + 1)
  std::vector<std::int64_t> byte_parts_, received_parts_;
  std::int64_t num_owned_ = 0;  // elements
  bool is_on_gpu_ = false;
  int table_request_ = -1;
  Tensor table_;  // (pieces, ops::kSignColumns)
  int residual_request_ = -1, residual_sum_request_ = -1, codes_request_ = -1;
  Tensor residual_, residual_sum_;
  Tensor sent_, received_;
};

/// The norm of the sum over a group's ranks of `grads` (each rank's own, f32), from a sum of
/// sketches of so many numbers, a multiple of 64 (Charikar et al. 2002): off by 1/sqrt(2 numbers)
/// of it (one standard deviation). Infinite or NaN when an element is. Every rank must call it.
double sketched_norm(Run& run, comm::Group& group, const Tensor& grads, std::int64_t numbers);

}  // namespace atl::parallel
