#pragma once

// Planned memory that lies in a scratch file: for what is too large for memory, and is used a piece
// at a time.

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>

#include "atoll/base/files/scratch_file.h"
#include "atoll/base/threads/task_thread.h"
#include "atoll/tensor/arena.h"

namespace atl {

/// The same requests, with whole pages of a file for each: what such a plan places begins on one.
/// All of them live all the time.
MemoryPlan in_whole_pages(const MemoryPlan& plan);

/// Memory that somebody else owns, as an Arena takes it from a device.
class GivenMemory : public Device {
 public:
  /// `device` and `memory` must outlive this.
  GivenMemory(Device& device, std::byte* memory) : device_(device), memory_(memory) {}

  DeviceKind kind() const override { return device_.kind(); }
  std::string name() const override { return device_.name(); }
  std::size_t total_memory() const override { return device_.total_memory(); }
  void* allocate(std::size_t /*bytes*/) override { return memory_; }
  void deallocate(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
  ThreadPool& threads() override { return device_.threads(); }

 private:
  Device& device_;
  std::byte* memory_;
};

/// A MemoryPlan's requests in a file. Its tensors are views of the mapped file: the host may use
/// them as any other, and the system then reads and writes pages of the file as they are touched,
/// which is right for what is not in a hurry (checkpoints, initial values). What a step needs is
/// moved with start_read and start_write, beside the caller and past the page cache.
class FileArena {
 public:
  /// The file of `plan`, in `directory`; see ScratchFile for what this throws. The device, whose
  /// host can use the tensors, must outlive this.
  FileArena(Device& device, const std::filesystem::path& directory, const MemoryPlan& plan);

  /// What such a file takes of the disk.
  static std::size_t bytes_of(const MemoryPlan& plan);

  /// Its tensors, by the numbers of the plan's requests.
  const Arena& arena() const { return *arena_; }
  /// Whether `tensor` is a view of this file.
  bool holds(const Tensor& tensor) const;
  /// Where in a page of the file a tensor of it begins. Memory that begins there in a page of
  /// memory is moved past the page cache.
  std::size_t place_in_page(const Tensor& tensor) const;

  /// Moves a tensor of this file to memory, or back; same bytes. Reads run one after the other, and
  /// so do writes, beside each other. `to` belongs to the transfer until the future is ready, which
  /// throws what went wrong; who reads what was being written waits for the writing first.
  std::future<void> start_read(const Tensor& from, const Tensor& to);
  std::future<void> start_write(const Tensor& from, const Tensor& to);

 private:
  std::uint64_t offset_of(const Tensor& tensor) const;

  ScratchFile file_;
  std::unique_ptr<GivenMemory> memory_;
  std::unique_ptr<Arena> arena_;
  TaskThread reads_, writes_;
};

/// Of a view of a FileArena: gives back the memory that the system has for it, once it is not used
/// for a while; its elements stay in the file. Does nothing to another tensor.
void give_back(const Tensor& tensor);

/// Waits for a transfer, if one is under way; none is afterwards. Throws what it threw.
void finish(std::future<void>& transfer);

}  // namespace atl
