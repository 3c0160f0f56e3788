#include "atoll/parallel/param_store.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/rng.h"
#include "atoll/ops/elementwise.h"

namespace atl::parallel {

namespace {

template <typename T>
void fill(Run& run, const nn::Param& param, const Tensor& to, std::uint64_t seed,
          std::uint64_t number) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* values = to.data<T>();
  const auto store = [](Compute value, T& to) {
    if constexpr (std::is_same_v<T, Bf16>) {
      to = to_bf16(value);
    } else {
      to = value;
    }
  };
  const RngStream stream(seed, RngPurpose::kInit, number);
  constexpr std::int64_t kGrain = 1 << 14;
  run.threads().run_chunked(to.num_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
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

ParamStore::ParamStore(nn::Model& model, bool training, const LayoutOptions& layout)
    : layout_(model, layout),
      training_(training),
      ranges_(layout_.ranges().begin(), layout_.ranges().end()) {}

void ParamStore::request_fixed(MemoryPlan& plan) {
  if (layout_.frozen_flat().bytes() > 0) {
    frozen_request_ =
        plan.request_forever("frozen", "frozen parameters", layout_.frozen_flat().bytes());
  }
  for (const nn::Constant* constant : layout_.constants()) {
    constant_requests_.push_back(
        plan.request_forever(constant->name, "constants", constant->spec.bytes()));
  }
}

void ParamStore::request(MemoryPlan& plan, const Schedule& /*schedule*/) {
  values_request_ = plan.request_forever("parameters", "parameters", flat().bytes());
  if (training_) {
    grads_request_ =
        plan.request_forever("gradients", "gradients", flat().in_compute_dtype().bytes());
  }
  request_fixed(plan);
}

Tensor ParamStore::view(const Tensor& flat, std::int64_t begin, std::size_t i) const {
  const std::int64_t at = layout_.offset(i) - begin;
  const Spec spec = {flat.dtype(), params()[i]->spec.shape};
  return flat.rows(at, at + spec.shape.num_elements()).reshaped(spec.shape);
}

void ParamStore::bind_fixed(const Arena& arena) {
  const std::size_t num_trained = trained().size();
  if (frozen_request_ >= 0) {
    const Tensor frozen = arena.tensor(frozen_request_, layout_.frozen_flat());
    for (std::size_t i = num_trained; i < params().size(); ++i) {
      params()[i]->value = view(frozen, 0, i);
    }
  }
  for (std::size_t i = 0; i < constant_requests_.size(); ++i) {
    nn::Constant& constant = *layout_.constants()[i];
    constant.value = arena.tensor(constant_requests_[i], constant.spec);
    constant.fill(constant.value);
  }
}

void ParamStore::bind(const Arena& arena) {
  values_ = arena.tensor(values_request_, flat());
  if (training_) grads_ = arena.tensor(grads_request_, flat().in_compute_dtype());
  for (std::size_t i = 0; i < trained().size(); ++i) {
    trained()[i]->value = view(values_, 0, i);
    if (training_) trained()[i]->grad = view(grads_, 0, i);
  }
  bind_fixed(arena);
}

void ParamStore::initialise(Run& run, std::uint64_t seed) {
  write_whole([&](std::span<const WholeParam> some) {
    for (const auto& [param, tensor] : some) {
      const auto at = std::find(params().begin(), params().end(), param);
      const auto number = static_cast<std::uint64_t>(at - params().begin());
      switch (param->spec.dtype) {
        case Dtype::kF64:
          fill<double>(run, *param, tensor, seed, number);
          break;
        case Dtype::kBf16:
          fill<Bf16>(run, *param, tensor, seed, number);
          break;
        default:
          fill<float>(run, *param, tensor, seed, number);
      }
    }
  });
}

void ParamStore::begin_round(Run& run, const Round& round) {
  if (round.index == 0) ops::fill_zero(run, grads_);
}

std::vector<double> ParamStore::block_sums(Run& run, std::span<const NormBlock> blocks) const {
  std::vector<ops::Block> parts;
  parts.reserve(blocks.size());
  for (const NormBlock& block : blocks) parts.push_back({block.begin, block.count});
  std::vector<double> sums(blocks.size());
  ops::sums_of_squares(run, grads_, parts, sums);
  return sums;
}

double ParamStore::grad_norm(Run& run) {
  double sum = 0;
  for (const double part : block_sums(run, norm_blocks(ranges_))) sum += part;
  return std::sqrt(sum);
}

void ParamStore::write_whole(const std::function<void(std::span<const WholeParam>)>& fill) {
  std::vector<WholeParam> all;
  for (nn::Param* param : params()) all.push_back({param, param->value});
  fill(all);
}

void ParamStore::read_whole(const std::function<void(std::span<const WholeParam>)>& read) {
  std::vector<WholeParam> all;
  for (nn::Param* param : params()) all.push_back({param, param->value});
  read(all);
}

}  // namespace atl::parallel
