// Pieces of state that go to a GPU, are updated there and come back, in every order of its streams.
// Whatever forgets a wait gives other numbers in one of these orders.

#include "atoll/optim/piece_moves.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/tensor/arena.h"

namespace atl::optim {
namespace {

constexpr std::size_t kNumSlots = 3;
constexpr std::size_t kNumPieces = 7;       // so that each slot is used again
constexpr std::int64_t kCount = 1024;       // elements of a piece: a page of a file
constexpr std::size_t kBytes = kCount * 4;  // of a piece
constexpr std::uint64_t kNumOrders = 16;

using Numbers = std::vector<std::int32_t>;

class Gpu {
 public:
  explicit Gpu(std::uint64_t order) : device({.seed = order}) {}

  Tensor slot(std::size_t number) const {
    return {static_cast<std::byte*>(memory_.data()) + number * kBytes,
            {Dtype::kI32, {kCount}},
            &device};
  }
  /// The slots as bytes.
  std::vector<Tensor> slots() const {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < kNumSlots; ++i) {
      all.push_back({slot(i).raw(), {Dtype::kU8, {static_cast<std::int64_t>(kBytes)}}, &device});
    }
    return all;
  }
  /// Queues what a kernel would do with a slot.
  void queue(std::size_t number, std::function<void(std::int32_t*)> work) {
    auto* const data = static_cast<std::int32_t*>(slot(number).raw());
    dynamic_cast<fake_cuda::FakeStream&>(*stream_).queue(
        [data, work = std::move(work)] { work(data); });
  }

  mutable fake_cuda::FakeCudaDevice device;

 private:
  std::unique_ptr<Stream> stream_ = device.open_stream();
  Buffer memory_{device, kNumSlots* kBytes};

 public:
  Run run = {.stream = stream_.get()};
};

// Two updates of all pieces, as OffloadedOptimizer makes them, between other work that uses the
// slots: x becomes 3 x + 1 twice.
void update_twice(Gpu& gpu, PieceMoves& moves, const std::vector<Tensor>& outside) {
  const auto start_read = [&](std::size_t piece) {
    moves.start_read(piece % kNumSlots, {{outside[piece], gpu.slot(piece % kNumSlots)}});
  };
  for (int update = 0; update < 2; ++update) {
    moves.begin(gpu.run);
    start_read(0);
    for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
      const std::size_t slot = piece % kNumSlots;
      if (piece + 1 < kNumPieces) start_read(piece + 1);
      moves.finish_read(gpu.run, slot);
      gpu.queue(slot, [](std::int32_t* x) {
        for (std::int64_t i = 0; i < kCount; ++i) x[i] = 3 * x[i] + 1;
      });
      moves.start_write(gpu.run, slot, {{outside[piece], gpu.slot(slot)}});
    }
    moves.end(gpu.run);
    for (std::size_t slot = 0; slot < kNumSlots; ++slot) {
      gpu.queue(slot, [](std::int32_t* x) { std::fill_n(x, kCount, -1); });
    }
  }
  moves.settle();
}

// What the slots hold before an update is read by work that was queued before it.
void expect_updates(Gpu& gpu, PieceMoves& moves, const std::vector<Tensor>& outside) {
  for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
    auto* const x = static_cast<std::int32_t*>(outside[piece].raw());
    std::iota(x, x + kCount, static_cast<std::int32_t>(piece) * 100000);
  }
  std::vector<Numbers> before(kNumSlots, Numbers(kCount, -2));
  for (std::size_t slot = 0; slot < kNumSlots; ++slot) {
    gpu.queue(slot,
              [&to = before[slot]](const std::int32_t* x) { std::copy_n(x, kCount, to.begin()); });
  }
  update_twice(gpu, moves, outside);
  for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
    const auto* const x = static_cast<const std::int32_t*>(outside[piece].raw());
    for (std::int64_t i = 0; i < kCount; ++i) {
      const std::int64_t first = static_cast<std::int64_t>(piece) * 100000 + i;
      ASSERT_EQ(x[i], 9 * first + 4) << "element " << i << " of piece " << piece;
    }
  }
  gpu.run.stream->synchronize();
  for (const Numbers& numbers : before) EXPECT_EQ(numbers, Numbers(kCount, 0));
}

TEST(PieceMoves, OfAGpuWaitForWhatTheyMustInEveryOrderOfStreams) {
  for (std::uint64_t order = 0; order < kNumOrders; ++order) {
    SCOPED_TRACE(order);
    Gpu gpu(order);
    const Buffer memory(gpu.device, kNumPieces * kBytes, MemoryKind::kHost);
    std::vector<Tensor> outside;
    for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
      outside.push_back(
          {static_cast<std::byte*>(memory.data()) + piece * kBytes, {Dtype::kI32, {kCount}}});
    }
    const auto moves = gpu_moves(gpu.device, kNumSlots);
    expect_updates(gpu, *moves, outside);
  }
}

TEST(PieceMoves, OfAGpuAndAFileWaitForWhatTheyMustInEveryOrderOfStreams) {
  namespace fs = std::filesystem;
  const fs::path directory =
      fs::temp_directory_path() / fmt::format("atoll-piece-moves-{}", ::getpid());
  const auto cpu = open_cpu(1);
  for (std::uint64_t order = 0; order < kNumOrders; ++order) {
    SCOPED_TRACE(order);
    Gpu gpu(order);
    MemoryPlan plan;
    for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
      plan.request_forever("piece", "pieces", kBytes);
    }
    FileArena file(*cpu, directory, plan);
    std::vector<Tensor> outside;
    for (std::size_t piece = 0; piece < kNumPieces; ++piece) {
      outside.push_back(file.arena().tensor(static_cast<int>(piece), {Dtype::kI32, {kCount}}));
    }
    const auto moves = gpu_file_moves(gpu.device, file, gpu.slots());
    expect_updates(gpu, *moves, outside);
  }
  fs::remove_all(directory);
}

// A read that an update never comes to has ended, too: the host writes where it read.
TEST(PieceMoves, OfAGpuThatAreAbandonedHaveEnded) {
  Gpu gpu(0);
  const Buffer memory(gpu.device, kBytes, MemoryKind::kHost);
  const auto moves = gpu_moves(gpu.device, kNumSlots);
  moves->begin(gpu.run);
  moves->start_read(0, {{{memory.data(), {Dtype::kI32, {kCount}}}, gpu.slot(0)}});
  moves->abandon();
  std::fill_n(static_cast<std::int32_t*>(memory.data()), kCount, 7);
  Numbers moved(kCount, -2);
  gpu.device.copy_now(moved.data(), gpu.slot(0).raw(), kBytes);  // behind all that is queued
  EXPECT_EQ(moved, Numbers(kCount, 0));
}

}  // namespace
}  // namespace atl::optim
