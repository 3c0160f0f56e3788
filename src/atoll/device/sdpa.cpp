#include "atoll/device/sdpa.h"

#include <fmt/ranges.h>

namespace atl {

namespace {

constexpr std::int64_t kTile = 128;  // rows and keys that the library pads to, at most

std::int64_t padded(std::int64_t rows) {
  return (rows + kTile - 1) / kTile * kTile;
}

// Heads that lie in rows of `width` elements.
SdpaTensor in_rows(const SdpaCall& call, SdpaOperand operand, std::int64_t heads,
                   std::int64_t width, bool is_written) {
  return {.operand = operand,
          .dims = {call.batch, heads, call.length, call.head_dim},
          .strides = {call.length * width, call.head_dim, width, 1},
          .is_written = is_written};
}

}  // namespace

const char* sdpa_name(SdpaOperand operand) {
  constexpr std::array<const char*, kNumSdpaOperands> kNames = {"q",    "k",  "v",  "out", "stats",
                                                                "dout", "dq", "dk", "dv"};
  return kNames.at(static_cast<std::size_t>(operand));
}

std::vector<SdpaTensor> sdpa_tensors(const SdpaCall& call) {
  using enum SdpaOperand;
  const std::int64_t out_width = call.heads * call.head_dim;
  const std::int64_t width = out_width + 2 * call.kv_heads * call.head_dim;
  std::vector<SdpaTensor> tensors = {in_rows(call, kQ, call.heads, width, false),
                                     in_rows(call, kK, call.kv_heads, width, false),
                                     in_rows(call, kV, call.kv_heads, width, false),
                                     in_rows(call, kOut, call.heads, out_width, !call.is_backward),
                                     {.operand = kStats,
                                      .dims = {call.batch, call.heads, call.length, 1},
                                      .strides = {call.heads * call.length, call.length, 1, 1},
                                      .is_f32 = true,
                                      .is_written = !call.is_backward}};
  if (!call.is_backward) return tensors;
  tensors.push_back(in_rows(call, kDout, call.heads, out_width, false));
  tensors.push_back(in_rows(call, kDq, call.heads, width, true));
  tensors.push_back(in_rows(call, kDk, call.kv_heads, width, true));
  tensors.push_back(in_rows(call, kDv, call.kv_heads, width, true));
  return tensors;
}

std::string describe(const SdpaCall& call) {
  std::string text = fmt::format(
      "attention {} of {} sequences of {}, {} heads and {} of keys, {} elements, scale {}, "
      "causal{}",
      call.is_backward ? "backward" : "forward", call.batch, call.length, call.heads, call.kv_heads,
      call.head_dim, call.scale, call.is_backward ? ", deterministic" : "");
  for (const SdpaTensor& tensor : sdpa_tensors(call)) {
    text += fmt::format("; {} {} by {}", sdpa_name(tensor.operand), fmt::join(tensor.dims, " "),
                        fmt::join(tensor.strides, " "));
  }
  return text;
}

std::size_t sdpa_workspace_bytes(const SdpaCall& call) {
  constexpr std::int64_t kSpare = 1 << 16;
  if (!call.is_backward) return kSpare;
  const std::int64_t rows = padded(call.length), all_heads = call.batch * call.heads;
  const std::int64_t probabilities = 2 * all_heads * rows * rows;
  const std::int64_t row_sums = 4 * all_heads * rows;
  // Gradients of keys and values for each query head, which are then added up.
  const bool is_grouped = call.kv_heads < call.heads;
  const std::int64_t of_groups = is_grouped ? 2 * 2 * all_heads * rows * call.head_dim : 0;
  return static_cast<std::size_t>(probabilities + row_sums + of_groups + kSpare);
}

std::string sdpa_architecture_problem(int major, int minor) {
  if (major == 9 && minor == 0) return "";
  return fmt::format(
      "the GPU has compute capability {}.{}, and atoll uses cuDNN's attention on 9.0 alone (H100, "
      "H200)",
      major, minor);
}

}  // namespace atl
