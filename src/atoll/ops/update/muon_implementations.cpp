#include "atoll/ops/update/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/serve.h"
#include "atoll/ops/update/cpu_muon.h"
#include "atoll/ops/update/cuda_muon.h"
#include "atoll/ops/update/ref_muon.h"

namespace atl::ops {

namespace {

struct Momentum {
  MuonMomentum numbers;
  Tensor grad, m, direction;
};
// x over its norm, or over `least`.
struct Normalize {
  double least;
  Tensor x;
};
// square = a I + b gram + c square.
struct Polynomial {
  double a, b, c;
  Tensor gram, square;
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
    {"cuda",
     [](Run& run, const Momentum& a) {
       return cuda::muon_momentum(run, a.numbers, a.grad, a.m, a.direction);
     }},
    {"ref",
     [](Run& run, const Momentum& a) {
       return serve_any_float(run, a.m.dtype(), [&]<typename T>(T) {
         ref::muon_momentum<T>(a.numbers, a.grad, a.m, a.direction);
       });
     }},
};

template <typename T>
void add_to_diagonal(Tensor square, double value) {
  const std::int64_t n = square.dim(0);
  for (std::int64_t i = 0; i < n; ++i) square.data<T>()[i * n + i] += static_cast<T>(value);
}

double over_norm(Run& run, const Normalize& a) {
  return 1 / std::max(std::sqrt(sum_of_squares(run, a.x)), a.least);
}

constexpr Implementation<Normalize> kNormalize[] = {
    {"cpu",
     [](Run& run, const Normalize& a) {
       return serve_f32(run, a.x.dtype(),
                        [&] { cpu::combine(run, over_norm(run, a), a.x, 0, a.x); });
     }},
    {"cuda", [](Run& run, const Normalize& a) { return cuda::muon_normalize(run, a.least, a.x); }},
    {"ref",
     [](Run& run, const Normalize& a) {
       return serve_any_float(run, a.x.dtype(), [&]<typename T>(T) {
         ref::combine<T>(over_norm(run, a), a.x, 0, a.x);
       });
     }},
};

constexpr Implementation<Polynomial> kPolynomial[] = {
    {"cpu",
     [](Run& run, const Polynomial& a) {
       return serve_f32(run, a.square.dtype(), [&] {
         cpu::combine(run, a.b, a.gram, a.c, a.square);
         add_to_diagonal<float>(a.square, a.a);
       });
     }},
    {"cuda",
     [](Run& run, const Polynomial& a) {
       return cuda::muon_polynomial(run, a.a, a.b, a.c, a.gram, a.square);
     }},
    {"ref",
     [](Run& run, const Polynomial& a) {
       return serve_any_float(run, a.square.dtype(), [&]<typename T>(T) {
         ref::combine<T>(a.b, a.gram, a.c, a.square);
         add_to_diagonal<T>(a.square, a.a);
       });
     }},
};

constexpr Implementation<Apply> kApply[] = {
    {"cpu",
     [](Run& run, const Apply& a) {
       return serve_f32(run, a.target.compute(), [&] {
         cpu::apply_direction(run, a.step_size, a.decay, a.target, a.direction);
       });
     }},
    {"cuda",
     [](Run& run, const Apply& a) {
       return cuda::apply_direction(run, a.step_size, a.decay, a.target, a.direction);
     }},
    {"ref",
     [](Run& run, const Apply& a) {
       return serve_any_float(run, a.target.compute(), [&]<typename T>(T) {
         ref::apply_direction<T>(a.step_size, a.decay, a.target, a.direction);
       });
     }},
};

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

// next = a x + b (x x^T) x + c (x x^T)^2 x, as P x with P = a + b G + c G^2: on the diagonal of P,
// a costs nothing, and no product has to be added to a multiple of x.
void newton_schulz_step(Run& run, const Sides& sides, Tensor gram, Tensor polynomial, Tensor x,
                        Tensor next) {
  matmul(run, sides.gram_transpose, x, x, gram);
  matmul(run, Transpose::kNN, gram, gram, polynomial);
  dispatch<Polynomial>("muon_polynomial", kPolynomial, run, {kA, kB, kC, gram, polynomial},
                       cost_of({gram, polynomial, polynomial}));
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
  // Before the matrices below take its scratch.
  dispatch<Normalize>("muon_normalize", kNormalize, run, {kMinNorm, x}, cost_of({x, x, x}));
  Run inner = run;
  const Tensor gram = inner.take_scratch(sides.gram);
  const Tensor polynomial = inner.take_scratch(sides.gram);
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
  return std::max(2 * align_up(sides.gram.bytes()) + products,
                  cuda::muon_normalize_scratch_bytes(x));
}

void apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                     Tensor direction) {
  check_update("apply_direction", target, {direction});
  dispatch<Apply>("apply_direction", kApply, run, {step_size, decay, target, direction},
                  cost_of({target.values, target.values, target.master, target.master, direction}));
}

}  // namespace atl::ops
