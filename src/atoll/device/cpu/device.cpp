#include "atoll/device/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "atoll/base/error.h"
#include "atoll/base/processes/cgroup.h"
#include "atoll/base/processes/memory_error.h"
#include "atoll/base/quantity.h"

namespace atl {

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : threads_(num_threads) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override {
    return fmt::format("{}, {}", cpu_model(), counted(threads_.num_threads(), "thread"));
  }
  std::size_t total_memory() const override { return usable_memory(); }
  void* allocate(std::size_t bytes) override {
    if (bytes == 0) bytes = 1;
    // The system may well say yes to what it then kills the process for.
    if (bytes > total_memory() + swap_memory()) refuse(bytes);
    // mmap rather than malloc: zeroed, page-aligned, and given back to the system at once.
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) refuse(bytes);
    ::madvise(data, bytes, MADV_HUGEPAGE);  // only advice: fewer TLB misses where granted
    return data;
  }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    ::munmap(data, bytes == 0 ? 1 : bytes);
  }
  ThreadPool& threads() override { return threads_; }

 private:
  [[noreturn]] void refuse(std::size_t bytes) const {
    throw MemoryError(fmt::format("{} of memory are not to be had ({} may be used here)",
                                  format_bytes(bytes), format_bytes(total_memory())));
  }

  ThreadPool threads_;
};

}  // namespace

std::unique_ptr<Device> open_cpu(int num_threads) {
  return std::make_unique<CpuDevice>(num_threads == 0 ? available_cpus() : num_threads);
}

std::string cpu_features() {
  std::string features;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) features += "avx512 ";
  if (__builtin_cpu_supports("avx512bf16")) features += "avx512_bf16 ";
  if (__builtin_cpu_supports("avx2")) features += "avx2 ";
  if (__builtin_cpu_supports("fma")) features += "fma ";
#elif defined(__aarch64__)
  features += "neon ";
#endif
  if (!features.empty()) features.pop_back();
  return features;
}

}  // namespace atl
