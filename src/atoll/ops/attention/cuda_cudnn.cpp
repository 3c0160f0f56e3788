#include "atoll/ops/attention/cuda_cudnn.h"

#include <algorithm>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/attention/gpu_attention.h"
#include "atoll/ops/attention/sdpa.h"

namespace atl::ops::cuda {

namespace {

constexpr std::size_t kWorkspaceAlignment = 256;  // as cudaMalloc's, which the library's users pass

SdpaCall call_of(const HeadLayout& heads, double scale, const Shape& qkv, bool is_backward) {
  return {.is_backward = is_backward,
          .batch = qkv.dim(0),
          .heads = heads.num_heads,
          .kv_heads = heads.num_kv_heads,
          .length = qkv.dim(1),
          .head_dim = heads.head_dim,
          .scale = static_cast<float>(scale)};
}

// `call` for some sequences of its batch.
SdpaCall with_batch(SdpaCall call, std::int64_t batch) {
  call.batch = batch;
  return call;
}

Declined declines(const Run& run, const SdpaCall& call, const HeadLayout& heads,
                  const AttentionScores& scores, const AttentionMask& mask,
                  std::initializer_list<Tensor> operands) {
  if (gpu_attention() != GpuAttention::kCudnn) return "device.attention is own";
  if (run.stream->device().kind() != DeviceKind::kCuda) return "not in a GPU's memory";
  if (scores.softcap != 0) return "a soft cap";
  if (mask.positions.defined()) return "documents";
  if (mask.window > 0 && mask.window < call.length) return "a window";
  if (call.batch == 0) return "no sequences";
  for (const Tensor& operand : operands) {
    if (operand.dtype() != Dtype::kBf16) return "not bf16";
    if (reinterpret_cast<std::uintptr_t>(operand.raw()) % 16 != 0) return "not aligned to 16 bytes";
  }
  return cudnn_declines(heads, call.length, call.is_backward);
}

// The front of the scratch, as a workspace.
std::byte* workspace_of(const Run& run, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(run.scratch.data());
  const std::size_t skipped = (0 - begin) % kWorkspaceAlignment;
  ATOLL_CHECK(skipped + bytes <= run.scratch.size(),
              "cuDNN's attention needs {} bytes of scratch, and {} are left", skipped + bytes,
              run.scratch.size());
  return run.scratch.data() + skipped;
}

Declined queue(Run& run, const SdpaCall& call, const SdpaAddresses& addresses) {
  const std::size_t bytes = sdpa_workspace_bytes(call);
  std::byte* workspace = workspace_of(run, bytes);
  if (auto* fake = dynamic_cast<fake_cuda::FakeStream*>(run.stream)) {
    fake->call_library(describe(call), [call, addresses, workspace, &threads = run.threads()] {
      play_attend(threads, call, addresses, workspace);
    });
    return kServed;
  }
  return attend(run, call, addresses, workspace, bytes);
}

// Element `offset` of the rows of sequence `sequence`.
void* at(const Tensor& rows, std::int64_t sequence, std::int64_t offset = 0) {
  const std::int64_t elements = sequence * rows.dim(1) * rows.dim(2) + offset;
  return static_cast<std::byte*>(rows.raw()) +
         static_cast<std::size_t>(elements) * dtype_size(rows.dtype());
}

SdpaAddresses forward_addresses(const HeadLayout& heads, const Tensor& qkv, const Tensor& out,
                                const Tensor& lse, std::int64_t sequence) {
  using enum SdpaOperand;
  SdpaAddresses to;
  to[kQ] = at(qkv, sequence);
  to[kK] = at(qkv, sequence, heads.query_width());
  to[kV] = at(qkv, sequence, heads.query_width() + heads.kv_width());
  to[kOut] = at(out, sequence);
  to[kStats] = at(lse, sequence);
  return to;
}

}  // namespace

Declined cudnn_declines(const HeadLayout& heads, std::int64_t length, bool is_backward) {
  constexpr std::int64_t kMostHeadDim = 128, kElements = 8;
  if (heads.head_dim > kMostHeadDim || heads.head_dim % kElements != 0) {
    return "head_dim is not a multiple of 8 up to 128";
  }
  if (length < 2) return "fewer than 2 rows";
  if (!is_backward) return kServed;
  const SdpaCall one = call_of(heads, 1, {1, length, heads.qkv_width()}, true);
  if (sequences_per_call(one) == 0) return "the workspace of one sequence is too large";
  return kServed;
}

std::int64_t sequences_per_call(const SdpaCall& call) {
  std::int64_t chunks = 1;
  while (chunks <= call.batch) {
    const std::int64_t sequences = (call.batch + chunks - 1) / chunks;
    if (sdpa_workspace_bytes(with_batch(call, sequences)) <= most_workspace_bytes())
      return sequences;
    ++chunks;
  }
  return 0;
}

Declined attention_cudnn_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                 const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  const SdpaCall call = call_of(heads, scores.scale, qkv.shape(), false);
  if (const Declined reason = declines(run, call, heads, scores, mask, {qkv, out})) return reason;
  return queue(run, call, forward_addresses(heads, qkv, out, lse, 0));
}

Declined attention_cudnn_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                  const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                  Tensor dout, Tensor dqkv) {
  using enum SdpaOperand;
  const SdpaCall whole = call_of(heads, scores.scale, qkv.shape(), true);
  if (const Declined reason = declines(run, whole, heads, scores, mask, {qkv, out, dout, dqkv})) {
    return reason;
  }
  const std::int64_t chunk = sequences_per_call(whole);
  for (std::int64_t begin = 0; begin < whole.batch; begin += chunk) {
    SdpaAddresses to = forward_addresses(heads, qkv, out, lse, begin);
    to[kDout] = at(dout, begin);
    to[kDq] = at(dqkv, begin);
    to[kDk] = at(dqkv, begin, heads.query_width());
    to[kDv] = at(dqkv, begin, heads.query_width() + heads.kv_width());
    const SdpaCall call = with_batch(whole, std::min(chunk, whole.batch - begin));
    // A GPU that declines does so at the first chunk.
    if (const Declined reason = queue(run, call, to)) return reason;
  }
  return kServed;
}

std::size_t attention_cudnn_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  if (gpu_attention() != GpuAttention::kCudnn || qkv.dtype != Dtype::kBf16) return 0;
  const std::int64_t length = qkv.shape.dim(1);
  if (cudnn_declines(heads, length, false) != kServed) return 0;
  const SdpaCall forward = call_of(heads, 1, qkv.shape, false);
  std::size_t bytes = sdpa_workspace_bytes(forward);
  if (cudnn_declines(heads, length, true) == kServed) {
    const SdpaCall backward = call_of(heads, 1, qkv.shape, true);
    bytes =
        std::max(bytes, sdpa_workspace_bytes(with_batch(backward, sequences_per_call(backward))));
  }
  return align_up(bytes + kWorkspaceAlignment);
}

}  // namespace atl::ops::cuda
