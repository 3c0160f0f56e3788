#include "atoll/device/cuda/runtime.h"

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/gpu_support.h"

namespace atl::cuda {

void OpenStreams::add(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void OpenStreams::remove(cudaStream_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}

std::vector<cudaStream_t> OpenStreams::all() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

void order_after_all(Stream& stream) {
  auto& late = dynamic_cast<CudaStream&>(stream);
  check(cudaSetDevice(late.index()), "choosing the GPU of a stream");
  for (const cudaStream_t early : late.open_streams().all()) {
    if (early == late.native()) continue;
    CudaEvent point(late.index());
    check(cudaEventRecord(point.native(), early), "recording an event");
    check(cudaStreamWaitEvent(late.native(), point.native(), 0), "queueing a wait for an event");
  }
}

CudaStream::CudaStream(Device& device, int index, OpenStreams& open)
    : Stream(device), index_(index), open_(open) {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  // Non-blocking: the legacy default stream, which a library may use, must not serialise this one.
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "opening a stream");
  open_.add(stream_);
}

CudaStream::~CudaStream() {
  open_.remove(stream_);
  cudaStreamSynchronize(stream_);  // the workspace of products goes before the stream
  cudaStreamDestroy(stream_);
}

void CudaStream::synchronize() {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  check(cudaStreamSynchronize(stream_), "waiting for a stream");
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  // The runtime tells by the addresses whose memory each is.
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "queueing a copy");
}

void CudaStream::fill_zero(void* data, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  check(cudaMemsetAsync(data, 0, bytes, stream_), "queueing zeroes");
}

void CudaStream::wait(const Event& event) {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  check(cudaStreamWaitEvent(stream_, dynamic_cast<const CudaEvent&>(event).native(), 0),
        "queueing a wait for an event");
}

void CudaStream::launch(const KernelCode& code, const LaunchShape& shape, const void* operands,
                        std::size_t /*bytes*/) {
  ATOLL_CHECK(code.gpu != nullptr, "kernel {} was not compiled for a GPU", code.name);
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  // Above 48 KiB a kernel must be told that it may.
  constexpr std::uint32_t kWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kWithoutAsking) {
    check(cudaFuncSetAttribute(code.gpu, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "asking for shared memory");
  }
  // The one parameter is the struct of operands, which the runtime copies and does not change.
  void* parameters[] = {const_cast<void*>(operands)};
  check(cudaLaunchKernel(code.gpu, dim3(shape.blocks_x, shape.blocks_y), dim3(shape.threads),
                         parameters, shape.shared_bytes, stream_),
        code.name);
}

void CudaStream::begin_capture() {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  products();  // takes memory, which a stream cannot while it captures
  // Other threads of the process may take memory meanwhile, and must not wait for the whole GPU.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
        "beginning to capture a graph");
}

std::unique_ptr<KernelGraph> CudaStream::end_capture() {
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(stream_, &captured), "ending the capture of a graph");
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(
      captured, [](cudaGraph_t graph) { cudaGraphDestroy(graph); });
  return std::make_unique<CudaGraph>(captured);
}

void CudaStream::abandon_capture() noexcept {
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(stream_, &captured);
  if (captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();  // what failed has been told by who abandons
}

void CudaStream::launch(KernelGraph& graph) {
  check(cudaSetDevice(index_), "choosing the GPU of a stream");
  check(cudaGraphLaunch(dynamic_cast<CudaGraph&>(graph).native(), stream_), "launching a graph");
}

CudaGraph::CudaGraph(cudaGraph_t captured) {
  check(cudaGraphInstantiate(&graph_, captured, 0), "making a graph ready");
}

CudaGraph::~CudaGraph() {
  cudaGraphExecDestroy(graph_);
}

Products& CudaStream::products() {
  if (products_ == nullptr) {
    check(cudaSetDevice(index_), "choosing the GPU of a stream");
    products_ = std::make_unique<Products>();
  }
  return *products_;
}

Sdpa* CudaStream::sdpa() {
  if (!has_asked_for_sdpa_) {
    check(cudaSetDevice(index_), "choosing the GPU of a stream");
    if (cudnn_problem().empty()) sdpa_ = open_sdpa(stream_);
    has_asked_for_sdpa_ = true;
  }
  return sdpa_.get();
}

CudaEvent::CudaEvent(int index) : index_(index) {
  check(cudaSetDevice(index_), "choosing the GPU of an event");
  check(cudaEventCreate(&event_), "making an event");
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

void CudaEvent::record(Stream& stream) {
  check(cudaSetDevice(index_), "choosing the GPU of an event");
  check(cudaEventRecord(event_, dynamic_cast<CudaStream&>(stream).native()), "recording an event");
  is_recorded_ = true;
}

bool CudaEvent::is_done() {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check(status, "asking for an event");
  return true;
}

void CudaEvent::wait() {
  check(cudaEventSynchronize(event_), "waiting for an event");
}

double CudaEvent::seconds_since(const Event& earlier) const {
  const auto& begin = dynamic_cast<const CudaEvent&>(earlier);
  ATOLL_CHECK(is_recorded_ && begin.is_recorded_, "an event has recorded no point");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "measuring between events");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace atl::cuda
