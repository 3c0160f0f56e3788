#include "atoll/ops/attention/gpu_attention.h"

#include <atomic>

#include "atoll/base/check.h"

namespace atl::ops {

namespace {

std::atomic<GpuAttention>& chosen() {
  static std::atomic<GpuAttention> attention{GpuAttention::kOwn};
  return attention;
}

std::atomic<std::size_t>& most() {
  static std::atomic<std::size_t> bytes{kMostWorkspaceBytes};
  return bytes;
}

}  // namespace

GpuAttention gpu_attention() {
  return chosen().load(std::memory_order_relaxed);
}

std::size_t most_workspace_bytes() {
  return most().load(std::memory_order_relaxed);
}

void set_gpu_attention(GpuAttention attention, std::size_t most_workspace_bytes) {
  chosen() = attention;
  most() = most_workspace_bytes;
}

GpuAttention gpu_attention_named(std::string_view name) {
  if (name == "own") return GpuAttention::kOwn;
  ATOLL_CHECK(name == "cudnn", "no attention of a GPU is named {}", name);
  return GpuAttention::kCudnn;
}

}  // namespace atl::ops
