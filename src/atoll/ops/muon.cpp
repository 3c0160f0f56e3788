#include "atoll/ops/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/ops/cpu/muon.h"
#include "atoll/ops/elementwise.h"
#include "atoll/ops/matmul.h"
#include "atoll/ops/ref/muon.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Momentum {
  MuonMomentum numbers;
  Tensor grad, m, direction;
};
struct Combine {
  double alpha;
  Tensor x;
  double beta;
  Tensor y;
};
struct Apply {
  double step_size, decay;
  UpdateTarget target;
  Tensor direction;
};

constexpr Implementation<Momentum> kMomentum[] = {
    {"cpu",
     [](Run& run, const Momentum& a) {
       return serve_f32(run, a.m.dtype(),
                        [&] { cpu::muon_momentum(run, a.numbers, a.grad, a.m, a.direction); });
     }},
    {"ref",
     [](Run& run, const Momentum& a) {
       return serve_any_float(run, a.m.dtype(), [&]<typename T>(T) {
         ref::muon_momentum<T>(a.numbers, a.grad, a.m, a.direction);
       });
     }},
};

constexpr Implementation<Combine> kCombine[] = {
    {"cpu",
     [](Run& run, const Combine& a) {
       return serve_f32(run, a.y.dtype(), [&] { cpu::combine(run, a.alpha, a.x, a.beta, a.y); });
     }},
    {"ref",
     [](Run& run, const Combine& a) {
       return serve_any_float(run, a.y.dtype(),
                              [&]<typename T>(T) { ref::combine<T>(a.alpha, a.x, a.beta, a.y); });
     }},
};

constexpr Implementation<Apply> kApply[] = {
    {"cpu",
     [](Run& run, const Apply& a) {
       return serve_f32(run, a.target.compute(), [&] {
         cpu::apply_direction(run, a.step_size, a.decay, a.target, a.direction);
       });
     }},
    {"ref",
     [](Run& run, const Apply& a) {
       return serve_any_float(run, a.target.compute(), [&]<typename T>(T) {
         ref::apply_direction<T>(a.step_size, a.decay, a.target, a.direction);
       });
     }},
};

// y = alpha x + beta y.
void combine(Run& run, double alpha, Tensor x, double beta, Tensor y) {
  dispatch<Combine>("muon_combine", kCombine, run, {alpha, x, beta, y}, cost_of({x, y, y}));
}

constexpr int kSteps = 5;
constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;
constexpr double kMinNorm = 1e-7;

// Which products a step is made of: with more rows than columns the Gram matrix is X^T X and
// stands on the right, X <- X P; nothing is ever transposed in memory.
struct Sides {
  explicit Sides(const Spec& x)
      : tall(x.shape.dim(0) > x.shape.dim(1)),
        gram{x.dtype, {x.shape.dim(tall ? 1 : 0), x.shape.dim(tall ? 1 : 0)}},
        gram_transpose(tall ? Transpose::kTN : Transpose::kNT) {}

  bool tall;
  Spec gram;
  Transpose gram_transpose;
};

template <typename T>
void add_to_diagonal(Tensor square, double value) {
  const std::int64_t n = square.dim(0);
  for (std::int64_t i = 0; i < n; ++i) square.data<T>()[i * n + i] += static_cast<T>(value);
}

// next = a x + b (x x^T) x + c (x x^T)^2 x, as P x with P = a + b G + c G^2: on the diagonal of P,
// a costs nothing, and no product has to be added to a multiple of x.
void newton_schulz_step(Run& run, const Sides& sides, Tensor gram, Tensor polynomial, Tensor x,
                        Tensor next) {
  matmul(run, sides.gram_transpose, x, x, gram);
  matmul(run, Transpose::kNN, gram, gram, polynomial);
  combine(run, kB, gram, kC, polynomial);
  if (polynomial.dtype() == Dtype::kF64) {
    add_to_diagonal<double>(polynomial, kA);
  } else {
    add_to_diagonal<float>(polynomial, kA);
  }
  const Tensor left = sides.tall ? x : polynomial;
  const Tensor right = sides.tall ? polynomial : x;
  matmul(run, Transpose::kNN, left, right, next);
}

}  // namespace

void muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m, Tensor direction) {
  ATOLL_CHECK(numbers.momentum >= 0 && numbers.momentum < 1, "muon: momentum {}", numbers.momentum);
  check_size("muon_momentum", m.dtype(), m.num_elements(), {grad, m, direction});
  dispatch<Momentum>("muon_momentum", kMomentum, run, {numbers, grad, m, direction},
                     cost_of({grad, m, m, direction}));
}

void orthogonalize(Run& run, Tensor x, Tensor y) {
  ATOLL_CHECK(x.shape().rank() == 2, "orthogonalize: x is {}", x.spec().to_string());
  check_spec("orthogonalize", x.spec(), {x, y});
  const Sides sides(x.spec());
  Run inner = run;
  const Tensor gram = inner.take_scratch(sides.gram);
  const Tensor polynomial = inner.take_scratch(sides.gram);
  const double norm = std::sqrt(sum_of_squares(inner, x));
  combine(inner, 1 / std::max(norm, kMinNorm), x, 0, x);
  Tensor from = x;
  Tensor to = y;
  static_assert(kSteps % 2 == 1, "the last step must write y");
  for (int step = 0; step < kSteps; ++step) {
    newton_schulz_step(inner, sides, gram, polynomial, from, to);
    std::swap(from, to);
  }
}

std::size_t orthogonalize_scratch_bytes(const Spec& x) {
  const Sides sides(x);
  const Spec& left = sides.tall ? x : sides.gram;
  const Spec& right = sides.tall ? sides.gram : x;
  const std::size_t products =
      std::max({matmul_scratch_bytes(sides.gram_transpose, x, x),
                matmul_scratch_bytes(Transpose::kNN, sides.gram, sides.gram),
                matmul_scratch_bytes(Transpose::kNN, left, right)});
  return 2 * align_up(sides.gram.bytes()) + products;
}

void apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                     Tensor direction) {
  check_update("apply_direction", target, {direction});
  dispatch<Apply>("apply_direction", kApply, run, {step_size, decay, target, direction},
                  cost_of({target.values, target.values, target.master, target.master, direction}));
}

}  // namespace atl::ops
