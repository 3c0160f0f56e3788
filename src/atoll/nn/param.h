#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/ops/int8.h"
#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// How a parameter starts when no file gives it.
struct Init {
  enum class Kind { kZero, kOne, kNormal };
  Kind kind = Kind::kZero;
  double stddev = 0;  ///< for kNormal

  static Init zero() { return {Kind::kZero, 0}; }
  static Init one() { return {Kind::kOne, 0}; }
  static Init normal(double stddev) { return {Kind::kNormal, stddev}; }
};

/// The part of a Param that one tensor of a Hugging Face file holds. A fused query-key-value weight
/// is three such parts, so that files keep the names and shapes other programs know.
struct FileTensor {
  std::string name;            ///< "model.layers.0.self_attn.q_proj.weight"
  std::int64_t row_begin = 0;  ///< rows [row_begin, row_begin + rows) of the Param
  std::int64_t rows = 0;
  bool transposed = false;  ///< the file holds (in, out), as GPT-2's Conv1D does; we (out, in)
};

/// One trainable tensor: its spec, how it starts, where files keep it. Owned by a Layer; its memory
/// belongs to a ParamStore, which sets `value` and `grad` before the first pass.
struct Param {
  std::string name;
  Spec spec;
  Init init;
  bool decay = false;         ///< Does weight decay apply? Matrices yes; norms and biases no.
  bool frozen = false;        ///< not trained: no gradient, no optimizer state
  bool is_embedding = false;  ///< a token embedding or the head: Muon leaves these to AdamW
  bool is_position = false;   ///< a position embedding, which FLOP counts leave out
  bool as_bf16 = false;       ///< generation alone: `value` is in bf16 whatever `spec` says
  bool as_int8 = false;       ///< generation alone: `int8` is there in place of `value`
  std::vector<FileTensor> files;
  Tensor value;          ///< of `spec`, or in bf16 where as_bf16
  ops::Int8Matrix int8;  ///< of spec.shape
  Tensor
      grad;  ///< of spec.in_compute_dtype(): bf16 weights have f32 gradients; undefined if frozen
};

/// A tensor that layers read and nothing trains, such as a table of rotations.
struct Constant {
  std::string name;
  Spec spec;
  std::function<void(Tensor)> fill;  ///< computes it, once its memory is there
  Tensor value;
};

class Linear;

/// Walks what a Layer owns. A tied parameter is visited by each of its users: tell them apart by
/// address.
class ParamVisitor {
 public:
  virtual ~ParamVisitor() = default;
  virtual void param(Param& param) = 0;
  virtual void constant(Constant& /*constant*/) {}
  /// Before the parameters of a Linear: for those who change it, as LoRA does.
  virtual void linear(Linear& /*linear*/) {}
};

}  // namespace atl::nn
