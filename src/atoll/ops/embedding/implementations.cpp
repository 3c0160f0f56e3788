#include "atoll/ops/embedding/embedding.h"

#include <algorithm>

#include "atoll/ops/embedding/cpu.h"
#include "atoll/ops/embedding/cuda.h"
#include "atoll/ops/embedding/ref.h"
#include "atoll/ops/positions.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Forward {
  Tensor tokens, table, y;
};
struct Backward {
  Tensor tokens, dy, dtable;
};
struct PositionForward {
  Tensor positions, table, y;
};
struct PositionBackward {
  Tensor positions, dy, dtable;
};

constexpr Implementation<Forward> kForward[] = {
    {"cpu",
     [](Run& run, const Forward& a) {
       return serve_f32_or_bf16(run, a.y.dtype(),
                                [&] { cpu::embedding_forward(run, a.tokens, a.table, a.y); });
     }},
    {"cuda", [](Run& run,
                const Forward& a) { return cuda::embedding_forward(run, a.tokens, a.table, a.y); }},
    {"ref",
     [](Run& run, const Forward& a) {
       if (a.table.dtype() != a.y.dtype()) {
         return serve_host(run,
                           [&] { ref::embedding_forward<Bf16, float>(a.tokens, a.table, a.y); });
       }
       return serve_any_storage(run, a.y.dtype(), [&]<typename T>(T) {
         ref::embedding_forward<T>(a.tokens, a.table, a.y);
       });
     }},
};

constexpr Implementation<Backward> kBackward[] = {
    {"cpu",
     [](Run& run, const Backward& a) {
       return serve_f32_or_bf16(run, a.dy.dtype(),
                                [&] { cpu::embedding_backward(run, a.tokens, a.dy, a.dtable); });
     }},
    {"cuda",
     [](Run& run, const Backward& a) {
       return cuda::embedding_backward(run, a.tokens, a.dy, a.dtable);
     }},
    {"ref",
     [](Run& run, const Backward& a) {
       return serve_any_storage(run, a.dy.dtype(), [&]<typename T>(T) {
         ref::embedding_backward<T>(a.tokens, a.dy, a.dtable);
       });
     }},
};

constexpr Implementation<PositionForward> kPositionForward[] = {
    {"cpu",
     [](Run& run, const PositionForward& a) {
       return serve_f32_or_bf16(run, a.y.dtype(), [&] {
         cpu::position_embedding_forward(run, a.positions, a.table, a.y);
       });
     }},
    {"cuda",
     [](Run& run, const PositionForward& a) {
       return cuda::position_embedding_forward(run, a.positions, a.table, a.y);
     }},
    {"ref",
     [](Run& run, const PositionForward& a) {
       return serve_any_storage(run, a.y.dtype(), [&]<typename T>(T) {
         ref::position_embedding_forward<T>(a.positions, a.table, a.y);
       });
     }},
};

constexpr Implementation<PositionBackward> kPositionBackward[] = {
    {"cpu",
     [](Run& run, const PositionBackward& a) {
       return serve_f32_or_bf16(run, a.dy.dtype(), [&] {
         cpu::position_embedding_backward(run, a.positions, a.dy, a.dtable);
       });
     }},
    {"cuda",
     [](Run& run, const PositionBackward& a) {
       return cuda::embedding_backward(run, a.positions, a.dy, a.dtable);
     }},
    {"ref",
     [](Run& run, const PositionBackward& a) {
       return serve_any_storage(run, a.dy.dtype(), [&]<typename T>(T) {
         ref::position_embedding_backward<T>(a.positions, a.dy, a.dtable);
       });
     }},
};

// (V, C) or (P, C) of `dtype`, as wide as the activations.
void check_table(const char* op, Dtype dtype, const Tensor& table, const Tensor& y) {
  ATOLL_CHECK(y.shape().rank() == 3, "{}: activations are {}", op, y.spec().to_string());
  ATOLL_CHECK(table.shape().rank() == 2, "{}: table is {}", op, table.spec().to_string());
  check_spec(op, {dtype, {table.dim(0), y.dim(2)}}, {table});
}

// Every position of y's rows must be one of the table's.
void check_rows(const char* op, const Tensor& positions, const Tensor& y, const Tensor& table) {
  check_positions(op, positions, y.shape().num_rows(), y.dim(1), table.dim(0));
}

}  // namespace

// Tokens come from files and users, so their range is checked in every build; it costs one compare
// for each C elements that are moved.
void check_tokens(const Tensor& tokens, std::int64_t vocab_size) {
  ATOLL_CHECK(tokens.dtype() == Dtype::kI32 && tokens.shape().rank() == 2, "tokens are {}",
              tokens.spec().to_string());
  // A GPU's are checked before they are copied there.
  if (tokens.device() != nullptr && tokens.device()->kind() != DeviceKind::kCpu) return;
  const std::int64_t steps = tokens.dim(1);
  for (std::int64_t i = 0; i < tokens.num_elements(); ++i) {
    const std::int32_t token = tokens.data<std::int32_t>()[i];
    if (token < 0 || token >= vocab_size) {
      throw damaged_error(
          "token {} at row {}, position {} of the micro-batch is outside the model's vocabulary of "
          "{}; was the data made with this model's tokenizer?",
          token, i / steps, i % steps, vocab_size);
    }
  }
}

void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  const bool is_widened = table.dtype() == Dtype::kBf16 && y.dtype() == Dtype::kF32;
  check_table("embedding_forward", is_widened ? Dtype::kBf16 : y.dtype(), table, y);
  check_size("embedding_forward", Dtype::kI32, y.shape().num_rows(), {tokens});
  check_tokens(tokens, table.dim(0));
  dispatch<Forward>("embedding_forward", kForward, run, {tokens, table, y}, cost_of({y, y}));
}

void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable) {
  check_table("embedding_backward", compute_dtype(dy.dtype()), dtable, dy);
  check_size("embedding_backward", Dtype::kI32, dy.shape().num_rows(), {tokens});
  check_tokens(tokens, dtable.dim(0));
  dispatch<Backward>("embedding_backward", kBackward, run, {tokens, dy, dtable},
                     embedding_backward_cost(tokens, dy, dtable));
}

std::size_t embedding_backward_scratch_bytes(std::int64_t rows) {
  return 2 * align_up(Spec{Dtype::kI32, {rows}}.bytes());
}

OpCost embedding_backward_cost(const Tensor& tokens, const Tensor& dy, const Tensor& dtable) {
  OpCost cost = cost_of({dy, tokens});
  const std::int64_t most = tokens.defined() ? dy.shape().num_rows() : dy.dim(1);
  const std::int64_t rows = std::min(most, dtable.dim(0));
  cost.bytes += 2.0 * static_cast<double>(rows * dtable.dim(1)) *
                static_cast<double>(dtype_size(dtable.dtype()));
  return cost;
}

void position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y) {
  constexpr const char* kOp = "position_embedding_forward";
  check_table(kOp, y.dtype(), table, y);
  check_rows(kOp, positions, y, table);
  dispatch<PositionForward>(kOp, kPositionForward, run, {positions, table, y}, cost_of({y, y, y}));
}

void position_embedding_backward(Run& run, Tensor positions, Tensor dy, Tensor dtable) {
  constexpr const char* kOp = "position_embedding_backward";
  check_table(kOp, compute_dtype(dy.dtype()), dtable, dy);
  check_rows(kOp, positions, dy, dtable);
  dispatch<PositionBackward>(kOp, kPositionBackward, run, {positions, dy, dtable},
                             embedding_backward_cost(positions, dy, dtable));
}

}  // namespace atl::ops
