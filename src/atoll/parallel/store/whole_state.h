#pragma once

// Whole tensors from the pieces that ranks hold, and pieces from whole tensors. A piece is an
// optim::StateTensor: some elements of the flat vector of that name. The name "" stands for the
// values of the parameters.

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

/// The pieces that this rank holds: values of trained parameters and, unless `optimizer` is null,
/// the state of the optimizer and of the store. Calls store.settle(). The pieces are views.
std::vector<optim::StateTensor> held_pieces(ParamStore& store, const optim::Optimizer* optimizer);

/// Where values of trained parameters are to be written: ParamStore::computed_with() where that is
/// the whole flat vector, else the values that this rank holds. After writing, the caller calls
/// ParamStore::values_filled(). Calls store.settle(). The pieces are views.
std::vector<optim::StateTensor> pieces_to_fill(ParamStore& store);

/// Fills `tensor`, which has the shape of `param`. `read` fills a tensor with the values of a whole
/// parameter. Where `param` is a part of one, `read` fills a temporary tensor, and this rank's part
/// is copied from there.
void fill_whole(const nn::Param& param, const Tensor& tensor,
                const std::function<void(const nn::Param& param, const Tensor& whole)>& read);

/// Fills `pieces`: calls `read` for each parameter of which they hold any element. Where one piece
/// holds the whole parameter, `read` fills it in place; several `threads` do so at once (null: this
/// thread alone). Otherwise `read` fills a temporary tensor of the whole parameter, one at a time,
/// from which the pieces' elements are copied. For a part of a parameter, `read` gets the whole
/// parameter: see fill_whole. Does not communicate.
void fill_pieces(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
                 ThreadPool* threads,
                 const std::function<void(const std::string& name, const nn::Param& param,
                                          const Tensor& whole)>& read);

/// Assigns each parameter of layout.trained() to one of `num_ranks` ranks so that bytes are even:
/// from the largest to the smallest, each goes to the rank with the fewest bytes so far. With fewer
/// parameters than ranks, the highest ranks get none. Returns a rank for each parameter.
std::vector<int> share_out(const FlatLayout& layout, int num_ranks);

/// The whole value of a parameter, or one whole tensor of its optimizer state.
struct WholeTensor {
  std::string name;  ///< of the flat vector
  const nn::Param* param = nullptr;
  Tensor tensor;  ///< of the parameter's shape
};

/// Puts the pieces of all ranks together to whole tensors, each on one rank, its taker. Every byte
/// is copied once, straight to its final place.
class WholeState {
 public:
  /// Exchanges the places (not the elements) of all pieces among the ranks. `layout` and the memory
  /// of `pieces` must outlive this. Each tensor is either whole on every rank, or its pieces on all
  /// ranks cover each element once. Every rank of `group` must call it; null: this rank is alone.
  WholeState(const FlatLayout& layout, std::span<const optim::StateTensor> pieces,
             comm::Group* group);

  /// Returns the taker of trained()[i] of the vector `name`: the same rank on all ranks.
  using Taker = std::function<int(const std::string& name, std::size_t i)>;
  /// Allocates the tensors of which this rank is the taker. Without `copies`, a tensor that this
  /// rank already holds whole is a view of its piece.
  void allocate(const Taker& taker, bool copies);
  /// After allocate(): moves the elements to the takers. Every rank of the group must call it.
  /// Returns when all tensors of this rank are complete.
  void collect();
  /// The tensors of which this rank is the taker: by name in the order in which ranks gave the
  /// pieces, and within a name in the order of trained().
  std::span<const WholeTensor> tensors() const { return tensors_; }

 private:
  struct Stretch {
    std::int64_t begin = 0, end = 0;  // elements of the flat vector
  };
  struct Vector {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<std::vector<Stretch>> held;  // by rank; each rank's are ascending
    std::vector<optim::StateTensor> mine;    // this rank's pieces, ascending
  };
  struct Move;  // one tensor that goes to its taker

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
  std::vector<std::vector<int>> takers_;  // by vector, by parameter; -1: no rank holds elements
  std::vector<WholeTensor> tensors_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace atl::parallel
