#include "atoll/parallel/compress/onebit_adam.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

constexpr std::int64_t kSketch = 8192;

}  // namespace

OneBitOptimizer::OneBitOptimizer(const optim::OptimizerOptions& options, const FlatLayout& layout,
                                 int rank)
    : layout_(layout),
      beta1_(options.number("beta1")),
      beta2_(options.number("beta2")),
      eps_(options.number("eps")),
      weight_decay_(options.number("weight_decay")),
      exchange_(layout, rank) {
  ATOLL_CHECK(options.kind == "adamw", "signs of {}", options.kind);
}

OneBitAdam::OneBitAdam(const optim::OptimizerOptions& options, const FlatLayout& layout,
                       std::span<const optim::ParamRange> ranges, int rank, std::int64_t warmup)
    : OneBitOptimizer(options, layout, rank),
      adamw_(optim::make_optimizer(options, layout.flat(), ranges)),
      warmup_(std::max<std::int64_t>(warmup, 1)) {
  std::int64_t held = 0;
  for (const optim::ParamRange& range : ranges) held += range.count;
  shares_moments_ = held < layout.flat().shape.num_elements();
}

bool OneBitAdam::begin_step(std::int64_t steps_taken) {
  if (second_updates_ < 0 && steps_taken >= warmup_) second_updates_ = steps_taken;
  return !is_frozen();
}

double OneBitAdam::grad_norm(Run& run, const Tensor& grads) {
  return sketched_norm(run, exchange_.group(), grads, kSketch);
}

void OneBitAdam::restored(std::int64_t second_updates, std::int64_t residual_steps) {
  OneBitOptimizer::restored(second_updates, residual_steps);
  is_restored_ = second_updates >= 0;
  is_shared_ = false;
}

void OneBitAdam::request(MemoryPlan& plan) {
  adamw_->request(plan);
  exchange_.request(plan);
  if (!shares_moments_) return;
  second_request_ =
      plan.request_forever("second moment, all of it", "optimizer", layout_.flat().bytes());
}

void OneBitAdam::bind(const Arena& arena) {
  adamw_->bind(arena);
  if (shares_moments_) second_ = arena.tensor(second_request_, layout_.flat());
  find_held();
  exchange_.bind(arena, held_at_);
}

// Finds the pieces in AdamW's two moments, in which its ranges lie one after the other.
void OneBitAdam::find_held() {
  const auto whole = [](const Tensor& all, const Tensor& next) {
    if (!all.defined()) return next;
    ATOLL_CHECK(all.data<float>() + all.num_elements() == next.data<float>(), "moments in pieces");
    return Tensor(all.raw(), {all.dtype(), {all.num_elements() + next.num_elements()}},
                  all.device());
  };
  held_.assign(exchange_.pieces().size(), {});
  held_at_.assign(held_.size(), -1);
  for (const optim::StateTensor& state : adamw_->state()) {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const std::int64_t at = exchange_.pieces()[i].begin - state.begin;
      if (at < 0 || at >= state.tensor.num_elements()) continue;
      (state.name == "exp_avg" ? held_[i].m : held_[i].v) = state.tensor.data<float>() + at;
    }
    Tensor& all = state.name == "exp_avg" ? m_ : v_;
    all = whole(all, state.tensor);
  }
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (held_[i].v != nullptr) held_at_[i] = held_[i].v - v_.data<float>();
  }
  for (const SignPiece& piece : exchange_.owned()) {
    ATOLL_CHECK(held(piece).m != nullptr && held(piece).v != nullptr, "moments from {}",
                piece.begin);
  }
}

OneBitAdam::Held OneBitAdam::held(const SignPiece& piece) const {
  return held_[static_cast<std::size_t>(&piece - exchange_.pieces().data())];
}

const float* OneBitAdam::second(const SignPiece& piece) const {
  return shares_moments_ ? second_.data<float>() + piece.begin : held(piece).v;
}

std::vector<optim::StateTensor> OneBitAdam::state() const {
  std::vector<optim::StateTensor> all = adamw_->state();
  for (optim::StateTensor& piece : exchange_.state()) all.push_back(std::move(piece));
  return all;
}

// Gives all ranks the whole second moment, and the momentum as signs. A momentum that was not made
// from signs leaves a rounding error, which its owner adds to its residual: times beta1, as this
// step would have multiplied it by beta1.
void OneBitAdam::share(Run& run) {
  if (!exchange_.is_on_gpu()) {
    encode_own(run);
  } else if (is_restored_) {
    recover_on_gpu();
  } else {
    encode_own_on_gpu(run);
  }
  gather_second();
  exchange_.gather();
  is_shared_ = true;
}

void OneBitAdam::encode_own(Run& run) {
  const SignUnits scale = units();
  const auto beta1 = static_cast<float>(beta1_);
  const std::span<const SignPiece> mine = exchange_.owned();
  run.threads().run(std::ssize(mine), [&](std::int64_t number) {
    const SignPiece& piece = mine[static_cast<std::size_t>(number)];
    const Held own = held(piece);
    const auto count = static_cast<std::size_t>(piece.count);
    if (shares_moments_) std::copy_n(own.v, count, second_.data<float>() + piece.begin);
    if (is_restored_) return recover_signs({own.m, count}, own.v, scale, exchange_.code(piece));
    encode_signs({own.m, count}, own.v, scale, exchange_.code(piece));
    const std::span<float> residual = exchange_.residual_sum(piece);
    for (std::size_t j = 0; j < count; ++j) residual[j] += beta1 * own.m[j];
  });
}

void OneBitAdam::encode_own_on_gpu(Run& run) {
  const Tensor mine = exchange_.owned_table();
  const ops::Placed m = {m_, ops::kSignHeld}, v = {v_, ops::kSignHeld};
  ops::encode_signs(
      run, {.units = units(), .pieces = mine, .codes = exchange_.codes(), .v = v, .residual = m});
  ops::add_scaled(run, mine, static_cast<float>(beta1_), m, exchange_.residual_sums());
}

// The host does it, as it happens once in a resumed run.
void OneBitAdam::recover_on_gpu() {
  const SignUnits scale = units();
  const HostRead all_m(m_), all_v(v_);
  update_on_host<std::byte>(exchange_.codes(), [&](std::span<std::byte> codes) {
    for (const SignPiece& piece : exchange_.owned()) {
      const auto at = static_cast<std::size_t>(held_at(piece));
      const auto count = static_cast<std::size_t>(piece.count);
      recover_signs(all_m.elements<float>().subspan(at, count), &all_v.elements<float>()[at], scale,
                    &codes[static_cast<std::size_t>(piece.byte)]);
    }
  });
}

void OneBitAdam::gather_second() {
  if (!shares_moments_) return;
  if (exchange_.is_on_gpu()) {
    for (const SignPiece& piece : exchange_.owned()) {
      const std::int64_t at = held_at(piece);
      copy_now(v_.rows(at, at + piece.count), second_.rows(piece.begin, piece.begin + piece.count));
    }
  }
  for (const Bucket& bucket : layout_.buckets()) {
    exchange_.group().all_gather(second_.rows(bucket.begin, bucket.end), bucket.parts);
  }
}

ops::Placed OneBitAdam::second() const {
  return shares_moments_ ? ops::Placed{second_, ops::kSignBegin} : ops::Placed{v_, ops::kSignHeld};
}

void OneBitAdam::update_on_gpu(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) {
  exchange_.average(run, {.adds = ops::EncodeSigns::Adds::kGradients,
                          .units = units(),
                          .v = second(),
                          .grads = grads,
                          .beta1 = static_cast<float>(beta1_),
                          .rest = own_share(args)});
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  ops::apply_signs(run, {.units = units(),
                         .pieces = exchange_.table(),
                         .codes = exchange_.codes(),
                         .v = second(),
                         .m = {m_, ops::kSignHeld},
                         .x = values,
                         .step_size = static_cast<float>(args.lr / correction),
                         .decay = static_cast<float>(args.lr * weight_decay_)});
}

// The factor of this rank's own gradient in its momentum. Gradients add up to a sum over ranks, but
// the exchange computes a mean: so the factor has the number of ranks.
float OneBitAdam::own_share(const optim::StepArgs& args) const {
  return static_cast<float>((1 - beta1_) * args.grad_scale * exchange_.group().size());
}

void OneBitAdam::update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) {
  if (!is_frozen()) return adamw_->update(run, args, values, grads);
  if (!is_shared_) share(run);
  if (exchange_.is_on_gpu()) return update_on_gpu(run, args, values, grads);
  const SignUnits scale = units();
  const auto beta1 = static_cast<float>(beta1_);
  const float rest = own_share(args);
  const float* all_grads = grads.data<float>();
  exchange_.average(
      run, scale, [this](const SignPiece& piece) { return second(piece); }, /*residual_share=*/1,
      [&](const SignPiece& piece, std::span<float> residual) {
        const Signs momentum = exchange_.signs(piece);
        const float* v = second(piece);
        const float* g = all_grads + piece.begin;
        for (std::size_t j = 0; j < residual.size(); ++j) {
          const float m = v[j] == 0 ? 0 : momentum(j) * scale.of(v[j]);
          residual[j] = beta1 * m + rest * g[j] + residual[j];
        }
      });
  apply(run, args, values.data<float>());
}

// Every rank makes the same update, from the signs that all ranks have received.
void OneBitAdam::apply(Run& run, const optim::StepArgs& args, float* values) {
  const SignUnits scale = units();
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  const auto step_size = static_cast<float>(args.lr / correction);
  run.threads().run(std::ssize(exchange_.pieces()), [&](std::int64_t number) {
    const SignPiece& piece = exchange_.pieces()[static_cast<std::size_t>(number)];
    const Signs signs = exchange_.signs(piece);
    const float* v = second(piece);
    float* m = held(piece).m;
    float* x = values + piece.begin;
    const auto decay = static_cast<float>(piece.decay ? args.lr * weight_decay_ : 0);
    for (std::size_t j = 0; j < static_cast<std::size_t>(piece.count); ++j) {
      const float sign = v[j] == 0 ? 0 : signs(j);
      if (m != nullptr) m[j] = sign * scale.of(v[j]);
      x[j] -= step_size * sign + decay * x[j];
    }
  });
}

}  // namespace atl::parallel
