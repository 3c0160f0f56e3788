#pragma once

// Between whole tensors and the pieces of them that ranks hold. A piece is an optim::StateTensor:
// elements of the flat vector of that name; parameters' values are the vector named "".

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/comm/group.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// What this rank holds of trained parameters' values and, unless `optimizer` is null, of the
/// optimizer's state and the store's own. Settles the store.
std::vector<optim::StateTensor> held_pieces(ParamStore& store, const optim::Optimizer* optimizer);

/// Where the trained parameters' values go when they are read: what this rank computes with where
/// it has that whole, else what it holds. ParamStore::values_filled() comes after. Settles the
/// store.
std::vector<optim::StateTensor> pieces_to_fill(ParamStore& store);

/// Fills `tensor`, of the shape of `param`, through `read`, which gives the values of the whole
/// parameter: where `param` is a part of one, through a copy of the whole.
void fill_whole(const nn::Param& param, const Tensor& tensor,
                const std::function<void(const nn::Param& param, const Tensor& whole)>& read);

/// Calls `read` for each parameter of which `pieces` hold something, with memory for the whole of
/// it, and keeps what the pieces hold: in place where one holds all, which `read` is called for on
/// all `threads` at once (null: on this one), else through a copy of one parameter. Of a parameter
/// that is a part of one, `read` gets the whole one. Needs no other rank.
void fill_pieces(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
                 ThreadPool* threads,
                 const std::function<void(const std::string& name, const nn::Param& param,
                                          const Tensor& whole)>& read);

/// Which of `num_ranks` ranks takes each of layout.trained(), so that bytes are even: the largest
/// first, each to whoever has least. Those that take any are the lowest ranks.
std::vector<int> share_out(const FlatLayout& layout, int num_ranks);

/// A parameter's value, or its part of some optimizer state, whole.
struct WholeTensor {
  std::string name;  ///< of the flat vector
  const nn::Param* param = nullptr;
  Tensor tensor;  ///< of the parameter's shape
};

/// Puts the pieces of all ranks together to whole tensors, each on the rank that takes it: every
/// byte moves once, straight to where it stays.
class WholeState {
 public:
  /// Tells the others what this rank holds. `layout` and what `pieces` point to must outlive this;
  /// together the ranks hold each tensor whole, or each of them does. Every rank of the group must
  /// call it; null: this rank is alone.
  WholeState(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
             comm::Group* group);

  /// The rank that takes trained()[i] of the vector `name`; the same on all ranks.
  using Taker = std::function<int(const std::string& name, std::size_t i)>;
  /// Takes memory for what this rank takes: for all of it with `copies`, else for what it does not
  /// hold whole anyway.
  void allocate(const Taker& taker, bool copies);
  /// Collects. Every rank of the group must call it.
  void collect();
  /// By name, in the order of state(), and within a name in that of trained().
  std::span<const WholeTensor> tensors() const { return tensors_; }

 private:
  struct Stretch {
    std::int64_t begin = 0, end = 0;  // elements of the flat vector
  };
  struct Vector {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<std::vector<Stretch>> held;  // by rank, ascending
    std::vector<optim::StateTensor> mine;    // ascending
  };
  struct Move;  // one tensor on its way

  void hear(const std::vector<std::string>& inventories);
  Stretch stretch_of(std::size_t i) const;
  bool holds(const Vector& vector, int rank, Stretch wanted) const;
  void move(const Move& move, std::vector<comm::Piece>& sends,
            std::vector<comm::Piece>& receives) const;

  const FlatLayout& layout_;
  comm::Group* group_;
  int rank_ = 0;
  int num_ranks_ = 1;
  std::vector<Vector> vectors_;
  std::vector<std::vector<int>> takers_;  // of each vector, of each parameter; -1: it has none
  std::vector<WholeTensor> tensors_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace atl::parallel
