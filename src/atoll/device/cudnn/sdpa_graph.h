#pragma once

// A graph of cuDNN's front end for one kind of call.

#include <cudnn.h>

#include <memory>
#include <string>
#include <string_view>

#include "atoll/device/sdpa.h"

namespace atl {

/// Throws Error(kResource) when `status` is not success; `what` says what was being done.
void check(cudnnStatus_t status, const char* what);

/// The library's plan for one kind of call. Made once: it may take a second.
class SdpaGraph {
 public:
  /// For the GPU of `handle`. Throws Error(kResource) when the library has no plan.
  SdpaGraph(const SdpaCall& call, cudnnHandle_t handle);
  /// For a GPU that need not be here: `properties` are those of one of compute capability 9.0, in
  /// JSON, as a cuDNN DEVICEPROP descriptor takes them. It cannot be run.
  SdpaGraph(const SdpaCall& call, std::string_view properties);
  ~SdpaGraph();
  SdpaGraph(SdpaGraph&&) noexcept;
  SdpaGraph& operator=(SdpaGraph&&) = delete;

  std::size_t workspace_bytes() const;
  /// What the library was told, in its own JSON: nodes with dims, strides and attributes.
  std::string told() const;
  /// The name of the engine that was chosen, with its settings.
  std::string engine() const;
  /// Queues the call on the stream of `handle`.
  void run(cudnnHandle_t handle, const SdpaAddresses& addresses, void* workspace) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl
