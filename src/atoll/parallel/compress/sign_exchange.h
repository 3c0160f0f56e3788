#pragma once

// A mean over ranks with one bit an element on the wire, and with error feedback.

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

/// The name in checkpoints of the vector of the owners' residuals. Each rank holds the elements
/// that it owns.
inline constexpr const char* kResidualSum = "owed_sum";

using ops::SignUnits;
/// The units of a second moment after `updates` updates of it, with its bias correction.
SignUnits sign_units(double beta2, double eps, std::int64_t updates);

/// At most kBlockElements elements, whose signs have one scale. A rank's part never ends within a
/// piece.
struct SignPiece {
  std::int64_t begin = 0;  ///< element of the flat vector
  std::int64_t count = 0;
  std::int64_t byte = 0;   ///< where its code begins among all codes
  std::int64_t owned = 0;  ///< where its elements begin among all elements of its owner
  bool decay = false;      ///< Does weight decay apply?
};

/// The decoded values of a piece: element i is its sign times the scale.
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

/// Encodes momenta, divided by units.of(v), as their signs and their mean magnitude. Overwrites
/// each momentum with its rounding error, rounded by compress::round_residual. An element whose
/// second moment `v` is 0 never had a gradient: it is left out of the mean, and its error is 0.
/// `out`: 4 bytes of scale and a bit an element.
void encode_signs(std::span<float> momenta, const float* v, const SignUnits& units, std::byte* out);

/// Encodes momenta that were made from signs, each as its value of Signs times units.of(v). The
/// result decodes to exactly the same bits.
void recover_signs(std::span<const float> momenta, const float* v, const SignUnits& units,
                   std::byte* out);

/// A mean over ranks with error feedback at both ends (Tang et al. 2021, arXiv 2102.02888, section
/// 4). Each rank sends the signs of all elements to the ranks that own them; each owner computes
/// the mean, and sends its signs to all ranks. Both keep their rounding errors as residuals. A rank
/// owns its part of each bucket of the layout, as with ZeRO. Each of N ranks sends 2 (N - 1)/N
/// times the size of all codes: a bit an element and 4 bytes a piece.
class SignExchange {
 public:
  /// Values must be f32. `layout` is that of the ranks of the group and must outlive this. `rank`:
  /// this rank.
  SignExchange(const FlatLayout& layout, int rank);

  void request(MemoryPlan& plan);
  /// held[i]: where the moments of piece i begin among the moments that this rank has; -1: it has
  /// none of them. Empty: this rank has the moments of the whole flat vector.
  void bind(const Arena& arena, std::span<const std::int64_t> held = {});
  void connect(comm::Group& group) { group_ = &group; }
  comm::Group& group() const;

  /// All pieces: by owner, and for each owner in the order of the flat vector.
  std::span<const SignPiece> pieces() const { return pieces_; }
  /// The pieces that this rank owns.
  std::span<const SignPiece> owned() const;
  /// The code of a piece: after average() that of the mean. Only in a CPU's memory.
  std::byte* code(const SignPiece& piece) const {
    return static_cast<std::byte*>(sent_.raw()) + piece.byte;
  }
  Signs signs(const SignPiece& piece) const { return Signs(code(piece)); }
  /// A piece of this rank's residual as a sender, and, for a piece that this rank owns, of its
  /// residual as the owner. Only in a CPU's memory.
  std::span<float> residual(const SignPiece& piece) const;
  std::span<float> residual_sum(const SignPiece& piece) const;

  /// Returns the second moments of a piece.
  using Moments = std::function<const float*(const SignPiece& piece)>;
  /// Adds this rank's values of a piece to its residual. signs(piece) are still those of the last
  /// exchange.
  using Add = std::function<void(const SignPiece& piece, std::span<float> residual)>;
  /// Computes the mean over ranks of the values that `add` adds to the residual, which is
  /// multiplied by `residual_share` first. signs() are then the signs of the mean, on all ranks.
  /// Every rank must call it; returns when the exchange is done.
  void average(Run& run, const SignUnits& units, const Moments& moments, float residual_share,
               const Add& add);
  /// The same in a GPU's memory, with kernels. `added` says which values are added
  /// (EncodeSigns::adds), and has their tensors, v, units and residual_share.
  void average(Run& run, ops::EncodeSigns added);
  /// Whether the memory is a GPU's.
  bool is_on_gpu() const { return is_on_gpu_; }
  /// For ops/codes/signs.h: the tables of all pieces and of the pieces that this rank owns, the
  /// codes of all pieces, and this rank's residual as the owner.
  Tensor table() const { return table_; }
  Tensor owned_table() const;
  Tensor codes() const { return sent_; }
  ops::Placed residual_sums() const { return {residual_sum_, ops::kSignOwned}; }
  /// All-gathers the codes from the owners of the pieces. Every rank must call it.
  void gather();

  /// Both residuals of this rank, for checkpoints.
  std::vector<optim::StateTensor> state() const;

 private:
  void sum_received(Run& run, const SignUnits& units, const Moments& moments, float residual_share);

  const FlatLayout& layout_;
  std::size_t rank_;
  comm::Group* group_ = nullptr;
  std::vector<SignPiece> pieces_;
  std::vector<std::size_t> piece_parts_;  // rank r owns [piece_parts_[r], piece_parts_[r + 1])
  std::vector<std::int64_t> byte_parts_, received_parts_;
  std::int64_t num_owned_ = 0;  // elements that this rank owns
  bool is_on_gpu_ = false;
  int table_request_ = -1;
  Tensor table_;  // (pieces, ops::kSignColumns)
  int residual_request_ = -1, residual_sum_request_ = -1, codes_request_ = -1;
  Tensor residual_, residual_sum_;
  Tensor sent_, received_;
};

/// Estimates the norm of the sum over a group's ranks of `grads` (each rank's own, f32, flat), from
/// the sum of the ranks' sketches of `numbers` numbers, a multiple of 64 (Charikar et al. 2002).
/// The relative standard deviation is 1/sqrt(2 numbers). Infinite or NaN when an element is. Every
/// rank must call it.
double sketched_norm(Run& run, comm::Group& group, const Tensor& grads, std::int64_t numbers);

}  // namespace atl::parallel
