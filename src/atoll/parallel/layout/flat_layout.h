#pragma once

// Where trained parameters lie in one flat vector, and how ranks share it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/optim/optimizer.h"

namespace atl::parallel {

/// Gradient norms are summed over blocks of so many elements, counted from the beginning of each
/// ParamRange, and ranks' parts begin and end between blocks: however many ranks share a vector,
/// the same blocks are added in the same order.
constexpr std::int64_t kBlockElements = 8192;

/// A stretch of the flat vector that is reduced, and gathered, at once.
struct Bucket {
  std::int64_t begin = 0;  ///< elements of the flat vector
  std::int64_t end = 0;
  /// Rank r of those that share it has [begin + parts[r], begin + parts[r + 1]).
  std::vector<std::int64_t> parts;
  std::vector<std::size_t> stages;  ///< that use a parameter of it, ascending
  std::size_t first_param = 0;      ///< trained()[first_param] to trained()[end_param - 1]
  std::size_t end_param = 0;

  std::int64_t size() const { return end - begin; }
  /// Elements of rank r.
  std::int64_t part_size(int r) const {
    const auto at = static_cast<std::size_t>(r);
    return parts[at + 1] - parts[at];
  }
};

/// How a flat vector is cut.
struct LayoutOptions {
  int num_ranks = 1;  ///< that share it
  /// Stages are put together until a bucket has so many bytes of gradient; 0: a bucket has the
  /// parameters of one stage, as sharded parameters want it.
  std::int64_t bucket_bytes = 0;
  /// Muon: the matrices of ParamRange are not cut, and those that other ranks have parts of are the
  /// same rank's on all of these.
  bool whole_matrices = false;
};

/// The parameters of a model, those that are trained first, and the flat vector of these, each
/// beginning on a cache line; padding between them is zero and stays so.
class FlatLayout {
 public:
  FlatLayout(const nn::Model& model, const LayoutOptions& options);

  int num_ranks() const { return options_.num_ranks; }
  /// Every parameter once: those that are trained, in the order of the flat vector, then those that
  /// are frozen.
  std::span<nn::Param* const> params() const { return params_; }
  std::span<nn::Param* const> trained() const { return params().first(num_trained_); }
  std::span<nn::Param* const> frozen() const { return params().subspan(num_trained_); }
  std::span<nn::Constant* const> constants() const { return constants_; }
  /// Where params()[i] begins in its flat vector, of what is trained or of what is frozen.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  Spec flat() const { return flat_; }
  Spec frozen_flat() const { return frozen_flat_; }
  /// What the optimizer treats alike: see append_ranges. In order.
  std::span<const optim::ParamRange> ranges() const { return ranges_; }
  /// In the order of the flat vector; they cover it.
  std::span<const Bucket> buckets() const { return buckets_; }
  /// Elements that rank r has of all buckets together.
  std::int64_t share(int r) const;
  /// What lies within rank r's parts, in order: `begin` as in ranges(), and the place in a vector
  /// of share(r) elements as value_begin and grad_begin.
  std::vector<optim::ParamRange> ranges_of(int r) const;

 private:
  void place_params(const nn::Model& model);
  void make_buckets(const nn::Model& model);
  void note_parts(std::size_t param, std::size_t first_range);
  std::vector<std::int64_t> cut(std::int64_t begin, std::int64_t end) const;

  LayoutOptions options_;
  std::vector<nn::Param*> params_;
  std::size_t num_trained_ = 0;
  std::vector<nn::Constant*> constants_;
  std::vector<std::int64_t> offsets_;
  std::vector<optim::ParamRange> ranges_;
  std::vector<std::shared_ptr<const optim::MatrixParts>> matrix_parts_;  // ranges_ point to these
  std::vector<std::int64_t> first_counts_;  // elements of each range on the first rank of its cut
  std::vector<Bucket> buckets_;
  Spec flat_;
  Spec frozen_flat_;
};

/// The blocks of some ranges, in order: {begin in the gradients, elements}.
struct NormBlock {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
std::vector<NormBlock> norm_blocks(std::span<const optim::ParamRange> ranges);

}  // namespace atl::parallel
