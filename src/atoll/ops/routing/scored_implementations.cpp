#include <span>
#include <type_traits>
#include <vector>

#include "atoll/ops/routing/load.h"
#include "atoll/ops/routing/ref_scored.h"
#include "atoll/ops/routing/scored_routing.h"
#include "atoll/ops/serve.h"
#include "atoll/ops/storage.h"

namespace atl::ops {

namespace {

// Rows of a task: some tens of thousands of exponentials.
constexpr std::int64_t kRows = 128;

struct Forward {
  RouterForm form;
  Tensor logits, correction, experts, weights;
};
struct Backward {
  RouterForm form;
  RouterLosses losses;
  Tensor logits, experts, weights, dweights, dlogits;
};
struct Sums {
  RouterForm form;
  Tensor logits, experts, places, sums, of_load;
};

// Row `t` of a matrix.
template <typename T>
std::span<T> row(const Tensor& matrix, std::int64_t t) {
  const std::int64_t width = matrix.dim(1);
  return {matrix.data<std::remove_const_t<T>>() + t * width, static_cast<std::size_t>(width)};
}

template <typename T>
std::vector<T> widened(const Tensor& correction) {
  std::vector<T> numbers(
      static_cast<std::size_t>(correction.defined() ? correction.num_elements() : 0));
  const auto take = [&]<typename S>(S) {
    for (std::size_t e = 0; e < numbers.size(); ++e) {
      numbers[e] = static_cast<T>(widen(correction.data<S>()[e]));
    }
  };
  if (numbers.empty()) return numbers;
  if (correction.dtype() == Dtype::kBf16) take(Bf16{});
  if (correction.dtype() == Dtype::kF32) take(float{});
  if (correction.dtype() == Dtype::kF64) take(double{});
  return numbers;
}

Declined forward_ref(Run& run, const Forward& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const std::vector<T> correction = widened<T>(a.correction);
    const auto experts = static_cast<std::size_t>(a.logits.dim(1));
    run.threads().run_chunked(a.logits.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> scores(experts);
      std::vector<T> choices(experts);
      for (std::int64_t t = begin; t < end; ++t) {
        ref::route_scored_token<T>(a.form, row<const T>(a.logits, t), correction,
                                   row<std::int32_t>(a.experts, t), row<T>(a.weights, t), scores,
                                   choices);
      }
    });
  });
}

Declined backward_ref(Run& run, const Backward& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const auto experts = static_cast<std::size_t>(a.logits.dim(1));
    std::vector<T> balance;
    if (a.losses.balance != 0) {
      balance = ref::balance_slopes<T>(ref::load_of(a.losses.counts, a.experts, a.logits.dim(1)),
                                       a.losses.balance * run.loss_scale);
    }
    const T z = static_cast<T>(a.losses.z * run.loss_scale);
    run.threads().run_chunked(a.logits.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> scores(experts);
      std::vector<T> dscores(experts);
      for (std::int64_t t = begin; t < end; ++t) {
        ref::route_scored_token_backward<T>(a.form, balance, z, row<const T>(a.logits, t),
                                            row<const std::int32_t>(a.experts, t),
                                            row<const T>(a.weights, t), row<const T>(a.dweights, t),
                                            row<T>(a.dlogits, t), scores, dscores);
      }
    });
  });
}

// In double and one after the other, as add_router_sums.
Declined sums_ref(Run& run, const Sums& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const std::int64_t tokens = a.logits.dim(0);
    const std::int64_t E = a.logits.dim(1);
    const std::vector<std::int64_t> counts = ref::counts_of(a.experts, E);
    const ref::Load load = ref::load_of(a.of_load, a.experts, E);
    std::vector<T> scores(static_cast<std::size_t>(E));
    double balance = 0;
    double z = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto log_sum =
          static_cast<double>(ref::log_sum_exp(row<const T>(a.logits, t).data(), E).log_sum);
      z += log_sum * log_sum;
      ref::router_scores<T>(a.form.sigmoid, row<const T>(a.logits, t), scores);
      double total = 0;
      double weighted = 0;
      for (std::size_t e = 0; e < scores.size(); ++e) {
        total += static_cast<double>(scores[e]);
        weighted += static_cast<double>(scores[e]) * load.counts[e];
      }
      balance += weighted / (total * load.tokens);
    }
    double dropped = 0;
    const auto* places = a.places.data<std::int32_t>();
    for (std::int64_t i = 0; i < a.places.num_elements(); ++i) dropped += places[i] < 0 ? 1 : 0;
    auto* sums = a.sums.data<double>();
    for (std::size_t e = 0; e < counts.size(); ++e) sums[e] += static_cast<double>(counts[e]);
    sums[E] += static_cast<double>(tokens);
    sums[E + 1] += dropped;
    sums[E + 2] += static_cast<double>(E) * balance;
    sums[E + 3] += z;
  });
}

constexpr Implementation<Forward> kForward[] = {{"ref", forward_ref}};
constexpr Implementation<Backward> kBackward[] = {{"ref", backward_ref}};
constexpr Implementation<Sums> kSums[] = {{"ref", sums_ref}};

void check(const char* op, const RouterForm& form, const Tensor& logits, const Tensor& experts) {
  ATOLL_CHECK(logits.shape().rank() == 2 && experts.shape().rank() == 2 && experts.dim(1) >= 1,
              "{}: experts {} of logits {}", op, experts.spec().to_string(),
              logits.spec().to_string());
  const std::int64_t E = logits.dim(1);
  ATOLL_CHECK(form.num_groups >= 1 && E % form.num_groups == 0 && form.top_groups >= 1 &&
                  form.top_groups <= form.num_groups &&
                  experts.dim(1) <= form.top_groups * (E / form.num_groups) &&
                  form.best_of_group >= 1 && form.best_of_group <= 2,
              "{}: {} of {} experts, {} of {} groups by {} of each", op, experts.dim(1), E,
              form.top_groups, form.num_groups, form.best_of_group);
  check_spec(op, {Dtype::kI32, {logits.dim(0), experts.dim(1)}}, {experts});
  check_spec(op, logits.spec(), {logits});
}

void check_counts(const char* op, const Tensor& logits, const Tensor& counts) {
  if (counts.defined()) check_spec(op, {Dtype::kF64, {logits.dim(1)}}, {counts});
}

}  // namespace

void route_scored_tokens(Run& run, const RouterForm& form, Tensor logits, Tensor correction,
                         Tensor experts, Tensor weights) {
  constexpr const char* kOp = "route_scored_tokens";
  check(kOp, form, logits, experts);
  check_spec(kOp, {logits.dtype(), experts.shape()}, {weights});
  if (correction.defined()) check_spec(kOp, {correction.dtype(), {logits.dim(1)}}, {correction});
  dispatch<Forward>(kOp, kForward, run, {form, logits, correction, experts, weights},
                    cost_of({logits, experts, weights}));
}

void route_scored_tokens_backward(Run& run, const RouterForm& form, const RouterLosses& losses,
                                  Tensor logits, Tensor experts, Tensor weights, Tensor dweights,
                                  Tensor dlogits) {
  constexpr const char* kOp = "route_scored_tokens_backward";
  check(kOp, form, logits, experts);
  check_spec(kOp, {logits.dtype(), experts.shape()}, {weights, dweights});
  check_spec(kOp, logits.spec(), {dlogits});
  check_counts(kOp, logits, losses.counts);
  dispatch<Backward>(kOp, kBackward, run,
                     {form, losses, logits, experts, weights, dweights, dlogits},
                     cost_of({logits, experts, weights, dweights, dlogits}));
}

void add_scored_router_sums(Run& run, const RouterForm& form, Tensor logits, Tensor experts,
                            Tensor places, Tensor sums, Tensor counts) {
  constexpr const char* kOp = "add_scored_router_sums";
  check(kOp, form, logits, experts);
  check_spec(kOp, experts.spec(), {places});
  check_spec(kOp, {Dtype::kF64, {logits.dim(1) + 4}}, {sums});
  check_counts(kOp, logits, counts);
  dispatch<Sums>(kOp, kSums, run, {form, logits, experts, places, sums, counts},
                 cost_of({logits, experts, places}));
}

}  // namespace atl::ops
