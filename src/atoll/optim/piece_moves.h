#pragma once

// How pieces of an optimizer's state come to where they are updated, and go back.

#include <cstddef>
#include <memory>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/tensor/file_arena.h"

namespace atl::optim {

/// Where a tensor of the state lies between updates, and where it lies while it is updated.
struct PieceMove {
  Tensor outside;
  Tensor inside;
};

/// Moves pieces through slots. For each piece, in order: start_read, finish_read, an update that is
/// queued on the run's stream, start_write. A slot's next start_read comes after its start_write.
/// All runs have the same stream.
class PieceMoves {
 public:
  virtual ~PieceMoves() = default;

  /// What the run's stream has queued so far may still use the slots.
  virtual void begin(Run& run) = 0;
  virtual void start_read(std::size_t slot, std::vector<PieceMove> moves) = 0;
  /// What the run's stream is given from here on finds the piece in its slot.
  virtual void finish_read(Run& run, std::size_t slot) = 0;
  virtual void start_write(Run& run, std::size_t slot, std::vector<PieceMove> moves) = 0;
  /// What the run's stream is given from here on may use the slots for other things.
  virtual void end(Run& run) = 0;
  /// Returns when nothing moves any more: the host may read and write what lies outside. Throws
  /// what a move threw.
  virtual void settle() = 0;
  /// The same after a call that threw.
  virtual void abandon() noexcept = 0;
};

/// To a CPU's memory and back, from a file: each on a thread.
std::unique_ptr<PieceMoves> file_moves(FileArena& file, std::size_t num_slots);
/// To a GPU's memory and back, from page-locked memory of the host, on a stream each way: the host
/// waits for nothing.
std::unique_ptr<PieceMoves> gpu_moves(Device& gpu, std::size_t num_slots);
/// The same from a file, by way of page-locked memory: `slots` (u8, flat) are the slots, of which
/// the host has as many bytes each. The host waits for files, and for a piece to have come back
/// before it is written.
std::unique_ptr<PieceMoves> gpu_file_moves(Device& gpu, FileArena& file, std::vector<Tensor> slots);

}  // namespace atl::optim
