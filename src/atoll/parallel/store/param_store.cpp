#include "atoll/parallel/store/param_store.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace atl::parallel {

namespace {

// Adds the time from its construction to its destruction to `seconds`.
class Waiting {
 public:
  explicit Waiting(double& seconds) : seconds_(seconds) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start_;
    seconds_ += waited.count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

ParamStore::ParamStore(nn::Model& model, bool training, const LayoutOptions& layout)
    : layout_(model, layout),
      tensor_(model.tensor.get()),
      context_(model.context.get()),
      expert_(model.expert.get()),
      parts_(model.parts.get()),
      training_(training),
      ranges_(layout_.ranges().begin(), layout_.ranges().end()),
      norm_(ranges_) {}

void ParamStore::set_part(std::vector<optim::ParamRange> ranges, int rank) {
  ranges_ = std::move(ranges);
  norm_ = GradNorm(layout_, ranges_, rank);
}

void ParamStore::request_fixed(MemoryPlan& plan) {
  if (layout_.frozen_flat().bytes() > 0) {
    frozen_request_ =
        plan.request_forever("frozen", "frozen parameters", layout_.frozen_flat().bytes());
  }
  for (const nn::Param* param : frozen()) {
    if (!param->is_packed()) continue;
    packed_requests_.push_back(
        plan.request_forever(param->name, "packed parameters", param->packed.num_bytes()));
  }
  for (const nn::Constant* constant : layout_.constants()) {
    constant_requests_.push_back(
        plan.request_forever(constant->name, "constants", constant->spec.bytes()));
  }
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
      if (!params()[i]->is_packed()) params()[i]->value = view(frozen, 0, i);
    }
  }
  auto packed = packed_requests_.begin();
  for (nn::Param* param : this->frozen()) {
    if (!param->is_packed()) continue;
    const auto bytes = static_cast<std::int64_t>(param->packed.num_bytes());
    param->packed.bytes = arena.tensor(*packed++, {Dtype::kU8, {bytes}});
  }
  for (std::size_t i = 0; i < constant_requests_.size(); ++i) {
    nn::Constant& constant = *layout_.constants()[i];
    constant.value = arena.tensor(constant_requests_[i], constant.spec);
    constant.fill(constant.value);
  }
}

bool ParamStore::is_late(const nn::Param* param) const {
  return std::find(late_.begin(), late_.end(), param) != late_.end();
}

std::vector<double> ParamStore::squares_of_blocks(Run& run) {
  return norm_.squares(run, grads_, shard_);
}

double ParamStore::grad_norm(Run& run) {
  double mine = 0;
  for (const double block : squares_of_blocks(run)) mine += block;
  return norm_of(mine);
}

double ParamStore::norm_of(double mine) {
  if (parts_ == nullptr || parts_->size == 1) return std::sqrt(mine);
  ATOLL_CHECK(parts_->group != nullptr, "not connected");
  const Waiting waiting(waited_seconds_);
  std::vector<double> all(static_cast<std::size_t>(parts_->size));
  all[static_cast<std::size_t>(parts_->rank)] = mine;
  parts_->group->all_gather({all.data(), {Dtype::kF64, {parts_->size}}},
                            parts_->group->even_parts(parts_->size));
  double sum = 0;
  for (const double part : all) sum += part;
  return std::sqrt(sum);
}

void ParamStore::sum_shared(std::size_t first, std::size_t end, const Tensor& flat,
                            std::int64_t begin) {
  std::vector<const nn::Axis*> axes;
  for (std::size_t i = first; i < end; ++i) {
    for (const nn::Sharing& sharing : trained()[i]->shared_by) {
      if (std::find(axes.begin(), axes.end(), sharing.axis) == axes.end()) {
        axes.push_back(sharing.axis);
      }
    }
  }
  // The order of sums decides bits, so it must not depend on the other parameters of the bucket:
  // the expert axis always comes last.
  std::stable_partition(axes.begin(), axes.end(),
                        [&](const nn::Axis* axis) { return axis != expert_; });
  for (const nn::Axis* axis : axes) sum_along(*axis, first, end, flat, begin);
}

void ParamStore::sum_along(const nn::Axis& axis, std::size_t first, std::size_t end,
                           const Tensor& flat, std::int64_t begin) {
  // The first row that the ranks of this axis share; -1: they share none.
  const auto first_row = [&](const nn::Param& param) -> std::int64_t {
    for (const nn::Sharing& sharing : param.shared_by) {
      if (sharing.axis == &axis) return sharing.row;
    }
    return -1;
  };
  for (std::size_t i = first; i < end; ++i) {
    const nn::Param& param = *trained()[i];
    const std::int64_t row = first_row(param);
    if (row < 0) continue;
    ATOLL_CHECK(axis.group != nullptr, "{}: its ranks are not connected", param.name);
    const Shape& shape = param.spec.shape;
    const std::int64_t from = offset(i) + row * (shape.num_elements() / shape.dim(0));
    // One call takes the whole parameters that follow too, with the zero padding between them.
    while (i + 1 < end && first_row(*trained()[i + 1]) == 0) ++i;
    const std::int64_t to = offset(i) + trained()[i]->spec.shape.num_elements();
    const Waiting waiting(waited_seconds_);
    axis.group->all_reduce(flat.rows(from - begin, to - begin));
  }
}

void ParamStore::begin_round(const Round& round) {
  contributors_.assign(round.contributors.begin(), round.contributors.end());
  round_ = {round.index, round.last, contributors_};
  round_is_new_ = true;
}

void ParamStore::wait(comm::Work& work) {
  const Waiting waiting(waited_seconds_);
  work.wait();
  work = {};
}

void ParamStore::abandon() noexcept {
  try {
    settle();
  } catch (...) {  // the error of the step is already being reported
  }
}

}  // namespace atl::parallel
