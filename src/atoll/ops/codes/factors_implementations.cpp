#include "atoll/ops/codes/factors.h"

#include "atoll/ops/codes/cuda_factors.h"
#include "atoll/ops/codes/ref_factors.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct WithFlags {
  Factors factors;
  Tensor flags;
};

constexpr Implementation<Factors> kRows[] = {
    {"cuda", cuda::project_rows},
    {"ref",
     [](Run& run, const Factors& a) { return serve_host(run, [&] { ref::project_rows(a); }); }},
};
constexpr Implementation<WithFlags> kColumns[] = {
    {"cuda",
     [](Run& run, const WithFlags& a) { return cuda::project_columns(run, a.factors, a.flags); }},
    {"ref",
     [](Run& run, const WithFlags& a) {
       return serve_host(run, [&] { ref::project_columns(a.factors, a.flags); });
     }},
};
constexpr Implementation<WithFlags> kOwe[] = {
    {"cuda",
     [](Run& run, const WithFlags& a) { return cuda::keep_residual(run, a.factors, a.flags); }},
    {"ref",
     [](Run& run, const WithFlags& a) {
       return serve_host(run, [&] { ref::keep_residual(a.factors, a.flags); });
     }},
};
constexpr Implementation<WithFlags> kRestore[] = {
    {"cuda",
     [](Run& run, const WithFlags& a) { return cuda::restore_product(run, a.factors, a.flags); }},
    {"ref",
     [](Run& run, const WithFlags& a) {
       return serve_host(run, [&] { ref::restore_product(a.factors, a.flags); });
     }},
};
constexpr Implementation<Orthogonalise> kOrthogonalise[] = {
    {"cuda", cuda::orthogonalise},
    {"ref", [](Run& run,
               const Orthogonalise& a) { return serve_host(run, [&] { ref::orthogonalise(a); }); }},
};

void check_matrices(const char* op, const Tensor& matrices, std::int64_t rank) {
  ATOLL_CHECK(matrices.dtype() == Dtype::kI64 && matrices.shape().rank() == 2 &&
                  matrices.dim(1) == kFactorColumns && rank >= 1,
              "{}: matrices {} of rank {}", op, matrices.spec().to_string(), rank);
}

OpCost cost_with_residual(const Factors& a) {
  return cost_of({a.m, a.p, a.q, a.residual, a.residual.defined() ? a.m : Tensor()});
}

}  // namespace

void project_rows(Run& run, const Factors& factors) {
  check_matrices("project_rows", factors.matrices, factors.rank);
  dispatch<Factors>("project_rows", kRows, run, factors, cost_with_residual(factors));
}

void project_columns(Run& run, const Factors& factors, const Tensor& flags) {
  check_matrices("project_columns", factors.matrices, factors.rank);
  dispatch<WithFlags>("project_columns", kColumns, run, {factors, flags},
                      cost_of({factors.m, factors.p, factors.q}));
}

void keep_residual(Run& run, const Factors& factors, const Tensor& flags) {
  check_matrices("keep_residual", factors.matrices, factors.rank);
  dispatch<WithFlags>("keep_residual", kOwe, run, {factors, flags},
                      cost_of({factors.m, factors.p, factors.q, factors.residual}));
}

void restore_product(Run& run, const Factors& factors, const Tensor& flags) {
  check_matrices("restore_product", factors.matrices, factors.rank);
  dispatch<WithFlags>("restore_product", kRestore, run, {factors, flags},
                      cost_of({factors.m, factors.p, factors.q}));
}

void orthogonalise(Run& run, const Orthogonalise& args) {
  check_matrices("orthogonalise", args.matrices, args.rank);
  dispatch<Orthogonalise>("orthogonalise", kOrthogonalise, run, args,
                          cost_of({args.from, args.to}));
}

}  // namespace atl::ops
