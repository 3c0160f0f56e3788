#include "atoll/optim/piece_moves.h"

#include <future>

#include "atoll/tensor/host_access.h"
#include "atoll/tensor/paged_memory.h"

namespace atl::optim {

namespace {

using Futures = std::vector<std::future<void>>;

void finish_all(Futures& futures) {
  for (std::future<void>& future : futures) finish(future);
  futures.clear();
}

// Nothing moves any more afterwards, whatever any of them throws.
void wait_all(Futures& futures) noexcept {
  for (std::future<void>& future : futures) {
    if (future.valid()) future.wait();
  }
  futures.clear();
}

class FileMoves final : public PieceMoves {
 public:
  FileMoves(FileArena& file, std::size_t num_slots)
      : file_(file), reads_(num_slots), writes_(num_slots) {}
  ~FileMoves() override { FileMoves::abandon(); }

  void begin(Run& /*run*/) override {}
  void start_read(std::size_t slot, std::vector<PieceMove> moves) override {
    finish_all(writes_[slot]);
    for (const PieceMove& move : moves) {
      reads_[slot].push_back(file_.start_read(move.outside, move.inside));
    }
  }
  void finish_read(Run& /*run*/, std::size_t slot) override { finish_all(reads_[slot]); }
  void start_write(Run& /*run*/, std::size_t slot, std::vector<PieceMove> moves) override {
    for (const PieceMove& move : moves) {
      writes_[slot].push_back(file_.start_write(move.inside, move.outside));
    }
  }
  void end(Run& /*run*/) override { settle(); }
  void settle() override {
    for (Futures& writes : writes_) finish_all(writes);
  }
  void abandon() noexcept override {
    for (std::vector<Futures>* each : {&reads_, &writes_}) {
      for (Futures& futures : *each) wait_all(futures);
    }
  }

 private:
  FileArena& file_;
  std::vector<Futures> reads_, writes_;  // of each slot
};

// Two streams, so that both ways of the bus are used at once.
class GpuMoves : public PieceMoves {
 public:
  GpuMoves(Device& gpu, std::size_t num_slots)
      : in_(gpu.open_stream()),
        out_(gpu.open_stream()),
        begun_(gpu.make_event()),
        all_written_(gpu.make_event()) {
    for (std::size_t i = 0; i < num_slots; ++i) {
      slots_.push_back({gpu.make_event(), gpu.make_event(), gpu.make_event()});
    }
  }

  ~GpuMoves() override { GpuMoves::abandon(); }

  // The run's stream is behind all that the update before has written.
  void begin(Run& run) override {
    begun_->record(*run.stream);
    in_->wait(*begun_);
  }
  void start_read(std::size_t slot, std::vector<PieceMove> moves) override {
    in_->wait(*slots_[slot].written);
    for (const PieceMove& move : moves) queue_copy(*in_, move.outside, move.inside);
    slots_[slot].arrived->record(*in_);
  }
  void finish_read(Run& run, std::size_t slot) override { run.stream->wait(*slots_[slot].arrived); }
  void start_write(Run& run, std::size_t slot, std::vector<PieceMove> moves) override {
    slots_[slot].updated->record(*run.stream);
    out_->wait(*slots_[slot].updated);
    for (const PieceMove& move : moves) queue_copy(*out_, move.inside, move.outside);
    slots_[slot].written->record(*out_);
  }
  void end(Run& run) override {
    all_written_->record(*out_);
    run.stream->wait(*all_written_);
  }
  void settle() override {
    in_->synchronize();
    out_->synchronize();
  }
  void abandon() noexcept override {
    try {
      GpuMoves::settle();
    } catch (...) {  // a GPU that is lost copies nothing any more
    }
  }

 protected:
  void wait_until_written(std::size_t slot) { slots_[slot].written->wait(); }

 private:
  struct Slot {
    std::unique_ptr<Event> arrived, updated, written;
  };
  std::unique_ptr<Stream> in_, out_;
  std::unique_ptr<Event> begun_, all_written_;
  std::vector<Slot> slots_;
};

class GpuFileMoves final : public GpuMoves {
 public:
  GpuFileMoves(Device& gpu, FileArena& file, std::vector<Tensor> slots)
      : GpuMoves(gpu, slots.size()),
        files_(file, slots.size()),
        slots_(std::move(slots)),
        reading_(slots_.size()),
        leaving_(slots_.size()) {
    for (const Tensor& slot : slots_) {
      // A page more: it begins on one, as what the slots have lies in the pages of the file.
      memory_.emplace_back(gpu, slot.bytes() + kFilePage, MemoryKind::kHost);
    }
  }

  ~GpuFileMoves() override { GpuFileMoves::abandon(); }

  void start_read(std::size_t slot, std::vector<PieceMove> moves) override {
    write_to_file(slot);
    std::vector<PieceMove> from_file;
    for (const PieceMove& move : moves) {
      from_file.push_back({move.outside, on_host(slot, move.inside)});
    }
    files_.start_read(slot, std::move(from_file));
    reading_[slot] = std::move(moves);
  }
  void finish_read(Run& run, std::size_t slot) override {
    files_.finish_read(run, slot);
    GpuMoves::start_read(slot, from_host(slot, reading_[slot]));
    GpuMoves::finish_read(run, slot);
  }
  // The piece before has most likely come back while this one was updated.
  void start_write(Run& run, std::size_t slot, std::vector<PieceMove> moves) override {
    GpuMoves::start_write(run, slot, from_host(slot, moves));
    run_ = &run;
    leaving_[slot] = std::move(moves);
    for (std::size_t other = 0; other < slots_.size(); ++other) {
      if (other != slot) write_to_file(other);
    }
  }
  void end(Run& run) override {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) write_to_file(slot);
    GpuMoves::end(run);
    files_.settle();
  }
  void settle() override {
    GpuMoves::settle();
    files_.settle();
  }
  void abandon() noexcept override {
    GpuMoves::abandon();
    files_.abandon();
    for (std::vector<PieceMove>& moves : leaving_) moves.clear();
  }

 private:
  // Host memory that lies as a slot's does.
  Tensor on_host(std::size_t slot, const Tensor& inside) const {
    const Tensor pages = from_first_page(
        tensor_in(memory_[slot], {Dtype::kU8, {static_cast<std::int64_t>(memory_[slot].bytes())}}));
    return at_same_place(inside, slots_[slot], pages);
  }
  std::vector<PieceMove> from_host(std::size_t slot, const std::vector<PieceMove>& moves) const {
    std::vector<PieceMove> all;
    for (const PieceMove& move : moves) all.push_back({on_host(slot, move.inside), move.inside});
    return all;
  }
  void write_to_file(std::size_t slot) {
    if (leaving_[slot].empty()) return;
    wait_until_written(slot);
    std::vector<PieceMove> to_file;
    for (const PieceMove& move : leaving_[slot]) {
      to_file.push_back({move.outside, on_host(slot, move.inside)});
    }
    leaving_[slot].clear();
    files_.start_write(*run_, slot, std::move(to_file));
  }

  std::vector<Buffer> memory_;
  FileMoves files_;
  std::vector<Tensor> slots_;
  std::vector<std::vector<PieceMove>> reading_, leaving_;  // of each slot
  Run* run_ = nullptr;                                     // of the update under way
};

}  // namespace

std::unique_ptr<PieceMoves> file_moves(FileArena& file, std::size_t num_slots) {
  return std::make_unique<FileMoves>(file, num_slots);
}

std::unique_ptr<PieceMoves> gpu_moves(Device& gpu, std::size_t num_slots) {
  return std::make_unique<GpuMoves>(gpu, num_slots);
}

std::unique_ptr<PieceMoves> gpu_file_moves(Device& gpu, FileArena& file,
                                           std::vector<Tensor> slots) {
  return std::make_unique<GpuFileMoves>(gpu, file, std::move(slots));
}

}  // namespace atl::optim
