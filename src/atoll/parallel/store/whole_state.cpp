#include "atoll/parallel/store/whole_state.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "atoll/parallel/layout/gather_text.h"
#include "atoll/tensor/file_arena.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

struct WholeState::Move {
  const Vector& vector;
  Stretch wanted;
  int taker = 0;
  Tensor to;  // flat; only on the taker
};

namespace {

std::int64_t end_of(const optim::StateTensor& piece) {
  return piece.begin + piece.tensor.num_elements();
}

template <typename Stretch>
std::int64_t end_of(const Stretch& stretch) {
  return stretch.end;
}

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements()});
}

// Calls visit(one, from, to) for each of `held` (ascending) that overlaps [begin, end): [from, to)
// is the overlap.
template <typename Held, typename Visit>
void for_overlaps(const std::vector<Held>& held, std::int64_t begin, std::int64_t end,
                  const Visit& visit) {
  auto at = std::partition_point(held.begin(), held.end(),
                                 [&](const Held& one) { return end_of(one) <= begin; });
  for (; at != held.end() && at->begin < end; ++at) {
    visit(*at, std::max(at->begin, begin), std::min(end_of(*at), end));
  }
}

// Elements [begin, end) of the flat vector, from a piece that holds all of them.
Tensor elements(const optim::StateTensor& piece, std::int64_t begin, std::int64_t end) {
  return piece.tensor.rows(begin - piece.begin, end - piece.begin);
}

}  // namespace

std::vector<optim::StateTensor> held_pieces(ParamStore& store, const optim::Optimizer* optimizer) {
  store.settle();
  std::vector<optim::StateTensor> pieces;
  const Tensor values = store.values();
  if (values.num_elements() == store.flat().shape.num_elements()) {
    pieces.push_back({"", 0, values});
  } else {
    std::int64_t end_in_values = -1;
    for (const optim::ParamRange& range : store.ranges()) {
      const std::int64_t begin = range.in_values();
      const bool touches =
          !pieces.empty() && end_of(pieces.back()) == range.begin && begin == end_in_values;
      end_in_values = begin + range.count;
      if (touches) {
        const std::int64_t first = begin - pieces.back().tensor.num_elements();
        pieces.back().tensor = values.rows(first, end_in_values);
      } else {
        pieces.push_back({"", range.begin, values.rows(begin, end_in_values)});
      }
    }
  }
  if (optimizer == nullptr) return pieces;
  for (optim::StateTensor& piece : optimizer->state()) pieces.push_back(std::move(piece));
  for (optim::StateTensor& piece : store.state()) pieces.push_back(std::move(piece));
  return pieces;
}

std::vector<optim::StateTensor> pieces_to_fill(ParamStore& store) {
  const Tensor all = store.computed_with();
  const bool is_whole = all.defined() && all.num_elements() == store.flat().shape.num_elements();
  if (!is_whole) return held_pieces(store, nullptr);
  store.settle();
  return {{"", 0, all}};
}

void fill_whole(const nn::Param& param, const Tensor& tensor,
                const std::function<void(const nn::Param& param, const Tensor& whole)>& read) {
  if (!param.cut) return read(param, tensor);
  const nn::Cut& cut = *param.cut;
  const Spec spec = {tensor.dtype(), cut.whole.spec.shape};
  const std::unique_ptr<std::byte[]> memory(new std::byte[spec.bytes()]);  // `read` writes all
  const Tensor whole(memory.get(), spec);
  read(cut.whole, whole);
  nn::copy_slice(cut.slices[static_cast<std::size_t>(cut.rank)], whole, tensor);
}

void fill_pieces(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
                 ThreadPool* threads,
                 const std::function<void(const std::string& name, const nn::Param& param,
                                          const Tensor& whole)>& read) {
  struct InPlace {
    const std::string* name;
    const nn::Param* param;
    Tensor whole;
  };
  std::map<std::string, std::vector<optim::StateTensor>> vectors;
  for (const optim::StateTensor& piece : pieces) vectors[piece.name].push_back(piece);
  std::vector<InPlace> in_place;
  std::vector<std::byte> memory;
  for (auto& entry : vectors) {
    const std::string& name = entry.first;
    std::vector<optim::StateTensor>& held = entry.second;
    std::sort(held.begin(), held.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < layout.trained().size(); ++i) {
      const nn::Param& param = *layout.trained()[i];
      const Shape& shape = param.spec.shape;
      const std::int64_t begin = layout.offset(i);
      const std::int64_t end = begin + shape.num_elements();
      Tensor whole;
      for_overlaps(held, begin, end, [&](const optim::StateTensor& piece, auto from, auto to) {
        if (from == begin && to == end) {
          in_place.push_back({&name, &param, elements(piece, begin, end).reshaped(shape)});
          return;
        }
        if (!whole.defined()) {
          const Spec spec = {piece.tensor.dtype(), shape};
          memory.resize(std::max(memory.size(), spec.bytes()));
          whole = Tensor(memory.data(), spec);
          fill_whole(param, whole,
                     [&](const nn::Param& all, const Tensor& values) { read(name, all, values); });
        }
        copy_now(flat(whole).rows(from - begin, to - begin), elements(piece, from, to));
      });
    }
  }
  // The largest first, so that at the end no thread works on a large one alone.
  std::stable_sort(in_place.begin(), in_place.end(),
                   [](const auto& a, const auto& b) { return a.whole.bytes() > b.whole.bytes(); });
  const auto read_one = [&](std::int64_t i) {
    const InPlace& one = in_place[static_cast<std::size_t>(i)];
    fill_whole(*one.param, one.whole,
               [&](const nn::Param& all, const Tensor& values) { read(*one.name, all, values); });
    give_back(one.whole);
  };
  // A part of a parameter needs temporary memory for the whole parameter: one at a time.
  const auto first_cut = std::stable_partition(in_place.begin(), in_place.end(),
                                               [](const InPlace& one) { return !one.param->cut; });
  for (auto one = first_cut; one != in_place.end(); ++one) read_one(one - in_place.begin());
  const auto count = static_cast<std::int64_t>(first_cut - in_place.begin());
  if (threads != nullptr) return threads->run(count, read_one);
  for (std::int64_t i = 0; i < count; ++i) read_one(i);
}

namespace {

// The bytes of the whole parameter, so that ranks with different parts of it get the same number.
std::size_t whole_bytes(const nn::Param& param) {
  return nn::whole_param(param).spec.bytes();
}

}  // namespace

std::vector<int> share_out(const FlatLayout& layout, int num_ranks) {
  const std::span<nn::Param* const> params = layout.trained();
  std::vector<std::size_t> order(params.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return whole_bytes(*params[a]) > whole_bytes(*params[b]);
  });
  std::vector<int> takers(params.size());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(num_ranks));
  for (const std::size_t i : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += whole_bytes(*params[i]);
    takers[i] = static_cast<int>(least - bytes.begin());
  }
  return takers;
}

WholeState::WholeState(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
                       comm::Group* group)
    : layout_(layout), group_(group) {
  if (group != nullptr) {
    rank_ = group->rank();
    num_ranks_ = group->size();
  }
  std::string inventory;
  for (const optim::StateTensor& piece : pieces) {
    if (piece.tensor.num_elements() == 0) continue;
    inventory += fmt::format("{} {} {} {}\n", piece.begin, end_of(piece),
                             static_cast<int>(piece.tensor.dtype()), piece.name);
  }
  hear(gather_text(group, inventory));
  for (Vector& vector : vectors_) {
    for (const optim::StateTensor& piece : pieces) {
      if (piece.name == vector.name && piece.tensor.num_elements() > 0)
        vector.mine.push_back(piece);
    }
    std::sort(vector.mine.begin(), vector.mine.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
}

// An inventory has one line for each piece: begin, end, dtype, name.
void WholeState::hear(const std::vector<std::string>& inventories) {
  for (std::size_t r = 0; r < inventories.size(); ++r) {
    std::istringstream lines(inventories[r]);
    Stretch stretch;
    int dtype = 0;
    std::string name;
    while (lines >> stretch.begin >> stretch.end >> dtype && lines.get() == ' ' &&
           std::getline(lines, name)) {
      auto vector = std::find_if(vectors_.begin(), vectors_.end(),
                                 [&](const Vector& known) { return known.name == name; });
      if (vector == vectors_.end()) {
        vectors_.push_back({name, static_cast<Dtype>(dtype), {}, {}});
        vectors_.back().held.resize(inventories.size());
        vector = vectors_.end() - 1;
      }
      vector->held[r].push_back(stretch);
    }
    ATOLL_CHECK(lines.eof(), "rank {} holds \"{}\"", r, inventories[r]);
  }
  for (Vector& vector : vectors_) {
    for (std::vector<Stretch>& held : vector.held) {
      std::sort(held.begin(), held.end(),
                [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
    }
  }
}

WholeState::Stretch WholeState::stretch_of(std::size_t i) const {
  const std::int64_t begin = layout_.offset(i);
  return {begin, begin + layout_.trained()[i]->spec.shape.num_elements()};
}

bool WholeState::holds(const Vector& vector, int rank, Stretch wanted) const {
  bool whole = false;
  for_overlaps(vector.held[static_cast<std::size_t>(rank)], wanted.begin, wanted.end,
               [&](const Stretch& /*held*/, auto from, auto to) {
                 whole |= from == wanted.begin && to == wanted.end;
               });
  return whole;
}

void WholeState::allocate(const Taker& taker, bool copies) {
  constexpr std::size_t kAlignment = 64;
  std::size_t bytes = 0;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // number in tensors_, offset
  takers_.clear();
  for (const Vector& vector : vectors_) {
    std::vector<int>& takers = takers_.emplace_back();
    for (std::size_t i = 0; i < layout_.trained().size(); ++i) {
      const nn::Param* param = layout_.trained()[i];
      const Stretch wanted = stretch_of(i);
      std::int64_t held = 0;  // elements, on all ranks
      for (const std::vector<Stretch>& of_rank : vector.held) {
        for_overlaps(of_rank, wanted.begin, wanted.end,
                     [&](const Stretch& /*one*/, auto from, auto to) { held += to - from; });
      }
      takers.push_back(held == 0 ? -1 : taker(vector.name, i));
      if (takers.back() != rank_) continue;
      const Spec spec = {vector.dtype, param->spec.shape};
      tensors_.push_back({vector.name, param, {}});
      if (!copies && holds(vector, rank_, wanted)) {
        for_overlaps(vector.mine, wanted.begin, wanted.end,
                     [&](const optim::StateTensor& piece, auto from, auto to) {
                       tensors_.back().tensor = elements(piece, from, to).reshaped(spec.shape);
                     });
      } else {
        places.emplace_back(tensors_.size() - 1, bytes);
        bytes += (spec.bytes() + kAlignment - 1) / kAlignment * kAlignment;
        tensors_.back().tensor = Tensor(nullptr, spec);
      }
    }
  }
  memory_.reset(new std::byte[bytes]);  // without zeros: collect() writes all of it
  for (const auto& [number, offset] : places) {
    Tensor& tensor = tensors_[number].tensor;
    tensor = Tensor(memory_.get() + offset, tensor.spec());
  }
}

// All ranks decide by the same rule what moves where. A taker that holds the whole tensor copies it
// from its own piece. Otherwise each rank sends its pieces; the taker receives them rank by rank,
// and those of one rank in ascending order.
void WholeState::move(const Move& move, std::vector<comm::Piece>& sends,
                      std::vector<comm::Piece>& receives) const {
  const auto [begin, end] = move.wanted;
  const bool is_local = holds(move.vector, move.taker, move.wanted);
  if (move.taker != rank_) {
    if (is_local) return;
    for_overlaps(move.vector.mine, begin, end, [&](const auto& piece, auto from, auto to) {
      sends.push_back({move.taker, elements(piece, from, to)});
    });
    return;
  }
  const auto place = [&](std::int64_t from, std::int64_t to) {
    return move.to.rows(from - move.wanted.begin, to - move.wanted.begin);
  };
  for_overlaps(move.vector.mine, begin, end, [&](const auto& piece, auto from, auto to) {
    copy_now(elements(piece, from, to), place(from, to));
  });
  if (is_local) return;
  std::int64_t found = 0;
  for (int r = 0; r < num_ranks_; ++r) {
    for_overlaps(move.vector.held[static_cast<std::size_t>(r)], begin, end,
                 [&](const Stretch& /*held*/, auto from, auto to) {
                   found += to - from;
                   if (r != rank_) receives.push_back({r, place(from, to)});
                 });
  }
  ATOLL_CHECK_EQ(found, end - begin);
}

void WholeState::collect() {
  ATOLL_CHECK_EQ(takers_.size(), vectors_.size());
  auto next = tensors_.begin();
  for (std::size_t v = 0; v < vectors_.size(); ++v) {
    for (const Bucket& bucket : layout_.buckets()) {
      std::vector<comm::Piece> sends, receives;
      for (std::size_t i = bucket.first_param; i < bucket.end_param; ++i) {
        const int taker = takers_[v][i];
        if (taker < 0) continue;
        Move on_its_way = {vectors_[v], stretch_of(i), taker, {}};
        if (taker == rank_) on_its_way.to = flat((next++)->tensor);
        move(on_its_way, sends, receives);
      }
      if (!sends.empty() || !receives.empty()) group_->exchange(sends, receives);
    }
  }
}

}  // namespace atl::parallel
