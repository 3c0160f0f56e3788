#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/ops/run.h"

namespace atl::nn {

/// What stands between a router's choices and the products of the experts: it brings rows of
/// tokens to the experts that were chosen, and what these make of them back to the tokens. Another
/// dispatch serves ranks that have some of the experts each; MixtureOfExperts does not know which
/// it has.
class TokenDispatch {
 public:
  /// What all calls of a layer have in common.
  struct Setup {
    std::int64_t num_experts = 0;  ///< of the block, E
    std::int64_t top_k = 0;        ///< choices of a token, K
    std::int64_t num_here = 0;     ///< experts that this rank has
  };
  /// What a call on T tokens needs.
  struct Footprint {
    std::int64_t rows = 0;    ///< R, the most rows that the experts here work on
    std::vector<Spec> kept;   ///< memory from forward to W, in order
    std::size_t scratch = 0;  ///< bytes of Run::scratch, the most that a call takes
  };
  /// The choices of this rank's tokens as ops::assign_rows gives them, and what Footprint::kept
  /// asked for.
  struct Choices {
    Tensor places;   ///< i32 (T, K)
    Tensor sources;  ///< i32 (T K)
    Tensor offsets;  ///< i32 (E + 1)
    std::span<const Tensor> kept;
  };
  /// The rows of the experts here, each expert's together.
  struct Rows {
    std::int64_t count = 0;  ///< as many have memory; the last may belong to no expert
    Tensor offsets;          ///< i32 (num_here + 1)
  };

  virtual ~TokenDispatch() = default;
  /// x: (T, C). An expert gets at most `most` rows of one rank's tokens.
  virtual Footprint plan(const Setup& setup, const Spec& x, std::int64_t most) const = 0;
  /// In forward, once the choices are made: fills `kept`. Throws Error(kInternal) unless every
  /// choice that has a row is some expert's.
  virtual void begin(Run& run, const Setup& setup, const Choices& choices) = 0;
  virtual Rows rows(const Choices& choices) const = 0;
  /// x: (T, C), a row a token.  rows: (count, C), a row a choice; those of no expert are any.
  virtual void to_experts(Run& run, const Choices& choices, const Tensor& x,
                          const Tensor& rows) = 0;
  /// y = the sum of each token's rows, times their weights: ops::combine_rows.
  virtual void from_experts(Run& run, const Choices& choices, const Tensor& rows,
                            const Tensor& weights, const Tensor& y) = 0;
  /// ops::weigh_rows, where dh, h and d are rows of the experts here.
  virtual void weigh(Run& run, const Choices& choices, const Tensor& weights, const Tensor& dh,
                     const Tensor& h, const Tensor& d, const Tensor& dweights) = 0;
};

/// This rank has all experts.
class WholeDispatch final : public TokenDispatch {
 public:
  Footprint plan(const Setup& setup, const Spec& x, std::int64_t most) const override;
  void begin(Run& run, const Setup& setup, const Choices& choices) override;
  Rows rows(const Choices& choices) const override;
  void to_experts(Run& run, const Choices& choices, const Tensor& x, const Tensor& rows) override;
  void from_experts(Run& run, const Choices& choices, const Tensor& rows, const Tensor& weights,
                    const Tensor& y) override;
  void weigh(Run& run, const Choices& choices, const Tensor& weights, const Tensor& dh,
             const Tensor& h, const Tensor& d, const Tensor& dweights) override;
};

}  // namespace atl::nn
