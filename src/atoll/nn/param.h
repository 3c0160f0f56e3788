#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/axis.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/packed/packed.h"
#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// How a parameter starts when no file gives it.
struct Init {
  enum class Kind { kZero, kOne, kNormal };
  Kind kind = Kind::kZero;
  double stddev = 0;  ///< for kNormal
  double scale = 1;   ///< multiplies what the kind gives

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

struct Cut;

/// Ranks that all hold the rows of a Param from `row` on, each with a part of their gradient: the
/// sum counts.
struct Sharing {
  const Axis* axis = nullptr;
  std::int64_t row = 0;

  bool operator==(const Sharing&) const = default;
};

/// One trainable tensor: its spec, how it starts, where files keep it. Owned by a Layer; its memory
/// belongs to a ParamStore, which sets `value` and `grad` before the first pass.
struct Param {
  /// Whether it is in the bits of its file; such a parameter is frozen.
  bool is_packed() const { return !packed.is_empty(); }

  std::string name;
  Spec spec;
  Init init;
  bool decay = false;         ///< Does weight decay apply? Matrices yes; norms and biases no.
  bool frozen = false;        ///< not trained: no gradient, no optimizer state
  bool is_embedding = false;  ///< a token embedding or the head: Muon leaves these to AdamW
  bool is_position = false;   ///< a position embedding, which FLOP counts leave out
  bool is_router = false;     ///< chooses experts: generation keeps it in f32
  double lr_scale = 1;        ///< multiplies the learning rate, not weight decay
  /// The first rows, of queries, whose initial values and learning rate `query_scale` multiplies.
  std::int64_t query_rows = 0;
  double query_scale = 1;
  bool as_bf16 = false;  ///< generation alone: `value` is in bf16 whatever `spec` says
  bool as_int8 = false;  ///< generation alone: `int8` is there in place of `value`
  std::vector<FileTensor> files;
  /// Which part of a whole parameter this is; null: all of it. `files` then name rows of the part.
  std::shared_ptr<const Cut> cut;
  /// Along each axis, the ranks that hold the same; gradients are summed along one after the other.
  /// Empty: this rank's gradient is all of it.
  std::vector<Sharing> shared_by;
  /// The share of the tokens that its rows meet on average: top_k / num_experts of experts' rows.
  /// Of a part: how many they meet, of all ranks, over this rank's tokens.
  double share_of_tokens = 1;
  /// Its place among the parameters of the whole model, which initial values are drawn by; -1: as
  /// in the model that it is part of.
  std::int64_t number = -1;
  Tensor value;          ///< of `spec`, or in bf16 where as_bf16
  ops::Int8Matrix int8;  ///< of spec.shape
  /// Of a frozen matrix that stays in the bits of its file: it is there in place of `value`, and
  /// has spec.shape. Empty: `value` is there. See nn/models/packed.h.
  ops::PackedMatrix packed;
  Tensor
      grad;  ///< of spec.in_compute_dtype(): bf16 weights have f32 gradients; undefined if frozen
};

/// Which rows and columns of a whole parameter one rank holds. A vector has one column.
struct Slice {
  struct Rows {
    std::int64_t begin = 0;  ///< of the whole
    std::int64_t count = 0;

    bool operator==(const Rows&) const = default;
  };
  std::vector<Rows> rows;  ///< one after the other in the part
  std::int64_t column_begin = 0;
  std::int64_t num_columns = 0;

  std::int64_t num_rows() const;
  bool operator==(const Slice&) const = default;
};

/// How a whole parameter is cut into the parts that ranks hold.
struct Cut {
  Param whole;                ///< without memory
  std::vector<Slice> slices;  ///< of each rank of Model::parts; some may hold the same rows
  int rank = 0;               ///< this one
  /// So many neighbours, from a multiple of it on, have all of each matrix of which one has a part.
  int neighbours = 1;

  /// The first rank that holds what `of` holds.
  int first_with_slice_of(int of) const;
};

/// The parameter as files know it: `param`, or what it is a part of.
const Param& whole_param(const Param& param);
/// How many of its rows, the first, this rank counts, as the first of those that hold them.
std::int64_t counted_rows(const Param& param);
/// The part of `whole` that a slice is, with files of their own rows. See Cut; `neighbours` of 0
/// are all.
Param cut_param(Param whole, std::vector<Slice> slices, int rank, int neighbours = 0);
/// Copies a slice of `whole` into `part`, or back. Dtypes are the same, shapes fit the slice.
void copy_slice(const Slice& slice, const Tensor& whole, const Tensor& part);
void copy_slice_back(const Slice& slice, const Tensor& part, const Tensor& whole);

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
