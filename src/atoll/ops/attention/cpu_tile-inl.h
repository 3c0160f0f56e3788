// What the attention kernels share: which scores of a tile a mask leaves. Compiled once per
// instruction set: include this after hwy/highway.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#undef ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#else
#define ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "atoll/ops/attention/cpu_product-inl.h"
#include "atoll/ops/attention/cpu_shape.h"
#include "atoll/ops/cpu/exp2-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "atoll/ops/cpu/tanh-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// scores = cap tanh(scores) in rows [row, row + num_rows) and vectors [vec, end_vec).
HWY_INLINE void cap_scores(Rows<float> scores, std::size_t row, std::size_t num_rows,
                           std::size_t vec, std::size_t end_vec, float cap) {
  const F32 d;
  for (std::size_t r = row; r < row + num_rows; ++r) {
    for (std::size_t v = vec; v < end_vec; ++v) {
      float* p = scores.at(r, v * kLanes);
      hn::StoreU(hn::Mul(hn::Set(d, cap), tanh_lanes(hn::LoadU(d, p))), d, p);
    }
  }
}

/// The scores of one tile of keys against one tile of queries: element (key, query) of the
/// transposed score matrix, queries in lanes, so that a softmax needs no sum across lanes. The keys
/// a query sees are one stretch, and both its ends move up from query to query. A tile that holds
/// such an end is worked off in bands of keys, each leaving out the vectors of queries on either
/// side that see none of its keys; a band's queries are one stretch too.
class TileOfScores {
 public:
  /// Keys first_key + [0, num_keys) against num_vecs vectors of queries, lane 0 at first_query.
  /// first_keys: per lane, never falling, the first key its query sees; aligned, and outlives this.
  HWY_INLINE TileOfScores(std::size_t first_key, std::size_t num_keys, std::size_t first_query,
                          std::size_t num_vecs, const std::int32_t* first_keys)
      : first_key_(first_key),
        num_keys_(num_keys),
        first_query_(first_query),
        num_vecs_(num_vecs),
        first_keys_(first_keys),
        diagonal_(first_key + num_keys > first_query + 1),
        cut_(first_key_of(num_vecs * kLanes - 1) > first_key) {}

  HWY_INLINE std::size_t first_key() const { return first_key_; }
  HWY_INLINE std::size_t num_keys() const { return num_keys_; }
  HWY_INLINE std::size_t num_vecs() const { return num_vecs_; }
  /// Is some score masked?
  HWY_INLINE bool partial() const { return diagonal_ || cut_; }
  /// The rows [begin, end) of the bands that reach vector v; the others hold no scores there.
  HWY_INLINE std::size_t begin_row(std::size_t v) const {
    const std::size_t key = first_key_of(v * kLanes);
    if (!cut_ || key <= first_key_) return 0;
    if (key - first_key_ >= num_keys_) return num_keys_;
    return (key - first_key_) / kBand * kBand;
  }
  HWY_INLINE std::size_t end_row(std::size_t v) const {
    if (!diagonal_) return num_keys_;
    const std::size_t end = first_query_ + (v + 1) * kLanes;
    if (end <= first_key_) return 0;
    return std::min(num_keys_, (end - first_key_ + kBand - 1) / kBand * kBand);
  }
  /// Puts `hidden` in the place of what the mask hides of a band. Kernels do not: few vectors of a
  /// tile are cut by the mask's ends, and a kernel that looks at it spills its sums.
  HWY_INLINE void hide(Rows<float> scores, std::size_t row, std::size_t num_rows, std::size_t vec,
                       std::size_t end_vec, float hidden) const {
    const F32 d;
    for (std::size_t r = row; r < row + num_rows; ++r) {
      for (std::size_t v = vec; v < end_vec; ++v) {
        if (all_see(r, v)) continue;
        float* p = scores.at(r, v * kLanes);
        hn::StoreU(hn::IfThenElse(visible(r, v), hn::LoadU(d, p), hn::Set(d, hidden)), d, p);
      }
    }
  }
  /// fn(first row, number of rows, first vector, end of the vectors) for each band with anything
  /// visible.
  template <class Fn>
  HWY_INLINE void for_bands(Fn fn) const {
    const std::size_t band = partial() ? kBand : num_keys_;
    for (std::size_t row = 0; row < num_keys_; row += band) {
      const std::size_t num_rows = std::min(band, num_keys_ - row);
      const std::size_t vec = first_vec(row);
      const std::size_t end = end_vec(row + num_rows - 1);
      if (vec < end) fn(row, num_rows, vec, end);
    }
  }
  /// fn(first row, number of rows, first vector, number of vectors) for the panels of vectors that
  /// hold what for_bands visits of a tile: a sum over keys goes through all of them at once, where
  /// bands would read and write it again and again. Zeroes the vectors of `scores` that a panel
  /// has beyond the bands; 0 times what is no number still spoils the queries of its panel.
  template <class Fn>
  HWY_INLINE void for_panels(Rows<float> scores, Fn fn) const {
    const std::size_t panel = partial() ? kPanelVecs : num_vecs_;
    for (std::size_t vec = 0; vec < num_vecs_; vec += panel) {
      const std::size_t num_vecs = std::min(panel, num_vecs_ - vec);
      const std::size_t begin = begin_row(vec);
      const std::size_t end = end_row(vec + num_vecs - 1);
      if (begin >= end) continue;
      for (std::size_t v = vec; partial() && v < vec + num_vecs; ++v) {
        zero_rows(scores, v, begin, std::min(end, begin_row(v)));
        zero_rows(scores, v, std::max(begin, end_row(v)), end);
      }
      fn(begin, end - begin, vec, num_vecs);
    }
  }

 private:
  static constexpr std::size_t kBand = kDiagonalBand;
  static constexpr std::size_t kPanelVecs = 2;  // the fewest whose kernel is bound by arithmetic

  // Lanes of vector v whose query sees key `row`.
  HWY_INLINE hn::Mask<F32> visible(std::size_t row, std::size_t v) const {
    const F32 d;
    const auto lead = static_cast<std::ptrdiff_t>(first_key_ + row) -
                      static_cast<std::ptrdiff_t>(first_query_ + v * kLanes);
    const auto not_later = hn::Ge(hn::Iota(d, 0.0F), hn::Set(d, static_cast<float>(lead)));
    if (!cut_) return not_later;
    const hn::RebindToSigned<F32> di;
    const auto key = hn::Set(di, static_cast<std::int32_t>(first_key_ + row));
    const auto too_early = hn::Lt(key, hn::Load(di, first_keys_ + v * kLanes));
    return hn::And(not_later, hn::Not(hn::RebindMask(d, too_early)));
  }
  // Do all lanes of vector v see key `row`?
  HWY_INLINE bool all_see(std::size_t row, std::size_t v) const {
    const std::size_t key = first_key_ + row;
    return key <= first_query_ + v * kLanes && key >= first_key_of((v + 1) * kLanes - 1);
  }
  static HWY_INLINE void zero_rows(Rows<float> scores, std::size_t v, std::size_t row,
                                   std::size_t end) {
    for (; row < end; ++row) hn::StoreU(hn::Zero(F32()), F32(), scores.at(row, v * kLanes));
  }
  HWY_INLINE std::size_t first_key_of(std::size_t lane) const {
    return static_cast<std::size_t>(first_keys_[lane]);
  }
  // The first vector with a query that does not come before key `row`.
  HWY_INLINE std::size_t first_vec(std::size_t row) const {
    const std::size_t key = first_key_ + row;
    return key > first_query_ ? (key - first_query_) / kLanes : 0;
  }
  // The end of the vectors with a query whose first key is `row` or before.
  HWY_INLINE std::size_t end_vec(std::size_t row) const {
    std::size_t end = num_vecs_;
    while (cut_ && end > 0 && first_key_of((end - 1) * kLanes) > first_key_ + row) --end;
    return end;
  }

  std::size_t first_key_;
  std::size_t num_keys_;
  std::size_t first_query_;
  std::size_t num_vecs_;
  const std::int32_t* first_keys_;
  bool diagonal_;  // a query comes before a key
  bool cut_;       // a query's first key comes after the tile's
};

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
