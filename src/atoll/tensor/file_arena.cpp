#include "atoll/tensor/file_arena.h"

#include "atoll/base/error.h"

namespace atl {

namespace {

// The memory of a mapped file.
class FileMemory final : public GivenMemory {
 public:
  FileMemory(Device& device, const ScratchFile& file)
      : GivenMemory(device, file.mapped()), file_(file) {}

  // The host's, also beside a GPU.
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const ScratchFile& file() const { return file_; }

 private:
  const ScratchFile& file_;
};

}  // namespace

MemoryPlan in_whole_pages(const MemoryPlan& plan) {
  MemoryPlan pages;
  for (const Placement& at : plan.placements()) {
    const std::size_t bytes = (at.bytes + kFilePage - 1) / kFilePage * kFilePage;
    pages.request_forever(at.name, at.group, bytes);
  }
  pages.place();
  return pages;
}

std::size_t FileArena::bytes_of(const MemoryPlan& plan) {
  return in_whole_pages(plan).total_bytes();
}

FileArena::FileArena(Device& device, const std::filesystem::path& directory, const MemoryPlan& plan)
    : file_(directory, bytes_of(plan)), memory_(std::make_unique<FileMemory>(device, file_)) {
  arena_ = std::make_unique<Arena>(*memory_, in_whole_pages(plan));
}

bool FileArena::holds(const Tensor& tensor) const {
  const auto* at = static_cast<const std::byte*>(tensor.raw());
  return at != nullptr && at >= file_.mapped() && at < file_.mapped() + file_.bytes();
}

std::uint64_t FileArena::offset_of(const Tensor& tensor) const {
  ATOLL_CHECK(holds(tensor), "{} does not lie in the file", tensor.spec().to_string());
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(tensor.raw()) - file_.mapped());
}

std::size_t FileArena::place_in_page(const Tensor& tensor) const {
  return offset_of(tensor) % kFilePage;
}

std::future<void> FileArena::start_read(const Tensor& from, const Tensor& to) {
  ATOLL_CHECK_EQ(from.bytes(), to.bytes());
  return reads_.start([this, offset = offset_of(from), to] {
    file_.read(offset, {static_cast<std::byte*>(to.raw()), to.bytes()});
  });
}

std::future<void> FileArena::start_write(const Tensor& from, const Tensor& to) {
  ATOLL_CHECK_EQ(from.bytes(), to.bytes());
  return writes_.start([this, offset = offset_of(to), from] {
    file_.write(offset, {static_cast<const std::byte*>(from.raw()), from.bytes()});
  });
}

void give_back(const Tensor& tensor) {
  const auto* memory = dynamic_cast<const FileMemory*>(tensor.device());
  if (memory == nullptr || tensor.bytes() == 0) return;
  const ScratchFile& file = memory->file();
  const auto offset = static_cast<const std::byte*>(tensor.raw()) - file.mapped();
  file.give_back(static_cast<std::uint64_t>(offset), tensor.bytes());
}

void finish(std::future<void>& transfer) {
  if (transfer.valid()) transfer.get();
}

}  // namespace atl
