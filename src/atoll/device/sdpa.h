#pragma once

// Scaled dot-product attention by cuDNN: what a call is, as plain numbers. device/cudnn makes a
// graph of the library's of it; a build without cuDNN, and the GPU that the host plays, have it
// too.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace atl {

/// The tensors of a call. Those of gradients belong to a backward call alone.
enum class SdpaOperand { kQ, kK, kV, kOut, kStats, kDout, kDq, kDk, kDv };
constexpr int kNumSdpaOperands = 9;

/// One call but for its addresses: causal attention, softmax(scale q k^T) v, or its gradient, which
/// is always asked to be deterministic. Operands are bf16, and sums f32.
///
/// Queries, keys and values lie beside one another in rows of (heads + 2 kv_heads) head_dim
/// elements, and so do their gradients; rows of out and dout have heads * head_dim. Stats is f32
/// (batch, heads, length): the log-sum-exp of each row's scaled scores.
struct SdpaCall {
  bool is_backward = false;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t length = 0;  ///< rows of a sequence
  std::int64_t head_dim = 0;
  float scale = 1;

  friend auto operator<=>(const SdpaCall&, const SdpaCall&) = default;
};

/// How one operand lies in memory, as the library is told.
struct SdpaTensor {
  SdpaOperand operand;
  std::array<std::int64_t, 4> dims;     ///< (batch, heads, rows, elements)
  std::array<std::int64_t, 4> strides;  ///< in elements
  bool is_f32 = false;                  ///< else bf16
  bool is_written = false;
};

/// The number that the library knows an operand by, from 1 on.
constexpr std::int64_t sdpa_uid(SdpaOperand operand) {
  return static_cast<std::int64_t>(operand) + 1;
}
/// "q", "dk".
const char* sdpa_name(SdpaOperand operand);
/// The operands of `call`, those that it reads first.
std::vector<SdpaTensor> sdpa_tensors(const SdpaCall& call);
/// The call in one line.
std::string describe(const SdpaCall& call);

/// Where element 0 of each operand lies in the GPU's memory; null where the call has none.
struct SdpaAddresses {
  std::array<void*, kNumSdpaOperands> all{};

  void*& operator[](SdpaOperand operand) { return all.at(static_cast<std::size_t>(operand)); }
  void* operator[](SdpaOperand operand) const { return all.at(static_cast<std::size_t>(operand)); }
};

/// Bytes of workspace that a plan for `call` has. They are what cuDNN 9.19 takes on a GPU of
/// compute capability 9.0 (device/cudnn/sdpa_test.cpp), and some spare for other versions. Backward
/// takes the gradient of all probabilities in bf16: only so are its sums in one order there.
std::size_t sdpa_workspace_bytes(const SdpaCall& call);

/// Why cuDNN's attention is of no use on a GPU of this compute capability; empty: it is. On others
/// than 9.0 it was slower than flash attention where that was measured (transformers#48163), or
/// needs other workspaces.
std::string sdpa_architecture_problem(int major, int minor);

/// Calls of cuDNN on one stream, with a graph for each kind of call, which is made at the first.
class Sdpa {
 public:
  virtual ~Sdpa() = default;
  /// Queues the call. `workspace` has `workspace_bytes` bytes, aligned to 256. Throws
  /// Error(kResource) when the library has no plan for it, or one that needs a larger workspace.
  virtual void attend(const SdpaCall& call, const SdpaAddresses& addresses, void* workspace,
                      std::size_t workspace_bytes) = 0;
};

/// Whether this build has cuDNN's attention: cudnn/ instead of no_cudnn/.
bool has_cudnn();
/// Why cuDNN's attention cannot be used on the GPU that this thread has chosen; empty: it can.
std::string cudnn_problem();
/// Calls on `stream`, a cudaStream_t of the GPU that this thread has chosen. Throws
/// Error(kResource) when the library cannot be opened.
std::unique_ptr<Sdpa> open_sdpa(void* stream);

}  // namespace atl
