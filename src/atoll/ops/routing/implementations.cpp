#include "atoll/ops/routing/routing.h"

#include <algorithm>
#include <vector>

#include "atoll/ops/routing/cuda.h"
#include "atoll/ops/routing/load.h"
#include "atoll/ops/routing/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// Rows of a task: some tens of thousands of exponentials.
constexpr std::int64_t kRows = 128;

struct Forward {
  bool normalize;
  Tensor logits, experts, weights;
};
struct Backward {
  bool normalize;
  RouterLosses losses;
  Tensor logits, experts, weights, dweights, dlogits;
};
struct Sums {
  Tensor logits, experts, places, sums, of_load;
};
struct Count {
  Tensor experts, counts;
};

Declined forward_ref(Run& run, const Forward& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const std::int64_t E = a.logits.dim(1);
    const std::int64_t K = a.experts.dim(1);
    run.threads().run_chunked(a.logits.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        ref::route_token(a.normalize, a.logits.data<T>() + t * E, E, K,
                         a.experts.data<std::int32_t>() + t * K, a.weights.data<T>() + t * K);
      }
    });
  });
}

Declined count_ref(Run& run, const Count& a) {
  return serve_host(run, [&] {
    const std::vector<std::int64_t> counts = ref::counts_of(a.experts, a.counts.dim(0));
    std::copy(counts.begin(), counts.end(), a.counts.data<double>());
  });
}

Declined backward_ref(Run& run, const Backward& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const std::int64_t tokens = a.logits.dim(0);
    const std::int64_t E = a.logits.dim(1);
    const std::int64_t K = a.experts.dim(1);
    std::vector<T> balance;
    if (a.losses.balance != 0) {
      balance = ref::balance_slopes<T>(ref::load_of(a.losses.counts, a.experts, E),
                                       a.losses.balance * run.loss_scale);
    }
    run.threads().run_chunked(tokens, kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        ref::route_token_backward<T>(
            a.normalize, balance.empty() ? nullptr : balance.data(),
            static_cast<T>(a.losses.z * run.loss_scale), a.logits.data<T>() + t * E, E,
            a.experts.data<std::int32_t>() + t * K, a.weights.data<T>() + t * K,
            a.dweights.data<T>() + t * K, K, a.dlogits.data<T>() + t * E);
      }
    });
  });
}

// In double and one after the other: a report, which costs little beside the experts.
Declined sums_ref(Run& run, const Sums& a) {
  return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
    const std::int64_t tokens = a.logits.dim(0);
    const std::int64_t E = a.logits.dim(1);
    auto* sums = a.sums.data<double>();
    const std::vector<std::int64_t> counts = ref::counts_of(a.experts, E);
    const ref::Load load = ref::load_of(a.of_load, a.experts, E);
    std::vector<double> probabilities(static_cast<std::size_t>(E));
    double z = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T* logits = a.logits.data<T>() + t * E;
      const T log_sum = ref::log_sum_exp(logits, E).log_sum;
      z += static_cast<double>(log_sum) * static_cast<double>(log_sum);
      for (std::int64_t e = 0; e < E; ++e) {
        probabilities[static_cast<std::size_t>(e)] +=
            static_cast<double>(std::exp(logits[e] - log_sum));
      }
    }
    double balance = 0;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      sums[e] += static_cast<double>(counts[e]);
      balance += load.counts[e] / load.tokens * probabilities[e];
    }
    double dropped = 0;
    const auto* places = a.places.data<std::int32_t>();
    for (std::int64_t i = 0; i < a.places.num_elements(); ++i) dropped += places[i] < 0 ? 1 : 0;
    sums[E] += static_cast<double>(tokens);
    sums[E + 1] += dropped;
    sums[E + 2] += static_cast<double>(E) * balance;
    sums[E + 3] += z;
  });
}

constexpr Implementation<Forward> kForward[] = {
    {"cuda",
     [](Run& run, const Forward& a) {
       return cuda::route_tokens(run, a.normalize, a.logits, a.experts, a.weights);
     }},
    {"ref", forward_ref},
};
constexpr Implementation<Backward> kBackward[] = {
    {"cuda",
     [](Run& run, const Backward& a) {
       return cuda::route_tokens_backward(run, a.normalize, a.losses, a.logits, a.experts,
                                          a.weights, a.dweights, a.dlogits);
     }},
    {"ref", backward_ref},
};
constexpr Implementation<Sums> kSums[] = {
    {"cuda",
     [](Run& run, const Sums& a) {
       return cuda::add_router_sums(run, a.logits, a.experts, a.places, a.sums, a.of_load);
     }},
    {"ref", sums_ref},
};
constexpr Implementation<Count> kCount[] = {
    {"cuda",
     [](Run& run, const Count& a) { return cuda::count_choices(run, a.experts, a.counts); }},
    {"ref", count_ref},
};

void check(const char* op, const Tensor& logits, const Tensor& experts) {
  ATOLL_CHECK(logits.shape().rank() == 2 && experts.shape().rank() == 2 && experts.dim(1) >= 1 &&
                  experts.dim(1) <= logits.dim(1),
              "{}: experts {} of logits {}", op, experts.spec().to_string(),
              logits.spec().to_string());
  check_spec(op, {Dtype::kI32, {logits.dim(0), experts.dim(1)}}, {experts});
  check_spec(op, logits.spec(), {logits});
}

}  // namespace

void route_tokens(Run& run, bool normalize, Tensor logits, Tensor experts, Tensor weights) {
  check("route_tokens", logits, experts);
  check_spec("route_tokens", {logits.dtype(), experts.shape()}, {weights});
  dispatch<Forward>("route_tokens", kForward, run, {normalize, logits, experts, weights},
                    cost_of({logits, experts, weights}));
}

void route_tokens_backward(Run& run, bool normalize, const RouterLosses& losses, Tensor logits,
                           Tensor experts, Tensor weights, Tensor dweights, Tensor dlogits) {
  check("route_tokens_backward", logits, experts);
  check_spec("route_tokens_backward", {logits.dtype(), experts.shape()}, {weights, dweights});
  check_spec("route_tokens_backward", logits.spec(), {dlogits});
  if (losses.counts.defined()) {
    check_spec("route_tokens_backward", {Dtype::kF64, {logits.dim(1)}}, {losses.counts});
  }
  dispatch<Backward>("route_tokens_backward", kBackward, run,
                     {normalize, losses, logits, experts, weights, dweights, dlogits},
                     cost_of({logits, experts, weights, dweights, dlogits}));
}

std::size_t routing_scratch_bytes(const Shape& choices, std::int64_t num_experts) {
  return cuda::routing_scratch_bytes(choices, num_experts);
}

void count_choices(Run& run, Tensor experts, Tensor counts) {
  check_spec("count_choices", {Dtype::kI32, experts.shape()}, {experts});
  check_spec("count_choices", {Dtype::kF64, {counts.dim(0)}}, {counts});
  dispatch<Count>("count_choices", kCount, run, {experts, counts}, cost_of({experts}));
}

void add_router_sums(Run& run, Tensor logits, Tensor experts, Tensor places, Tensor sums,
                     Tensor counts) {
  check("add_router_sums", logits, experts);
  check_spec("add_router_sums", experts.spec(), {places});
  check_spec("add_router_sums", {Dtype::kF64, {logits.dim(1) + 4}}, {sums});
  if (counts.defined()) check_spec("add_router_sums", {Dtype::kF64, {logits.dim(1)}}, {counts});
  dispatch<Sums>("add_router_sums", kSums, run, {logits, experts, places, sums, counts},
                 cost_of({logits, experts, places}));
}

}  // namespace atl::ops
