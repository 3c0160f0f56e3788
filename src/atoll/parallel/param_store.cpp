#include "atoll/parallel/param_store.h"

#include <algorithm>

#include "atoll/base/rng.h"
#include "atoll/parallel/param_ranges.h"

namespace atl::parallel {

namespace {

class Collector final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override { add(params, &param); }
  void constant(nn::Constant& constant) override { add(constants, &constant); }

  std::vector<nn::Param*> params;
  std::vector<nn::Constant*> constants;

 private:
  template <typename T>
  static void add(std::vector<T*>& to, T* item) {
    if (std::find(to.begin(), to.end(), item) == to.end()) to.push_back(item);
  }
};

// A parameter's elements, and those up to the next cache line.
std::int64_t padded_elements(const nn::Param& param) {
  return static_cast<std::int64_t>(align_up(param.spec.bytes()) / dtype_size(param.spec.dtype));
}

template <typename T>
void fill(Run& run, const nn::Param& param, std::uint64_t seed, std::uint64_t number) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* values = param.value.data<T>();
  const auto store = [](Compute value, T& to) {
    if constexpr (std::is_same_v<T, Bf16>) {
      to = to_bf16(value);
    } else {
      to = value;
    }
  };
  const RngStream stream(seed, RngPurpose::kInit, number);
  constexpr std::int64_t kGrain = 1 << 14;
  run.threads().run_chunked(param.value.num_elements(), kGrain,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t i = begin; i < end; ++i) {
                                switch (param.init.kind) {
                                  case nn::Init::Kind::kZero:
                                    store(0, values[i]);
                                    break;
                                  case nn::Init::Kind::kOne:
                                    store(1, values[i]);
                                    break;
                                  case nn::Init::Kind::kNormal:
                                    store(static_cast<Compute>(param.init.stddev) *
                                              stream.normal(static_cast<std::uint64_t>(i)),
                                          values[i]);
                                    break;
                                }
                              }
                            });
}

}  // namespace

ParamStore::ParamStore(nn::Model& model, bool training) : training_(training) {
  Collector collector;
  model.visit(collector);
  params_ = std::move(collector.params);
  constants_ = std::move(collector.constants);
  const auto first_frozen = std::stable_partition(
      params_.begin(), params_.end(), [](const nn::Param* param) { return !param->frozen; });
  num_trained_ = static_cast<std::size_t>(first_frozen - params_.begin());
  const auto place = [&](std::span<nn::Param* const> params) {
    std::int64_t end = 0;
    for (const nn::Param* param : params) {
      offsets_.push_back(end);
      end += padded_elements(*param);
    }
    return Spec{model.options.dtype, {end}};
  };
  flat_ = place(trained());
  frozen_flat_ = place(frozen());
  for (std::size_t i = 0; i < num_trained_; ++i) {
    append_ranges(*params_[i], offsets_[i], padded_elements(*params_[i]), ranges_);
  }
}

void ParamStore::request(MemoryPlan& plan) {
  values_request_ = plan.request_forever("parameters", "parameters", flat_.bytes());
  if (frozen_flat_.bytes() > 0) {
    frozen_request_ = plan.request_forever("frozen", "frozen parameters", frozen_flat_.bytes());
  }
  if (training_) {
    grads_request_ =
        plan.request_forever("gradients", "gradients", flat_.in_compute_dtype().bytes());
  }
  for (const nn::Constant* constant : constants_) {
    constant_requests_.push_back(
        plan.request_forever(constant->name, "constants", constant->spec.bytes()));
  }
}

void ParamStore::bind(const Arena& arena) {
  const auto part = [](const Tensor& flat, std::int64_t offset, Spec spec) {
    const std::size_t at = static_cast<std::size_t>(offset) * dtype_size(spec.dtype);
    return Tensor(static_cast<std::byte*>(flat.raw()) + at, spec);
  };
  values_ = arena.tensor(values_request_, flat_);
  Tensor frozen;
  if (frozen_request_ >= 0) frozen = arena.tensor(frozen_request_, frozen_flat_);
  if (training_) grads_ = arena.tensor(grads_request_, flat_.in_compute_dtype());
  for (std::size_t i = 0; i < params_.size(); ++i) {
    nn::Param& param = *params_[i];
    const bool trained = i < num_trained_;
    param.value = part(trained ? values_ : frozen, offsets_[i], param.spec);
    if (training_ && trained) param.grad = part(grads_, offsets_[i], param.spec.in_compute_dtype());
  }
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    constants_[i]->value = arena.tensor(constant_requests_[i], constants_[i]->spec);
    constants_[i]->fill(constants_[i]->value);
  }
}

void ParamStore::initialise(Run& run, std::uint64_t seed) {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    switch (params_[i]->spec.dtype) {
      case Dtype::kF64:
        fill<double>(run, *params_[i], seed, i);
        break;
      case Dtype::kBf16:
        fill<Bf16>(run, *params_[i], seed, i);
        break;
      default:
        fill<float>(run, *params_[i], seed, i);
    }
  }
}

}  // namespace atl::parallel
