#include "atoll/parallel/param_store.h"

#include <algorithm>

#include "atoll/base/rng.h"

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

template <typename T>
void fill(Run& run, const nn::Param& param, std::uint64_t seed, std::uint64_t number) {
  T* values = param.value.data<T>();
  const RngStream stream(seed, RngPurpose::kInit, number);
  constexpr std::int64_t kGrain = 1 << 14;
  run.threads().run_chunked(
      param.value.num_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          switch (param.init.kind) {
            case nn::Init::Kind::kZero:
              values[i] = 0;
              break;
            case nn::Init::Kind::kOne:
              values[i] = 1;
              break;
            case nn::Init::Kind::kNormal:
              values[i] =
                  static_cast<T>(param.init.stddev) * stream.normal(static_cast<std::uint64_t>(i));
              break;
          }
        }
      });
}

}  // namespace

ParamStore::ParamStore(nn::Model& model, bool training) : model_(model), training_(training) {
  Collector collector;
  model.visit(collector);
  params_ = std::move(collector.params);
  constants_ = std::move(collector.constants);
  std::int64_t end = 0;
  for (const nn::Param* param : params_) {
    const std::size_t element = dtype_size(param->spec.dtype);
    const auto padded = static_cast<std::int64_t>(align_up(param->spec.bytes()) / element);
    offsets_.push_back(end);
    if (!ranges_.empty() && ranges_.back().decay == param->decay) {
      ranges_.back().count += padded;
    } else {
      ranges_.push_back({end, padded, param->decay});
    }
    end += padded;
  }
  flat_ = {model.options.dtype, {end}};
}

void ParamStore::request(MemoryPlan& plan) {
  values_request_ = plan.request_forever("parameters", "parameters", flat_.bytes());
  if (training_) grads_request_ = plan.request_forever("gradients", "gradients", flat_.bytes());
  for (const nn::Constant* constant : constants_) {
    constant_requests_.push_back(
        plan.request_forever(constant->name, "constants", constant->spec.bytes()));
  }
}

void ParamStore::bind(const Arena& arena) {
  values_ = arena.tensor(values_request_, flat_);
  if (training_) grads_ = arena.tensor(grads_request_, flat_);
  for (std::size_t i = 0; i < params_.size(); ++i) {
    nn::Param& param = *params_[i];
    const std::size_t at = static_cast<std::size_t>(offsets_[i]) * dtype_size(param.spec.dtype);
    param.value = Tensor(static_cast<std::byte*>(values_.raw()) + at, param.spec);
    if (training_) param.grad = Tensor(static_cast<std::byte*>(grads_.raw()) + at, param.spec);
  }
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    constants_[i]->value = arena.tensor(constant_requests_[i], constants_[i]->spec);
    constants_[i]->fill(constants_[i]->value);
  }
}

void ParamStore::initialise(Run& run, std::uint64_t seed) {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (params_[i]->spec.dtype == Dtype::kF64) {
      fill<double>(run, *params_[i], seed, i);
    } else {
      fill<float>(run, *params_[i], seed, i);
    }
  }
}

}  // namespace atl::parallel
