#include "atoll/parallel/compress/zero_one_adam.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

constexpr std::int64_t kSketch = 512;

}  // namespace

bool ZeroOneSchedule::updates_second(std::int64_t steps_taken) const {
  if (steps_taken == 0) return true;
  if (steps_taken >= warmup) return false;
  std::int64_t at = 0, interval = 1;
  for (std::int64_t updates = 1; at < steps_taken; ++updates) {
    at += interval;
    if (updates % doubling == 0) interval *= 2;
  }
  return at == steps_taken;
}

std::int64_t ZeroOneSchedule::local_steps(double lr_ratio) const {
  std::int64_t steps = 2;
  for (double ratio = lr_ratio; ratio <= 0.5 && steps < max_local; ratio *= 2) steps *= 2;
  return std::min(steps, max_local);
}

ZeroOneAdam::ZeroOneAdam(const optim::OptimizerOptions& options, const FlatLayout& layout, int rank,
                         const ZeroOneSchedule& schedule)
    : OneBitOptimizer(options, layout, rank), schedule_(schedule), peak_lr_(options.peak_lr) {
  ATOLL_CHECK(peak_lr_ > 0 && schedule.doubling > 0 && schedule.max_local > 0,
              "peak lr {}, doubling {}, local steps {}", peak_lr_, schedule.doubling,
              schedule.max_local);
}

// The second moment of a plain checkpoint was updated in each step.
bool ZeroOneAdam::begin_step(std::int64_t steps_taken) {
  if (second_updates_ < 0) second_updates_ = steps_taken;
  sums_ = is_together() && (second_updates_ == 0 || schedule_.updates_second(steps_taken));
  return sums_;
}

double ZeroOneAdam::grad_norm(Run& run, const Tensor& grads) {
  return sketched_norm(run, exchange_.group(), grads, kSketch);
}

void ZeroOneAdam::request(MemoryPlan& plan) {
  const std::size_t bytes = layout_.flat().bytes();
  m_request_ = plan.request_forever("exp_avg", "optimizer", bytes);
  v_request_ = plan.request_forever("exp_avg_sq", "optimizer", bytes);
  anchor_request_ = plan.request_forever("values where ranks met", "optimizer", bytes);
  exchange_.request(plan);
}

void ZeroOneAdam::bind(const Arena& arena) {
  m_ = arena.tensor(m_request_, layout_.flat());
  v_ = arena.tensor(v_request_, layout_.flat());
  anchor_ = arena.tensor(anchor_request_, layout_.flat());
  exchange_.bind(arena);
}

std::vector<optim::StateTensor> ZeroOneAdam::state() const {
  std::vector<optim::StateTensor> all = {{"exp_avg", 0, m_}, {"exp_avg_sq", 0, v_}};
  for (optim::StateTensor& piece : exchange_.state()) all.push_back(std::move(piece));
  return all;
}

void ZeroOneAdam::update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) {
  if (sums_) return update_dense(run, args, values, grads);
  const bool stays = args.step > schedule_.warmup;  // the second moment is fixed
  if (local_steps_ == 0) wanted_steps_ = stays ? schedule_.local_steps(args.lr / peak_lr_) : 1;
  step_alone(run, args, values, grads);
  if (local_steps_ >= wanted_steps_ || args.step >= schedule_.last_step) meet(run, values);
}

void ZeroOneAdam::skip(Run& run, Tensor values) {
  if (!is_together()) meet(run, values);
}

// AdamW (Loshchilov & Hutter 2019). The bias correction of the second moment counts its updates,
// not steps.
void ZeroOneAdam::update_dense(Run& run, const optim::StepArgs& args, const Tensor& all_values,
                               const Tensor& all_grads) {
  ++second_updates_;
  if (exchange_.is_on_gpu()) {
    ops::ZeroOneStep step = kernel_step(args, all_values, all_grads);
    step.sums = true;
    step.grad_scale = static_cast<float>(args.grad_scale);
    step.rest1 = static_cast<float>(1 - beta1_);
    return ops::zero_one_step(run, step);
  }
  float* values = all_values.data<float>();
  const float* grads = all_grads.data<float>();
  const SignUnits scale = units();
  const auto beta1 = static_cast<float>(beta1_);
  const auto beta2 = static_cast<float>(beta2_);
  const auto rest1 = static_cast<float>(1 - beta1_);
  const auto rest2 = static_cast<float>(1 - beta2_);
  const auto grad_scale = static_cast<float>(args.grad_scale);
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  const auto step_size = static_cast<float>(args.lr / correction);
  float* m = m_.data<float>();
  float* v = v_.data<float>();
  run.threads().run(std::ssize(exchange_.pieces()), [&](std::int64_t number) {
    const SignPiece& piece = exchange_.pieces()[static_cast<std::size_t>(number)];
    const auto decay = static_cast<float>(piece.decay ? args.lr * weight_decay_ : 0);
    for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) {
      const float g = grad_scale * grads[i];
      m[i] = beta1 * m[i] + rest1 * g;
      v[i] = beta2 * v[i] + rest2 * g * g;
      values[i] -= (v[i] == 0 ? 0 : step_size * m[i] / scale.of(v[i])) + decay * values[i];
    }
  });
}

// A local step. Elements whose second moment is 0 never had a gradient, and do not move.
void ZeroOneAdam::step_alone(Run& run, const optim::StepArgs& args, const Tensor& values,
                             const Tensor& grads) {
  const bool is_first = local_steps_ == 0;
  if (exchange_.is_on_gpu()) {
    ops::ZeroOneStep step = kernel_step(args, values, grads);
    step.is_first = is_first;
    step.rest1 = own_share(args);
    ops::zero_one_step(run, step);
  } else {
    step_on_host(run, args, values.data<float>(), grads.data<float>());
  }
  if (is_first) moved_ = decayed_ = 0;
  moved_ += args.lr / (1 - std::pow(beta1_, static_cast<double>(args.step)));
  decayed_ += args.lr;
  ++local_steps_;
}

// The factor of this rank's own gradient in its momentum. Gradients add up to a sum over ranks, but
// the exchange computes a mean: so the factor has the number of ranks.
float ZeroOneAdam::own_share(const optim::StepArgs& args) const {
  return static_cast<float>((1 - beta1_) * args.grad_scale * exchange_.group().size());
}

ops::ZeroOneStep ZeroOneAdam::kernel_step(const optim::StepArgs& args, const Tensor& values,
                                          const Tensor& grads) const {
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  return {.units = units(),
          .pieces = exchange_.table(),
          .x = values,
          .grads = grads,
          .m = m_,
          .v = v_,
          .anchor = anchor_,
          .beta1 = static_cast<float>(beta1_),
          .beta2 = static_cast<float>(beta2_),
          .rest2 = static_cast<float>(1 - beta2_),
          .step_size = static_cast<float>(args.lr / correction),
          .decay = static_cast<float>(args.lr * weight_decay_)};
}

void ZeroOneAdam::step_on_host(Run& run, const optim::StepArgs& args, float* values,
                               const float* grads) {
  const bool is_first = local_steps_ == 0;
  const SignUnits scale = units();
  const auto beta1 = static_cast<float>(beta1_);
  const float rest = own_share(args);
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  const auto step_size = static_cast<float>(args.lr / correction);
  float* m = m_.data<float>();
  const float* v = v_.data<float>();
  float* anchor = anchor_.data<float>();
  run.threads().run(std::ssize(exchange_.pieces()), [&](std::int64_t number) {
    const SignPiece& piece = exchange_.pieces()[static_cast<std::size_t>(number)];
    for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) {
      if (is_first) anchor[i] = values[i];
      m[i] = beta1 * m[i] + rest * grads[i];
      if (v[i] != 0) values[i] -= step_size * m[i] / scale.of(v[i]);
    }
  });
}

// The exchange takes each rank's move as a mean momentum over its local steps. The residual is the
// error of such a mean over the previous number of local steps, so it is scaled to this number.
void ZeroOneAdam::meet(Run& run, const Tensor& values) {
  const auto residual_share =
      static_cast<float>(static_cast<double>(residual_steps_) / static_cast<double>(local_steps_));
  if (exchange_.is_on_gpu()) {
    meet_on_gpu(run, values, residual_share);
  } else {
    meet_on_host(run, values.data<float>(), residual_share);
  }
  residual_steps_ = local_steps_;
  local_steps_ = 0;
}

void ZeroOneAdam::meet_on_gpu(Run& run, const Tensor& values, float residual_share) {
  const ops::Placed v = {v_, ops::kSignBegin};
  exchange_.average(run, {.adds = ops::EncodeSigns::Adds::kMoves,
                          .units = units(),
                          .v = v,
                          .residual_share = residual_share,
                          .values = values,
                          .anchor = anchor_,
                          .m = m_,
                          .per_moved = static_cast<float>(moved_ > 0 ? 1 / moved_ : 0)});
  ops::apply_signs(run, {.units = units(),
                         .pieces = exchange_.table(),
                         .codes = exchange_.codes(),
                         .v = v,
                         .m = {m_, ops::kSignBegin},
                         .x = values,
                         .anchor = anchor_,
                         .step_size = static_cast<float>(moved_),
                         .decay = static_cast<float>(decayed_ * weight_decay_)});
}

void ZeroOneAdam::meet_on_host(Run& run, float* values, float residual_share) {
  const SignUnits scale = units();
  const auto moved = static_cast<float>(moved_);
  const auto per_moved = static_cast<float>(moved_ > 0 ? 1 / moved_ : 0);
  const float* anchor = anchor_.data<float>();
  float* m = m_.data<float>();
  const float* all_v = v_.data<float>();
  exchange_.average(
      run, scale, [&](const SignPiece& piece) { return all_v + piece.begin; }, residual_share,
      [&](const SignPiece& piece, std::span<float> residual) {
        for (std::size_t j = 0; j < residual.size(); ++j) {
          const std::size_t i = static_cast<std::size_t>(piece.begin) + j;
          // With a learning rate of 0 nothing moved: the momentum itself is exchanged.
          residual[j] +=
              moved > 0 ? (anchor[i] - values[i]) * per_moved * scale.of(all_v[i]) : m[i];
        }
      });
  run.threads().run(std::ssize(exchange_.pieces()), [&](std::int64_t number) {
    const SignPiece& piece = exchange_.pieces()[static_cast<std::size_t>(number)];
    const Signs signs = exchange_.signs(piece);
    const auto decay = static_cast<float>(piece.decay ? decayed_ * weight_decay_ : 0);
    for (std::size_t j = 0; j < static_cast<std::size_t>(piece.count); ++j) {
      const std::size_t i = static_cast<std::size_t>(piece.begin) + j;
      const float sign = all_v[i] == 0 ? 0 : signs(j);
      m[i] = sign * scale.of(all_v[i]);
      values[i] = anchor[i] - moved * sign - decay * anchor[i];
    }
  });
}

}  // namespace atl::parallel
