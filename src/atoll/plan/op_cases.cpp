#include "atoll/plan/op_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/activation/activation.h"
#include "atoll/ops/attention/attention.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/norm/norm.h"
#include "atoll/ops/update/adamw.h"
#include "atoll/ops/update/lion.h"
#include "atoll/ops/update/muon.h"
#include "atoll/ops/update/sgd.h"
#include "atoll/plan/op_operands.h"

namespace atl::plan {

namespace {

using Bound = OpCase::Bound;

class Cases {
 public:
  Cases(const nn::ModelConfig& config, const OpSizes& sizes, std::int64_t row_ranks)
      : config_(config),
        sizes_(sizes),
        tokens_(sizes.tokens()),
        rows_(std::max<std::int64_t>(1, tokens_ / row_ranks)) {}

  std::vector<OpCase> take() { return std::move(cases_); }

  void add_training() {
    const std::int64_t width = config_.hidden_size;
    const std::int64_t inner = config_.intermediate_size;
    const nn::Family& family = nn::find_family(config_.family, "a plan");
    add_linear("qkv", width, config_.heads.qkv_width());
    add_linear("attention_out", config_.heads.query_width(), width);
    add_head();
    add_attention();
    if (has_plain_mlp()) {
      add_linear("mlp_up", width, family.has_gate ? 2 * inner : inner);
      add_linear("mlp_down", inner, width);
      add_activation(family, inner);
    }
    if (config_.experts.num_experts > 0) add_experts();
    add_norm(family);
  }

  void add_one_product(const std::string& name, const Shape& mnk) {
    add_product(name, ops::Transpose::kNT, mnk);
  }

  void add_attention() {
    add_attention_forward();
    add_attention_backward();
  }

  void add_generations() {
    for (const std::int64_t rows : {1, 8}) add_generation(rows);
    if (sizes_.dtype == Dtype::kF32) add_int8_generation();
  }

  void add_optimizers(std::int64_t size) {
    sizes_.dtype == Dtype::kBf16 ? add_adamw_bf16(size) : add_optimizers_f32(size);
    add_orthogonalize();  // in f32, whatever the values are
  }

 private:
  /// `make` fills operands and returns the call on them; both are kept together.
  template <typename Make>
  void add(const std::string& name, Bound bound, double amount,
           const std::array<std::int64_t, 3>& of, Make make) {
    cases_.push_back({name, bound, amount, of, [make](const Run& run) -> std::function<void()> {
                        const auto operands = std::make_shared<Operands>(run);
                        const auto call = make(*operands);
                        return [operands, call] { call(operands->run()); };
                      }});
  }

  void add_activation(const nn::Family& family, std::int64_t inner) {
    if (family.activation == "swiglu") return add_swiglu("swiglu", tokens_, inner);
    if (family.activation == "geglu") return add_geglu(inner);
    if (family.activation == "gelu") return add_gelu(inner);
    refuse(family, "activation", family.activation);
  }
  void add_norm(const nn::Family& family) {
    if (family.norm == "rms_norm") return add_rms_norm();
    if (family.norm == "layer_norm") return add_layer_norm();
    refuse(family, "norm", family.norm);
  }
  [[noreturn]] static void refuse(const nn::Family& family, const char* what,
                                  std::string_view name) {
    throw user_error(
        "the planner has no figures of {}, the {} of the family {}; train without a plan, or give "
        "plan/op_cases.cpp a benchmark of it",
        name, what, family.model_type);
  }
  Spec stored(const Shape& shape) const { return {sizes_.dtype, shape}; }
  static Spec f32(const Shape& shape) { return {Dtype::kF32, shape}; }
  double bytes_of(std::int64_t elements) const {
    return static_cast<double>(stored({elements}).bytes());
  }

  /// c is what an activation is stored in, or f32 for a gradient of weights, which is added to.
  void add_product(const std::string& name, ops::Transpose transpose, const Shape& mnk) {
    const std::int64_t m = mnk.dim(0), n = mnk.dim(1), k = mnk.dim(2);
    const bool tn = transpose == ops::Transpose::kTN;
    const bool nt = transpose == ops::Transpose::kNT;
    const Spec a_spec = stored(tn ? Shape{k, m} : Shape{m, k});
    const Spec b_spec = stored(nt ? Shape{n, k} : Shape{k, n});
    const Spec c_spec = tn ? f32({m, n}) : stored({m, n});
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
    add(name, Bound::kArithmetic, flops, {m, n, k}, [=](Operands& at) {
      const Tensor a = at.random(a_spec), b = at.random(b_spec), c = at.zeros(c_spec);
      at.scratch(ops::matmul_scratch_bytes(transpose, a_spec, b_spec));
      return [=](Run& run) { ops::matmul(run, transpose, a, b, c, {}, tn); };
    });
  }

  /// The three products of a Linear from `in` to `out` features.
  void add_linear(const std::string& name, std::int64_t in, std::int64_t out) {
    add_linear(name, tokens_, in, out);
  }
  void add_linear(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
    add_product(name + "/forward", ops::Transpose::kNT, {rows, out, in});
    add_product(name + "/input_gradient", ops::Transpose::kNN, {rows, in, out});
    add_product(name + "/weight_gradient", ops::Transpose::kTN, {out, in, rows});
  }

  bool has_plain_mlp() const {
    const nn::ExpertShape& experts = config_.experts;
    return experts.num_experts == 0 ||
           std::find(experts.dense_layers.begin(), experts.dense_layers.end(), true) !=
               experts.dense_layers.end();
  }
  void add_experts() {
    const nn::ExpertShape& experts = config_.experts;
    const std::int64_t width = config_.hidden_size, inner = experts.intermediate_size;
    const std::int64_t choices = tokens_ * experts.top_k;
    const std::int64_t rows =
        std::max<std::int64_t>(1, choices * sizes_.expert_ranks / experts.num_experts);
    add_linear("expert_up", rows, width, 2 * inner);
    add_linear("expert_down", rows, inner, width);
    add_linear("router", width, experts.num_experts);
    add_swiglu("expert_swiglu", choices, inner);
  }

  void add_head() {
    const std::int64_t rows = tokens_, width = config_.hidden_size, vocab = config_.vocab_size;
    const Spec x_spec = stored({rows, width}), weight_spec = stored({vocab, width});
    const double flops = 6.0 * static_cast<double>(rows) * static_cast<double>(width * vocab);
    add("head/loss_and_gradients", Bound::kArithmetic, flops, {rows, vocab, width},
        [=](Operands& at) {
          const Tensor x = at.random(x_spec), weight = at.random(weight_spec, 0.02F);
          const Tensor targets = at.tokens({rows}, vocab), loss = at.zeros(f32({rows}));
          const Tensor dx = at.zeros(x_spec), dweight = at.zeros(f32({vocab, width}));
          at.scratch(ops::linear_cross_entropy_scratch_bytes(x_spec, weight_spec));
          return [=](Run& run) {
            ops::linear_cross_entropy(run, 1e-3, x, weight, targets, loss, dx, dweight);
          };
        });
  }

  struct AttentionCase {
    Spec qkv, out, lse;
    double scale = 0;
    std::array<std::int64_t, 3> of = {};
    double product = 0;  // of the half of each T x T square that is not masked
  };
  AttentionCase attention() const {
    const ops::HeadLayout heads = config_.heads;
    const std::int64_t batch = sizes_.sequences, length = sizes_.context;
    return {stored({batch, length, heads.qkv_width()}),
            stored({batch, length, heads.query_width()}),
            f32({batch, heads.num_heads, length}),
            1 / std::sqrt(static_cast<double>(heads.head_dim)),
            {batch, length, heads.query_width()},
            static_cast<double>(tokens_) * static_cast<double>(length * heads.query_width())};
  }
  /// Two products.
  void add_attention_forward() {
    const AttentionCase is = attention();
    const ops::HeadLayout heads = config_.heads;
    add("attention/forward", Bound::kArithmetic, 2 * is.product, is.of, [=](Operands& at) {
      const Tensor qkv = at.random(is.qkv), out = at.zeros(is.out), lse = at.zeros(is.lse);
      at.scratch(ops::attention_scratch_bytes(heads, is.qkv));
      return [=](Run& run) { ops::attention_forward(run, heads, is.scale, {}, qkv, out, lse); };
    });
  }
  /// Five products.
  void add_attention_backward() {
    const AttentionCase is = attention();
    const ops::HeadLayout heads = config_.heads;
    add("attention/backward", Bound::kArithmetic, 5 * is.product, is.of, [=](Operands& at) {
      const Tensor qkv = at.random(is.qkv), out = at.zeros(is.out), lse = at.zeros(is.lse);
      const Tensor dout = at.random(is.out), dqkv = at.zeros(is.qkv);
      at.scratch(ops::attention_scratch_bytes(heads, is.qkv));
      ops::attention_forward(at.run(), heads, is.scale, {}, qkv, out, lse);
      return [=](Run& run) {
        ops::attention_backward(run, heads, is.scale, {}, qkv, out, lse, dout, dqkv);
      };
    });
  }

  void add_gelu(std::int64_t inner) {
    const Spec spec = stored({tokens_, inner});
    const double one = bytes_of(tokens_ * inner);
    add("gelu/forward", Bound::kCopying, 2 * one, {tokens_, inner}, [=](Operands& at) {
      const Tensor x = at.random(spec), y = at.zeros(spec);
      return [=](Run& run) { ops::gelu_forward(run, ops::Gelu::kTanh, x, y); };
    });
    add("gelu/backward", Bound::kCopying, 3 * one, {tokens_, inner}, [=](Operands& at) {
      const Tensor x = at.random(spec), dy = at.random(spec), dx = at.zeros(spec);
      return [=](Run& run) { ops::gelu_backward(run, ops::Gelu::kTanh, x, dy, dx); };
    });
  }

  void add_swiglu(const std::string& name, std::int64_t rows, std::int64_t inner) {
    const Spec both = stored({rows, 2 * inner}), one = stored({rows, inner});
    const double bytes = bytes_of(rows * inner);
    add(name + "/forward", Bound::kCopying, 3 * bytes, {rows, inner}, [=](Operands& at) {
      const Tensor gate_up = at.random(both), h = at.zeros(one);
      return [=](Run& run) { ops::swiglu_forward(run, gate_up, h); };
    });
    add(name + "/backward", Bound::kCopying, 6 * bytes, {rows, inner}, [=](Operands& at) {
      const Tensor gate_up = at.random(both), dh = at.random(one);
      const Tensor dgate_up = at.zeros(both), h = at.zeros(one);
      return [=](Run& run) { ops::swiglu_backward(run, gate_up, dh, dgate_up, h); };
    });
  }

  void add_geglu(std::int64_t inner) {
    const Spec both = stored({tokens_, 2 * inner}), one = stored({tokens_, inner});
    const double bytes = bytes_of(tokens_ * inner);
    add("geglu/forward", Bound::kCopying, 3 * bytes, {tokens_, inner}, [=](Operands& at) {
      const Tensor gate_up = at.random(both), h = at.zeros(one);
      return [=](Run& run) { ops::geglu_forward(run, ops::Gelu::kTanh, gate_up, h); };
    });
    add("geglu/backward", Bound::kCopying, 6 * bytes, {tokens_, inner}, [=](Operands& at) {
      const Tensor gate_up = at.random(both), dh = at.random(one);
      const Tensor dgate_up = at.zeros(both), h = at.zeros(one);
      return
          [=](Run& run) { ops::geglu_backward(run, ops::Gelu::kTanh, gate_up, dh, dgate_up, h); };
    });
  }

  void add_rms_norm() {
    const std::int64_t width = config_.hidden_size;
    const Spec rows = stored({rows_, width}), row = stored({width}), each = f32({rows_});
    const double one = bytes_of(rows_ * width);
    add("rms_norm/forward", Bound::kCopying, 2 * one, {rows_, width}, [=](Operands& at) {
      const Tensor x = at.random(rows), weight = at.random(row), y = at.zeros(rows);
      const Tensor rstd = at.zeros(each);
      return [=](Run& run) { ops::rms_norm_forward(run, 1e-5, x, weight, y, rstd); };
    });
    add("rms_norm/input_gradient", Bound::kCopying, 3 * one, {rows_, width}, [=](Operands& at) {
      const Tensor x = at.random(rows), weight = at.random(row), dy = at.random(rows);
      const Tensor rstd = at.random(each), dx = at.zeros(rows);
      return [=](Run& run) { ops::rms_norm_backward(run, 1e-5, x, weight, rstd, dy, {}, dx, {}); };
    });
  }

  void add_layer_norm() {
    const std::int64_t width = config_.hidden_size;
    const Spec rows = stored({rows_, width}), row = stored({width}), each = f32({rows_});
    const double one = bytes_of(rows_ * width);
    add("layer_norm/forward", Bound::kCopying, 2 * one, {rows_, width}, [=](Operands& at) {
      const Tensor x = at.random(rows), weight = at.random(row), bias = at.random(row);
      const Tensor y = at.zeros(rows), mean = at.zeros(each), rstd = at.zeros(each);
      return [=](Run& run) { ops::layer_norm_forward(run, 1e-5, x, weight, bias, y, mean, rstd); };
    });
    add("layer_norm/input_gradient", Bound::kCopying, 3 * one, {rows_, width}, [=](Operands& at) {
      const Tensor x = at.random(rows), weight = at.random(row), dy = at.random(rows);
      const Tensor mean = at.random(each), rstd = at.random(each), dx = at.zeros(rows);
      return
          [=](Run& run) { ops::layer_norm_backward(run, x, weight, mean, rstd, dy, {}, dx, {}); };
    });
  }

  /// The head of a generated token, the largest of its products.
  void add_generation(std::int64_t rows) {
    const std::int64_t width = config_.hidden_size, vocab = config_.vocab_size;
    const Spec x_spec = stored({rows, width}), weight_spec = stored({vocab, width});
    const Spec y_spec = stored({rows, vocab});
    add(fmt::format("generate/rows:{}", rows), Bound::kReading, bytes_of(vocab * width),
        {rows, vocab, width}, [=](Operands& at) {
          const Tensor x = at.random(x_spec), w = at.random(weight_spec), y = at.zeros(y_spec);
          at.scratch(ops::matmul_scratch_bytes(ops::Transpose::kNT, x_spec, weight_spec));
          return [=](Run& run) { ops::matmul(run, ops::Transpose::kNT, x, w, y); };
        });
  }

  void add_int8_generation() {
    const Shape shape = {config_.vocab_size, config_.hidden_size};
    const Spec values = ops::int8_values_spec(shape), scales = ops::int8_scales_spec(shape);
    const Spec x_spec = f32({1, config_.hidden_size}), y_spec = f32({1, config_.vocab_size});
    const auto bytes = static_cast<double>(values.bytes() + scales.bytes());
    add("generate/int8/rows:1", Bound::kReading, bytes,
        {1, config_.vocab_size, config_.hidden_size}, [=](Operands& at) {
          const ops::Int8Matrix weight = {at.zeros(values), at.zeros(scales)};
          ops::round_to_int8(at.run(), at.random(f32(shape)), weight);
          const Tensor x = at.random(x_spec), y = at.zeros(y_spec);
          at.scratch(ops::matmul_int8_scratch_bytes(x_spec, shape));
          return [=](Run& run) { ops::matmul_int8(run, x, weight, y); };
        });
  }

  void add_optimizers_f32(std::int64_t size) {
    const auto elements = static_cast<double>(size);
    const Spec flat = f32({size});
    // AdamW reads four tensors and writes three; Lion and SGD read three and write two.
    add("adamw", Bound::kCopying, 28 * elements, {size, 1}, [=](Operands& at) {
      const Tensor param = at.random(flat), grad = at.random(flat), m = at.zeros(flat);
      const Tensor v = at.zeros(flat);
      return [=](Run& run) { ops::adamw(run, {.lr = 1e-4}, param, grad, m, v); };
    });
    add("lion", Bound::kCopying, 20 * elements, {size, 1}, [=](Operands& at) {
      const Tensor param = at.random(flat), grad = at.random(flat), m = at.zeros(flat);
      return [=](Run& run) { ops::lion(run, {.lr = 1e-4}, param, grad, m); };
    });
    add("sgd", Bound::kCopying, 20 * elements, {size, 1}, [=](Operands& at) {
      const Tensor param = at.random(flat), grad = at.random(flat), m = at.zeros(flat);
      return [=](Run& run) {
        ops::sgd(run, {.lr = 1e-4, .momentum = 0.9, .nesterov = true}, param, grad, m);
      };
    });
  }

  /// On bf16 parameters, with f32 masters or rounded stochastically.
  void add_adamw_bf16(std::int64_t size) {
    for (const bool masters : {true, false}) {
      // Gradient and moments read, moments written; masters read and written and values written,
      // or values read and written.
      const double bytes = (masters ? 20.0 + 10.0 : 20.0 + 4.0) * static_cast<double>(size);
      add(masters ? "adamw/masters" : "adamw/stochastic", Bound::kCopying, bytes, {size, 1},
          [=](Operands& at) {
            ops::UpdateTarget target(at.random({Dtype::kBf16, {size}}));
            if (masters) target.master = at.random(f32({size}));
            const Tensor grad = at.random(f32({size})), m = at.zeros(f32({size}));
            const Tensor v = at.zeros(f32({size}));
            return [=](Run& run) { ops::adamw(run, {.lr = 1e-4}, target, grad, m, v); };
          });
    }
  }

  /// Muon's five steps on one matrix, as floating-point operations of their products.
  void add_orthogonalize() {
    const std::int64_t rows = config_.hidden_size, cols = config_.intermediate_size;
    const Spec spec = f32({rows, cols});
    const auto side = static_cast<double>(std::min(rows, cols));
    const auto elements = static_cast<double>(rows * cols);
    add("muon/orthogonalize", Bound::kArithmetic, 10 * side * (2 * elements + side * side),
        {rows, cols}, [=](Operands& at) {
          const Tensor x = at.random(spec), y = at.zeros(spec);
          at.scratch(ops::orthogonalize_scratch_bytes(spec));
          // x is overwritten by a matrix of the same kind, so that it need not be restored.
          return [=](Run& run) { ops::orthogonalize(run, x, y); };
        });
  }

  const nn::ModelConfig& config_;
  OpSizes sizes_;
  std::int64_t tokens_;
  std::int64_t rows_;  // of norms
  std::vector<OpCase> cases_;
};

}  // namespace

std::vector<OpCase> training_op_cases(const nn::ModelConfig& config, const OpSizes& sizes,
                                      std::int64_t row_ranks) {
  Cases cases(config, sizes, row_ranks);
  cases.add_training();
  return cases.take();
}

OpCase product_op_case(const std::string& name, Dtype dtype, std::int64_t rows,
                       std::int64_t columns, std::int64_t inner) {
  const nn::ModelConfig any;
  Cases cases(any, {.dtype = dtype}, 1);
  cases.add_one_product(name, {rows, columns, inner});
  return std::move(cases.take().front());
}

std::vector<OpCase> attention_op_cases(const nn::ModelConfig& config, const OpSizes& sizes) {
  Cases cases(config, sizes, 1);
  cases.add_attention();
  return cases.take();
}

std::vector<OpCase> optimizer_op_cases(const nn::ModelConfig& config, Dtype dtype,
                                       std::int64_t elements) {
  Cases cases(config, {.dtype = dtype}, 1);
  cases.add_optimizers(elements);
  return cases.take();
}

bool is_update_of(const OpCase& op, const optim::OptimizerOptions& optimizer) {
  if (op.name == optimizer.kind + "/masters") return optimizer.masters == optim::Masters::kF32;
  if (op.name == optimizer.kind + "/stochastic") {
    return optimizer.masters == optim::Masters::kStochastic;
  }
  return op.name == optimizer.kind || op.name.starts_with(optimizer.kind + "/");
}

std::vector<OpCase> op_cases(const nn::ModelConfig& config, const OpSizes& sizes) {
  Cases cases(config, sizes, 1);
  cases.add_training();
  cases.add_generations();
  const std::int64_t parameters = nn::count_parameters(*nn::build_model(config, {})).total;
  cases.add_optimizers(std::min(parameters, kOptimizerElements));
  return cases.take();
}

}  // namespace atl::plan
