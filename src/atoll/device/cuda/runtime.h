#pragma once

// The CUDA runtime's return codes as errors, and its streams as Streams.

#include <cuda_runtime_api.h>

#include <string_view>

#include "atoll/device/device.h"

namespace atl::cuda {

/// Throws Error(kResource) when `status` is not success; `what` says what was being done.
void check(cudaError_t status, std::string_view what);

/// A stream of its own on a GPU: work queued on it runs behind the host thread, in order.
class CudaStream final : public Stream {
 public:
  /// Opens a stream on GPU `index`, which `device` is and which must outlive the stream.
  CudaStream(Device& device, int index);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// Throws Error(kResource) when something queued before has failed.
  void synchronize() override;
  /// For cuBLAS, cuDNN and kernel launches.
  cudaStream_t native() const { return stream_; }

 private:
  int index_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace atl::cuda
