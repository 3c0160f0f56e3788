#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/optim/piece_moves.h"
#include "atoll/tensor/file_arena.h"
#include "atoll/tensor/host_memory.h"

namespace atl::optim {

/// How an optimizer's state lies elsewhere.
struct OffloadOptions {
  /// The most elements that an update reads, changes and writes at once; Muon's matrices may be
  /// larger.
  std::int64_t piece_elements = 1 << 20;
  /// Whether the values and the gradients that update() is given lie in the file too.
  bool values_in_file = false;
  bool grads_in_file = false;
};

/// Any optimizer, its state in a file or, where a GPU updates, in the host's memory. An update goes
/// over the flat vector piece by piece: while one is updated in memory, the next is read and the
/// one before is written (Rajbhandari et al. 2021, "ZeRO-Infinity", section 5.2). A piece is some
/// ranges, with an optimizer of their own, which makes the same update of each element as one for
/// all of them would. A GPU makes updates on itself, with streams of their own for what comes and
/// goes, so its bits do not change either.
class OffloadedOptimizer final : public Optimizer {
 public:
  /// As for make_optimizer.
  OffloadedOptimizer(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges,
                     const OffloadOptions& offload);
  ~OffloadedOptimizer() override;

  /// Asks `file` for the state. And memory for three pieces, of the time of the update alone.
  void request_file(MemoryPlan& file);
  void request(MemoryPlan& plan) override;
  /// The file must outlive this; before bind().
  void bind_file(FileArena& file);
  /// In place of a file, page-locked memory of the host of a GPU, which must outlive this; the plan
  /// is that of request_file(), placed.
  void take_host_memory(Device& gpu, const MemoryPlan& plan);
  void bind(const Arena& arena) override;

  void init_masters(Run& run, Tensor values) override;
  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override;
  /// Views of the mapped file, or of the host's memory; waits until nothing moves.
  std::vector<StateTensor> state() const override;
  std::size_t scratch_bytes() const override;

  /// How many pieces an update has.
  std::size_t num_pieces() const;

 private:
  static constexpr std::size_t kSlots = 3;  // one is read, one updated, one written
  struct Piece;
  struct Slot {
    int request = -1;
    Tensor memory;  // bytes, from the beginning of a page
  };

  void cut(const OptimizerOptions& options, std::span<const ParamRange> ranges, bool whole);
  void plan_slots();
  void make_moves();
  void start_read(std::size_t number, const Tensor& values, const Tensor& grads);
  void start_write(Run& run, std::size_t number, const Tensor& values);
  bool lies_as_planned(const Tensor& flat, bool in_file) const;
  template <typename Change>
  void over_pieces(Run& run, const Tensor& values, const Tensor& grads, Change&& change);
  // Of a piece: what it has of a flat vector of the file, and where that lies in its slot.
  Tensor part_of(const Piece& piece, const Tensor& flat, bool is_values) const;
  Tensor staged(std::size_t number, const Tensor& part, std::size_t at) const;

  Spec flat_;
  OffloadOptions offload_;
  std::unique_ptr<Optimizer> whole_;  // all of it, bound to where it lies between updates
  std::vector<Piece> pieces_;
  std::array<Slot, kSlots> slots_;
  std::size_t slot_bytes_ = 0, values_at_ = 0, grads_at_ = 0;
  bool has_masters_ = false;
  FileArena* file_ = nullptr;
  std::optional<HostMemory> host_;  // in place of a file, and what it has given
  std::unique_ptr<Arena> host_arena_;
  std::unique_ptr<PieceMoves> moves_;
};

}  // namespace atl::optim
