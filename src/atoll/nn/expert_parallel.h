#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/nn/axis.h"
#include "atoll/nn/token_dispatch.h"

namespace atl::nn {

/// Ranks that have different tokens, and E / e of the experts each (Lepikhin et al. 2020, "GShard",
/// section 3.2): rank r of e has experts [r E / e, (r + 1) E / e). Rows go to the ranks that have
/// their experts, are worked on there, and come back. Rank r sorts the rows of each of its experts
/// by the rank that they are of, and as they are on that one within it.
///
/// All ranks of the axis must make the same calls. Elements that a rank sends for T tokens, times
/// about (e - 1) / e: T K C forward; in B twice that, and two numbers a choice; in W twice that,
/// since the rows are sent again rather than kept.
///
/// The host must know how many rows go where. On a GPU begin() waits for that, once a pass; the
/// other calls wait where rows are sent by way of the host.
class ExpertParallelDispatch final : public TokenDispatch {
 public:
  /// `axis` must outlive this.
  explicit ExpertParallelDispatch(Axis* axis) : axis_(axis) {}

  /// R is the most that can come: e T min(K, E / e), or where experts take fewer, E `most`.
  Footprint plan(const Setup& setup, const Spec& x, std::int64_t most) const override;
  /// Ranks tell each other how many rows each sends to each expert. What they told is known until
  /// the next call with the same memory in Choices::kept.
  void begin(Run& run, const Setup& setup, const Choices& choices) override;
  Rows rows(const Choices& choices) const override;
  void to_experts(Run& run, const Choices& choices, const Tensor& x, const Tensor& rows) override;
  void from_experts(Run& run, const Choices& choices, const Tensor& rows, const Tensor& weights,
                    const Tensor& y) override;
  void weigh(Run& run, const Choices& choices, const Tensor& weights, const Tensor& dh,
             const Tensor& h, const Tensor& d, const Tensor& dweights) override;

 private:
  // What the host knows of a pass.
  struct Known {
    std::vector<std::int32_t> counts;  // (e, E): how many rows each rank sends to each expert
    std::vector<std::int32_t> begins;  // (E + 1): where rows of this rank's tokens begin, by expert
    std::vector<std::int32_t> here;    // (E / e + 1): where the rows of experts here begin
  };
  const Known& known(const Choices& choices) const;
  // Which way rows move.
  enum class Way { kToExperts, kFromExperts };
  // `sorted`: (T K, width), the rows of this rank's tokens by expert; `rows`: (count, width), those
  // of the experts here. One is filled from the other, of all ranks.
  void move(Run& run, const Choices& choices, Way way, const Tensor& sorted, const Tensor& rows);

  Axis* axis_;
  std::map<const void*, Known> known_;         // by the memory that a pass keeps
  std::vector<comm::Piece> sends_, receives_;  // of a call
};

}  // namespace atl::nn
