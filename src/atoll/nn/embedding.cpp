#include "atoll/nn/embedding.h"

#include <algorithm>

#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

namespace {

Tensor positions_of(const Pass& pass) {
  return pass.batch == nullptr ? Tensor() : pass.batch->positions;
}

}  // namespace

Footprint Embedding::plan(Spec x) const {
  ATOLL_CHECK(x.dtype == Dtype::kI32 && x.shape.rank() == 2, "{}", x.to_string());
  Footprint footprint;
  footprint.y = {table_.spec.dtype, {x.shape.dim(0), x.shape.dim(1), table_.spec.shape.dim(1)}};
  if (!table_.frozen || (has_positions() && !positions_.frozen)) {
    footprint.need_x = kForWeight;
    footprint.need_dy = kForWeight;
    footprint.scratch_bytes = ops::embedding_backward_scratch_bytes(x.shape.num_elements());
  }
  if (table_.is_packed()) {
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes, ops::embedding_packed_scratch_bytes(table_.spec.shape));
  }
  return footprint;
}

void Embedding::forward(Run& run, const Pass& pass) {
  if (table_.as_int8) {
    ops::embedding_int8(run, pass.x, table_.int8, pass.y);
  } else if (table_.is_packed()) {
    ops::embedding_packed(run, pass.x, table_.packed, pass.y);
  } else {
    ops::embedding_forward(run, pass.x, table_.value, pass.y);
  }
  if (!has_positions()) return;
  ops::position_embedding_forward(run, positions_of(pass), positions_.value, pass.y);
}

void Embedding::backward_weight(Run& run, const Pass& pass) {
  if (!table_.frozen) ops::embedding_backward(run, pass.x, pass.dy, table_.grad);
  if (has_positions() && !positions_.frozen) {
    ops::position_embedding_backward(run, positions_of(pass), pass.dy, positions_.grad);
  }
}

void Embedding::visit(ParamVisitor& visitor) {
  visitor.param(table_);
  if (has_positions()) visitor.param(positions_);
}

}  // namespace atl::nn
