// How long each kernel and each copy of a program on a GPU takes, all calls together: a library
// that CUDA loads into the program. bench/cuda/runs.py kernels uses it.
//
//   export CUDA_INJECTION64_PATH=$PWD/build/cuda/bench/libkernel_times.so
//   KERNEL_TIMES=times.txt PROGRAM...
//
// Several times a second times.txt is written anew, one line each: calls, microseconds in all, and
// the name, with its grid, its block and its shared memory. The program may be killed. Built where
// the CUDA toolkit has CUPTI.

#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Total {
  unsigned long long calls = 0, nanoseconds = 0;
};

std::mutex mutex;
std::map<std::string, Total> totals;

void add(const std::string& name, unsigned long long begin, unsigned long long end) {
  if (end <= begin) return;  // not over yet
  Total& total = totals[name];
  ++total.calls;
  total.nanoseconds += end - begin;
}

std::string readable(const char* name) {
  if (name == nullptr) return "?";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

void add_record(const CUpti_Activity& record) {
  char text[128] = "";
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
      std::snprintf(text, sizeof text, " [%d x %d blocks of %d, %d bytes]", kernel.gridX,
                    kernel.gridY, kernel.blockX, kernel.dynamicSharedMemory);
      return add(readable(kernel.name) + text, kernel.start, kernel.end);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
      const char* const kind = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "to the GPU"
                               : copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "from the GPU"
                                                                                  : "on the GPU";
      std::snprintf(text, sizeof text, "copy %s, %llu MiB", kind,
                    static_cast<unsigned long long>(copy.bytes >> 20));
      return add(text, copy.start, copy.end);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      return add("memset", set.start, set.end);
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *size = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t filled) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, filled, &record) == CUPTI_SUCCESS) add_record(*record);
  std::free(buffer);
}

void write(const std::string& path) {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(mutex);
  std::vector<std::pair<std::string, Total>> all(totals.begin(), totals.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  const std::string unfinished = path + ".new";
  std::FILE* const file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) return;
  for (const auto& [name, total] : all) {
    std::fprintf(file, "%llu %.1f %s\n", total.calls, static_cast<double>(total.nanoseconds) / 1000,
                 name.c_str());
  }
  std::fclose(file);
  std::rename(unfinished.c_str(), path.c_str());
}

}  // namespace

// CUDA calls it before the program's first call.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("KERNEL_TIMES");
  if (path == nullptr) return 1;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  std::thread([path = std::string(path)] {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      write(path);
    }
  }).detach();
  return 1;
}
