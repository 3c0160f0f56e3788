#include "atoll/device/device.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/hash.h"
#include "atoll/base/processes/memory_error.h"
#include "atoll/base/quantity.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/cuda/runtime.h"
#include "atoll/device/free_memory.h"
#include "atoll/device/gpu_figures.h"
#include "atoll/device/gpu_support.h"

namespace atl {

namespace {

constexpr double kGib = 1 << 30;

class CudaDevice final : public Device, public FreeMemory {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties, int num_threads)
      : index_(index),
        name_(properties.name),
        total_memory_(properties.totalGlobalMem),
        threads_(num_threads) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  std::size_t total_memory() const override { return total_memory_; }

  std::size_t free_memory() override {
    cuda::check(cudaSetDevice(index_), "choosing a GPU");
    std::size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "asking a GPU for its free memory");
    return free;
  }

  void* allocate(std::size_t bytes) override {
    if (bytes == 0) bytes = 1;
    cuda::check(cudaSetDevice(index_), "choosing a GPU");
    void* data = nullptr;
    if (const cudaError_t status = cudaMalloc(&data, bytes); status != cudaSuccess) {
      cudaGetLastError();  // the refusal must not surface again from a later call
      throw MemoryError(fmt::format("{} refused {} of memory ({} installed): {}", name_,
                                    format_bytes(bytes), format_bytes(total_memory_),
                                    cudaGetErrorString(status)));
    }
    zero(data, bytes);
    return data;
  }

  void deallocate(void* data, std::size_t) noexcept override { cudaFree(data); }

  void* allocate_host(std::size_t bytes) override {
    if (bytes == 0) bytes = 1;
    cuda::check(cudaSetDevice(index_), "choosing a GPU");
    void* data = nullptr;
    if (const cudaError_t status = cudaMallocHost(&data, bytes); status != cudaSuccess) {
      cudaGetLastError();  // the refusal must not surface again from a later call
      throw MemoryError(fmt::format("{} of page-locked memory are not to be had: {}",
                                    format_bytes(bytes), cudaGetErrorString(status)));
    }
    std::memset(data, 0, bytes);
    return data;
  }

  void deallocate_host(void* data, std::size_t) noexcept override { cudaFreeHost(data); }
  ThreadPool& threads() override { return threads_; }

  std::unique_ptr<Stream> open_stream() override {
    return std::make_unique<cuda::CudaStream>(*this, index_, open_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cuda::CudaEvent>(index_); }

  void copy_now(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    cuda::check(cudaSetDevice(index_), "choosing a GPU");
    cuda::check(cudaDeviceSynchronize(), "waiting for a GPU before a copy");
    cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying");
    // Between two places on the GPU the call above only queues.
    cuda::check(cudaStreamSynchronize(nullptr), "waiting for a copy");
  }

 private:
  // The fill runs behind the host; streams of our own do not wait for the default one, so wait
  // here.
  void zero(void* data, std::size_t bytes) {
    cudaError_t status = cudaMemset(data, 0, bytes);
    if (status == cudaSuccess) status = cudaStreamSynchronize(nullptr);
    if (status == cudaSuccess) return;
    cudaFree(data);
    cuda::check(status, "zeroing new memory");
  }

  int index_;
  std::string name_;
  std::size_t total_memory_;
  ThreadPool threads_;
  cuda::OpenStreams open_;
};

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "asking a GPU for its properties");
  return properties;
}

// Of each GPU that the driver sees.
std::vector<std::string> problems_of(const DriverFacts& facts) {
  std::vector<std::string> problems;
  for (int index = 0; index < facts.num_gpus; ++index) {
    const cudaDeviceProp properties = properties_of(index);
    problems.push_back(gpu_problem(properties.name, properties.major, properties.minor));
  }
  return problems;
}

DriverFacts ask_driver() {
  DriverFacts facts;
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  cudaRuntimeGetVersion(&facts.runtime);
  const cudaError_t status = cudaGetDeviceCount(&facts.num_gpus);
  if (status == cudaSuccess) return facts;
  cudaGetLastError();  // the refusal must not surface again from a later call
  facts.num_gpus = 0;
  if (status != cudaErrorNoDevice) facts.status = cudaGetErrorString(status);
  return facts;
}

}  // namespace

GpuReport probe_gpus() {
  GpuReport report{true, {}, ""};
  const DriverFacts facts = ask_driver();
  report.problem = driver_problem(facts);
  if (!report.problem.empty()) return report;
  for (int index = 0; index < facts.num_gpus; ++index) {
    const cudaDeviceProp properties = properties_of(index);
    std::string line = fmt::format(
        "cuda:{}: {}, {:.1f} GiB, compute capability {}.{}", index, properties.name,
        static_cast<double>(properties.totalGlobalMem) / kGib, properties.major, properties.minor);
    if (const GpuFigures* figures = find_gpu_figures(properties.name)) {
      line += fmt::format(", {} TFLOP/s in bf16 and {} GB/s as its maker states",
                          figures->bf16_tflops, figures->gb_per_s);
    }
    report.devices.push_back(std::move(line));
  }
  const std::vector<std::string> problems = problems_of(facts);
  const auto usable = [](const std::string& problem) { return problem.empty(); };
  if (std::none_of(problems.begin(), problems.end(), usable)) report.problem = problems.front();
  return report;
}

std::vector<std::string> gpu_problems() {
  const DriverFacts facts = ask_driver();
  return driver_problem(facts).empty() ? problems_of(facts) : std::vector<std::string>();
}

std::vector<std::int64_t> gpu_identities() {
  std::vector<std::int64_t> all;
  for (std::size_t index = 0; index < gpu_problems().size(); ++index) {
    const cudaDeviceProp properties = properties_of(static_cast<int>(index));
    Hasher hasher;
    hasher.update(&properties.uuid, sizeof properties.uuid);
    all.push_back(static_cast<std::int64_t>(hasher.digest().low | 1));
  }
  return all;
}

std::pair<int, int> compute_capability() {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "asking which GPU is chosen");
  const cudaDeviceProp properties = properties_of(device);
  return {properties.major, properties.minor};
}

std::unique_ptr<Device> open_cuda(int index) {
  return open_cuda(index, 1);
}

std::unique_ptr<Device> open_cuda(int index, int num_threads) {
  const std::vector<std::string> problems = gpu_problems();
  const auto num_gpus = static_cast<int>(problems.size());
  if (num_gpus == 0) {
    throw user_error("device cuda:{} cannot be used: {}", index, probe_gpus().problem);
  }
  if (index < 0 || index >= num_gpus) {
    throw user_error(
        "there is no device cuda:{}; this process sees {}; leave --device.index out or name one of "
        "these, and start no more ranks than GPUs",
        index, num_gpus == 1 ? "cuda:0 alone" : fmt::format("cuda:0 to cuda:{}", num_gpus - 1));
  }
  const std::string& problem = problems[static_cast<std::size_t>(index)];
  if (!problem.empty()) throw user_error("device cuda:{} cannot be used: {}", index, problem);
  auto device = std::make_unique<CudaDevice>(index, properties_of(index), num_threads);
  device->free_memory();  // makes this process known to the GPU, which may refuse it
  return device;
}

}  // namespace atl
