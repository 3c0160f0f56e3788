#include "atoll/device/sdpa.h"

#include <cuda_runtime_api.h>

#include <map>

#include "atoll/base/error.h"
#include "atoll/device/cuda/runtime.h"
#include "atoll/device/cudnn/sdpa_graph.h"

namespace atl {

namespace {

class CudnnSdpa final : public Sdpa {
 public:
  explicit CudnnSdpa(cudaStream_t stream) {
    check(cudnnCreate(&handle_), "opening the library");
    check(cudnnSetStream(handle_, stream), "choosing a stream");
  }
  ~CudnnSdpa() override {
    graphs_.clear();
    cudnnDestroy(handle_);
  }
  CudnnSdpa(const CudnnSdpa&) = delete;
  CudnnSdpa& operator=(const CudnnSdpa&) = delete;

  void attend(const SdpaCall& call, const SdpaAddresses& addresses, void* workspace,
              std::size_t workspace_bytes) override {
    auto found = graphs_.find(call);
    if (found == graphs_.end()) found = graphs_.emplace(call, SdpaGraph(call, handle_)).first;
    const SdpaGraph& graph = found->second;
    if (graph.workspace_bytes() > workspace_bytes) {
      throw make_error(ErrorKind::kResource,
                       "cuDNN {} wants a workspace of {} bytes where {} are planned; set "
                       "device.attention=own (the call: {})",
                       cudnnGetVersion(), graph.workspace_bytes(), workspace_bytes, describe(call));
    }
    graph.run(handle_, addresses, workspace);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<SdpaCall, SdpaGraph> graphs_;
};

}  // namespace

bool has_cudnn() {
  return true;
}

std::string cudnn_problem() {
  int device = 0, major = 0, minor = 0;
  cuda::check(cudaGetDevice(&device), "asking which GPU is chosen");
  cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
              "asking a GPU for its compute capability");
  cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
              "asking a GPU for its compute capability");
  return sdpa_architecture_problem(major, minor);
}

std::unique_ptr<Sdpa> open_sdpa(void* stream) {
  return std::make_unique<CudnnSdpa>(static_cast<cudaStream_t>(stream));
}

}  // namespace atl
