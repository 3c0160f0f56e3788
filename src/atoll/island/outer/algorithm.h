#pragma once

// DiLoCo and its relatives, as far as they are arithmetic and counting: when an outer step begins
// and ends for an island, what it sends, and what becomes of its own parameters. No threads, no
// network; the anchor and its outer optimizer are OuterState's.
//
// An island's trainer, for outer step k of fragment p = fragment_of(k), all vectors packed
// (fragments.h):
//
//   when it has taken begins_at(k) inner steps:  begin(anchor, own, share, delta)   delta is sent
//   when it has taken applies_at(k):             wait until k is committed, then
//     with its delta in the mean:                apply(new anchor, own)
//     without:                                   rebase(old anchor, new anchor, delta, share, own)
//
// applies_at(k) <= begins_at(k + 1); where they are equal, k is applied first.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "atoll/island/outer/optimizer.h"

namespace atl::island {

/// The settings of a run that islands must share. See default_outer_options().
struct OuterOptions {
  std::string algorithm = "diloco";  ///< "diloco", "streaming", "eager", "async" or "gossip"
  std::int64_t inner_steps = 30;     ///< H: between two outer steps of one parameter
  int fragments = 1;                 ///< P; other than 1 only in streaming; divides inner_steps
  std::int64_t overlap = 0;          ///< τ, streaming: inner steps while a fragment is exchanged
  double merge = 0;                  ///< α, streaming: share of the island's own parameters kept
  OuterOptimizerOptions optimizer;
  std::string codec = "f32";  ///< compress::make_codec
};

/// The papers' values for so many islands. Outer learning rate .4, .6, .8 from 1, 2, 8 islands on,
/// momentum .9 and H = 30 are the scaling laws' (arXiv 2503.09799), tuned together; H = 500 with .7
/// (arXiv 2311.08105) sends 16 times less and costs some loss. Streaming: fragments of about
/// three of `num_layers` layers, as many as divide H; τ = 5, α = .5 (arXiv 2501.18512). The codec
/// "topk" brings its own momentum in its error, so that the outer optimizer is SGD with lr 1 (arXiv
/// 2508.15706). Throws Error(kUser) for an unknown algorithm.
OuterOptions default_outer_options(int num_islands, const std::string& algorithm = "diloco",
                                   int num_layers = 0, const std::string& codec = "f32");

/// What an island has of a fragment for itself. Owned by the caller; belongs into checkpoints.
struct OwnFragment {
  std::span<float> params;  ///< as trained, packed
  std::span<float> kept;    ///< num_kept_vectors() times as many, for the algorithm
};

/// When outer steps begin and end, in inner steps of an island.
struct OuterTiming {
  int num_fragments = 1;
  std::int64_t interval = 1;     ///< inner steps between two outer steps: H / P
  std::int64_t apply_after = 0;  ///< inner steps between an outer step's begin and its end
  /// A lease without batches asks for the island's state, also where it has trained nothing.
  bool ends_with_mean = false;
};

/// What an algorithm has to do with an island's own parameters, which are costly to get and to put
/// back.
struct OuterParamUse {
  bool begin_changes = false;  ///< begin() moves them
  bool apply_reads = true;     ///< apply() depends on what they were
  bool apply_changes = true;   ///< apply() moves them
};

/// One of the algorithms. Has no state: what is to be kept lies in OwnFragment. Vectors of a call
/// are equally long but for `kept`, and do not overlap. Safe to use from several threads.
class OuterAlgorithm {
 public:
  OuterAlgorithm(const OuterTiming& timing, const OuterParamUse& use)
      : timing_(timing), use_(use) {}
  virtual ~OuterAlgorithm() = default;

  const OuterTiming& timing() const { return timing_; }
  int num_fragments() const { return timing_.num_fragments; }
  std::int64_t interval() const { return timing_.interval; }
  std::int64_t apply_after() const { return timing_.apply_after; }
  const OuterParamUse& param_use() const { return use_; }
  int fragment_of(std::int64_t outer_step) const {
    return static_cast<int>(outer_step % timing_.num_fragments);
  }
  /// Inner steps that an island which never missed one has taken when outer step k begins.
  std::int64_t begins_at(std::int64_t outer_step) const {
    return (outer_step + 1) * timing_.interval;
  }
  /// And when its result is taken over.
  std::int64_t applies_at(std::int64_t outer_step) const {
    return begins_at(outer_step) + timing_.apply_after;
  }

  /// Vectors of OwnFragment::kept: 0, or what the eager algorithm needs.
  virtual int num_kept_vectors() const { return 0; }
  /// The beginning of a run, or after the island fetched the state of others: own.params = anchor,
  /// and nothing is under way.
  virtual void reset(std::span<const float> anchor, const OwnFragment& own) const;
  /// An outer step begins: `delta` becomes the pseudo-gradient to send, parameters when it last
  /// agreed with the others minus parameters now. `anchor` is the newest that was committed;
  /// `share` the weight that the delta will probably have in the mean, 1 / islands. Eager: the
  /// parameters move too.
  virtual void begin(std::span<const float> anchor, const OwnFragment& own, double share,
                     std::span<float> delta) const = 0;
  /// It was committed with the island's delta in it: what the parameters become.
  virtual void apply(std::span<const float> new_anchor, const OwnFragment& own) const = 0;
  /// It was committed without the island's delta, which came late, was dropped, or was never sent
  /// (then `delta` is empty). The parameters move as the anchor did, so that the island's own
  /// progress stays and is in its next delta. `delta` and `share` as begin() had them.
  virtual void rebase(std::span<const float> old_anchor, std::span<const float> new_anchor,
                      std::span<const float> delta, double share, const OwnFragment& own) const;

 private:
  OuterTiming timing_;
  OuterParamUse use_;
};

/// The algorithm of the options. `optimizer` is the run's and must outlive it. Throws Error(kUser)
/// for an unknown name, numbers out of range, and settings that the algorithm has no use for.
std::unique_ptr<OuterAlgorithm> make_outer_algorithm(const OuterOptions& options,
                                                     const OuterOptimizer& optimizer);

}  // namespace atl::island
