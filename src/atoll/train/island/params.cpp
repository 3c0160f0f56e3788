#include "atoll/train/island/params.h"

#include <algorithm>

#include "atoll/parallel/store/whole_state.h"
#include "atoll/simd/bf16.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

using parallel::HeldPiece;
using parallel::RangesByRank;

// Copies f32 elements from `begin` on to where some of the pieces, which are ascending, have them,
// in their dtypes.
void store_in(const std::vector<HeldPiece>& pieces, std::int64_t begin, const Tensor& part) {
  const std::int64_t end = begin + part.num_elements();
  auto at =
      std::upper_bound(pieces.begin(), pieces.end(), begin, [](std::int64_t at, const auto& piece) {
        return at < piece.begin + piece.tensor.num_elements();
      });
  for (; at != pieces.end() && at->begin < end; ++at) {
    const HeldPiece& piece = *at;
    const std::int64_t from = std::max(begin, piece.begin);
    const std::int64_t to = std::min(end, piece.begin + piece.tensor.num_elements());
    const Tensor values = part.rows(from - begin, to - begin);
    const Tensor place = piece.tensor.rows(from - piece.begin, to - piece.begin);
    if (place.dtype() == Dtype::kBf16) {
      const HostRead read(values);
      const std::span<const float> all = read.elements<float>();
      write_on_host<Bf16>(
          place, [&](auto bf16) { std::transform(all.begin(), all.end(), bf16.begin(), to_bf16); });
    } else {
      copy_now(values, place);
    }
  }
}

}  // namespace

IslandParams::IslandParams(const std::vector<island::Fragment>& fragments, TrainState& state,
                           Ranks& ranks, const Shares& shares)
    : shares_(shares), state_(&state), ranks_(&ranks), held_(fragments.size()) {
  ATOLL_CHECK(shares.num_ranks == 1 || shares.num_ranks == ranks.size(), "parts of {} ranks of {}",
              shares.num_ranks, ranks.size());
  for (const island::Fragment& fragment : fragments) ranges_.push_back(fragment.ranges);
  if (!state.has_whole_model() || shares.num_ranks > 1) parts_ = make_parts();
}

parallel::ElementRange IslandParams::part_of(int f, int rank) const {
  if (rank >= shares_.num_ranks) return {0, 0};
  return island::shard_range(whole_elements(f), shares_.state_vectors, {rank, shares_.num_ranks});
}

// What ranks hold does not change between steps, so they tell each other once.
IslandParams::Parts IslandParams::make_parts() {
  const parallel::FlatLayout& layout = state_->store().layout();
  const parallel::PipelinePart* pipeline = state_->pipeline();
  const parallel::DataParallelOptions& shared = state_->options().data_parallel;
  Parts parts;
  parts.runs = parallel::runs_in_whole(layout, state_->whole_layout(), [&](const nn::Param& param) {
    return pipeline == nullptr || pipeline->counts(param);
  });
  const std::vector<parallel::ElementRange> all = {{0, layout.flat().shape.num_elements()}};
  const auto own = parallel::element_ranges(layout, shared.rank);
  const bool values_are_cut = shared.zero == parallel::Zero::kParameters;
  const bool masters_are_cut = has_masters() && shared.zero != parallel::Zero::kNone;
  // Of data-parallel ranks that have the same, the first gives it.
  std::vector<parallel::ElementRange> gives;
  const bool is_first_copy = ranks_->replicate() == nullptr || ranks_->replicate()->rank() == 0;
  if (values_are_cut || masters_are_cut) {
    if (is_first_copy) gives = own;
  } else if (ranks_->sharing().rank() == 0) {
    gives = all;
  }
  parts.gives = parallel::gather_ranges(
      ranks_->group(), parallel::ranges_in_whole(parts.runs, gives, /*only_counted=*/true));
  parts.wants = parallel::gather_ranges(
      ranks_->group(), parallel::ranges_in_whole(parts.runs, values_are_cut ? own : all, false));
  return parts;
}

std::vector<HeldPiece> IslandParams::in_whole(std::span<const optim::StateTensor> pieces) const {
  if (parts_) return parallel::pieces_in_whole(parts_->runs, pieces);
  std::vector<HeldPiece> same;
  for (const optim::StateTensor& piece : pieces) same.push_back({piece.begin, piece.tensor});
  return same;
}

std::vector<HeldPiece> IslandParams::masters() const {
  std::vector<optim::StateTensor> pieces;
  for (const optim::StateTensor& piece : state_->optimizer().state()) {
    if (piece.name == "master") pieces.push_back(piece);
  }
  return in_whole(pieces);
}

// A part lies wherever the layout has put it: each rank that has one receives it in turn.
void IslandParams::gather_parts(int f) {
  const std::vector<HeldPiece> held =
      has_masters() ? masters() : in_whole(parallel::held_pieces(state_->store(), nullptr));
  const Tensor packed = has_part() ? make_room(f) : Tensor();
  for (int reader = 0; reader < shares_.num_ranks; ++reader) {
    const parallel::ElementRange part = part_of(f, reader);
    if (part.size() == 0) continue;
    parallel::read_ranges(&ranks_->group(), parts_->gives, held,
                          parallel::slice(ranges(f), part.begin, part.end), reader,
                          reader == ranks_->rank() ? packed : Tensor());
  }
}

Tensor IslandParams::make_room(int f) {
  std::vector<float>& values = hold(f).values;
  return {values.data(), {Dtype::kF32, {static_cast<std::int64_t>(values.size())}}};
}

void IslandParams::gather(int f) {
  const parallel::DataParallelOptions& shared = state_->options().data_parallel;
  // The first copy of the model has all, and the lead is in it.
  if (!parts_ && !ranks_->is_alone() && ranks_->rank() >= shared.num_ranks) return;
  parallel::ParamStore& store = state_->store();
  if (parts_) {
    gather_parts(f);
  } else if (!has_masters()) {
    store.read_whole(ranges(f), /*reader=*/0, has_part() ? make_room(f) : Tensor());
  } else {
    RangesByRank holders = {{{0, store.flat().shape.num_elements()}}};  // or each its part
    if (shared.zero != parallel::Zero::kNone) {
      holders.clear();
      for (int r = 0; r < shared.num_ranks; ++r) {
        holders.push_back(parallel::element_ranges(store.layout(), r));
      }
    }
    comm::Group* group = ranks_->is_alone() ? nullptr : &ranks_->shard();
    parallel::read_ranges(group, holders, masters(), ranges(f), /*reader=*/0,
                          has_part() ? make_room(f) : Tensor());
  }
  if (has_part()) hold(f).is_here = true;
}

// What each rank of the island holds, its neighbour's part included where it keeps a copy of that.
// Empty: all have everything.
RangesByRank IslandParams::wants() const {
  if (parts_) return parts_->wants;
  RangesByRank wants;
  const parallel::DataParallelOptions& shared = state_->options().data_parallel;
  if (ranks_->is_alone() || shared.zero != parallel::Zero::kParameters) return wants;
  const parallel::FlatLayout& layout = state_->store().layout();
  for (int r = 0; r < ranks_->size(); ++r) {
    std::vector<parallel::ElementRange> all =
        parallel::element_ranges(layout, r % shared.num_ranks);
    if (state_->replica() != nullptr) {
      for (const auto& range : parallel::element_ranges(layout, (r + 1) % shared.num_ranks)) {
        all.push_back(range);
      }
      std::sort(all.begin(), all.end(),
                [](const auto& a, const auto& b) { return a.begin < b.begin; });
    }
    wants.push_back(std::move(all));
  }
  return wants;
}

void IslandParams::scatter(int f) {
  std::vector<std::vector<HeldPiece>> vectors;
  vectors.push_back(in_whole(parallel::held_pieces(state_->store(), nullptr)));
  if (has_masters()) vectors.push_back(masters());
  if (state_->replica() != nullptr) {
    // The next rank's part has moved too, and no gradient says so.
    for (const auto& [name, held] : state_->replica()->held()) {
      if (name == "values" || name == "master") vectors.push_back(held);
    }
  }
  std::span<float> packed;
  if (has_part()) packed = values(f);
  comm::Group* group = ranks_->is_alone() ? nullptr : &ranks_->group();
  const RangesByRank wanted = wants();
  for (int writer = 0; writer < shares_.num_ranks; ++writer) {
    const parallel::ElementRange part = part_of(f, writer);
    parallel::write_ranges(group, wanted, parallel::slice(ranges(f), part.begin, part.end), writer,
                           packed, [&](std::int64_t begin, const Tensor& values) {
                             for (const std::vector<HeldPiece>& pieces : vectors)
                               store_in(pieces, begin, values);
                           });
  }
  if (has_part()) hold(f).is_changed = false;
}

// One fragment is kept, and those that are still to be written: its memory is that of the last.
IslandParams::Held& IslandParams::hold(int f) {
  Held& wanted = held_[static_cast<std::size_t>(f)];
  for (Held& other : held_) {
    if (&other == &wanted || other.is_changed) continue;
    if (wanted.values.capacity() == 0) wanted.values.swap(other.values);
    other = {};
  }
  wanted.values.resize(elements(f));
  return wanted;
}

std::span<float> IslandParams::values(int f) {
  ATOLL_CHECK(has(f), "fragment {} was not read", f);
  return hold(f).values;
}

std::span<float> IslandParams::overwrite(int f) {
  Held& held = hold(f);
  held.is_here = true;
  return held.values;
}

void IslandParams::mark_changed(int f) {
  ATOLL_CHECK(has(f), "fragment {} was not read", f);
  held_[static_cast<std::size_t>(f)].is_changed = true;
}

std::vector<int> IslandParams::changed() const {
  std::vector<int> all;
  for (std::size_t f = 0; f < held_.size(); ++f) {
    if (held_[f].is_changed) all.push_back(static_cast<int>(f));
  }
  return all;
}

void IslandParams::forget() {
  for (Held& held : held_) {
    ATOLL_CHECK(!held.is_changed, "changed parameters were not written before a step");
    held.is_here = false;
  }
}

}  // namespace atl::train
