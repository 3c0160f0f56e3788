#pragma once

// The CUDA runtime's streams as Streams, and its events as Events.

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "atoll/device/cuda/launch.h"
#include "atoll/device/cuda/products.h"
#include "atoll/device/cuda/status.h"
#include "atoll/device/device.h"
#include "atoll/device/sdpa.h"

namespace atl::cuda {

/// The streams of one GPU that are open, for those who must come behind all of them.
class OpenStreams {
 public:
  void add(cudaStream_t stream);
  void remove(cudaStream_t stream) noexcept;
  std::vector<cudaStream_t> all();

 private:
  std::mutex mutex_;  // streams are opened and used by several threads
  std::vector<cudaStream_t> streams_;
};

/// A CUDA graph, ready to be launched.
class CudaGraph final : public KernelGraph {
 public:
  /// Throws Error(kResource) when the GPU cannot take it. `captured` stays the caller's.
  explicit CudaGraph(cudaGraph_t captured);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  cudaGraphExec_t native() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

/// A stream of its own on a GPU: work queued on it runs behind the host thread, in order.
class CudaStream final : public Stream, public KernelStream {
 public:
  /// Opens a stream on GPU `index`, which `device` is; that and `open`, which names it while it
  /// lives, must outlive the stream.
  CudaStream(Device& device, int index, OpenStreams& open);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// Throws Error(kResource) when something queued before has failed.
  void synchronize() override;
  /// Behind the host thread only when the host's memory is page-locked (MemoryKind::kHost).
  void copy(void* to, const void* from, std::size_t bytes) override;
  void fill_zero(void* data, std::size_t bytes) override;
  /// `event` must be of a CUDA device.
  void wait(const Event& event) override;
  /// Throws Error(kResource) when the GPU refuses the launch.
  void launch(const KernelCode& code, const LaunchShape& shape, const void* operands,
              std::size_t bytes) override;
  void begin_capture() override;
  std::unique_ptr<KernelGraph> end_capture() override;
  void abandon_capture() noexcept override;
  void launch(KernelGraph& graph) override;
  /// Opened at the first call.
  Products& products();
  /// cuDNN's attention, opened at the first call; null where cudnn_problem() says why not.
  Sdpa* sdpa();
  OpenStreams& open_streams() const { return open_; }
  int index() const { return index_; }
  /// For cuBLAS, cuDNN and kernel launches.
  cudaStream_t native() const { return stream_; }

 private:
  int index_;
  OpenStreams& open_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Products> products_;
  std::unique_ptr<Sdpa> sdpa_;
  bool has_asked_for_sdpa_ = false;
};

/// What is queued on `stream` from here on runs behind all that other streams of its device have
/// queued so far. `stream` is a CudaStream.
void order_after_all(Stream& stream);

/// An event of a GPU: its point is reached when the stream's work comes to it.
class CudaEvent final : public Event {
 public:
  /// Opens an event on GPU `index`.
  explicit CudaEvent(int index);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// `stream` must be of the same GPU.
  void record(Stream& stream) override;
  bool is_done() override;
  void wait() override;
  double seconds_since(const Event& earlier) const override;
  cudaEvent_t native() const { return event_; }

 private:
  int index_;
  bool is_recorded_ = false;
  cudaEvent_t event_ = nullptr;
};

}  // namespace atl::cuda
