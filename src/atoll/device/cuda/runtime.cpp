#include "atoll/device/cuda/runtime.h"

#include "atoll/base/error.h"

namespace atl::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  throw make_error(ErrorKind::kResource, "CUDA: {}: {} ({})", what, cudaGetErrorString(status),
                   cudaGetErrorName(status));
}

CudaStream::CudaStream(Device& device, int index) : Stream(device), index_(index) {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  // Non-blocking: the legacy default stream, which a library may use, must not serialise this one.
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "opening a stream");
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(stream_);
}

void CudaStream::synchronize() {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  check(cudaStreamSynchronize(stream_), "waiting for a stream");
}

}  // namespace atl::cuda
