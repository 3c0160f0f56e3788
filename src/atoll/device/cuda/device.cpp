#include "atoll/device/device.h"

#include <cstring>

#include "atoll/base/memory_error.h"
#include "atoll/base/quantity.h"
#include "atoll/device/cuda/runtime.h"
#include "atoll/device/gpu_figures.h"

namespace atl {

namespace {

constexpr double kGib = 1 << 30;

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties)
      : index_(index),
        name_(properties.name),
        total_memory_(properties.totalGlobalMem),
        threads_(1) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  std::size_t total_memory() const override { return total_memory_; }

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
    return std::make_unique<cuda::CudaStream>(*this, index_);
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
};

// Without a driver the runtime says "insufficient driver", which sends people to the wrong fix.
std::string problem_of(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no CUDA device: no NVIDIA driver is loaded";
  }
  if (status == cudaErrorNoDevice) return "no CUDA device: the driver sees no GPU";
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  return fmt::format("no CUDA device: {}; the driver serves CUDA {}.{}, this atoll wants {}.{}",
                     cudaGetErrorString(status), driver / 1000, driver % 1000 / 10, runtime / 1000,
                     runtime % 1000 / 10);
}

}  // namespace

GpuReport probe_gpus() {
  GpuReport report{true, {}, ""};
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    report.problem = problem_of(status == cudaSuccess ? cudaErrorNoDevice : status);
    return report;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, index), "asking a GPU for its properties");
    std::string line = fmt::format(
        "cuda:{}: {}, {:.1f} GiB, compute capability {}.{}", index, properties.name,
        static_cast<double>(properties.totalGlobalMem) / kGib, properties.major, properties.minor);
    if (const GpuFigures* figures = find_gpu_figures(properties.name)) {
      line += fmt::format(", {} TFLOP/s in bf16 and {} GB/s as its maker states",
                          figures->bf16_tflops, figures->gb_per_s);
    }
    report.devices.push_back(std::move(line));
  }
  return report;
}

std::unique_ptr<Device> open_cuda(int index) {
  const GpuReport report = probe_gpus();
  if (!report.problem.empty()) {
    throw user_error("device cuda:{} cannot be used: {}", index, report.problem);
  }
  if (index < 0 || index >= static_cast<int>(report.devices.size())) {
    throw user_error("there is no device cuda:{}; this machine has cuda:0 to cuda:{}", index,
                     report.devices.size() - 1);
  }
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "asking a GPU for its properties");
  return std::make_unique<CudaDevice>(index, properties);
}

}  // namespace atl
