#include "atoll/param_server/slice_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/parallel/layout/flat_layout.h"
#include "atoll/tensor/host_access.h"
#include "atoll/wire/archive.h"

namespace atl::param_server {

namespace {

std::string bytes_of(const Tensor& tensor) {
  const HostRead read(tensor);
  return {reinterpret_cast<const char*>(read.bytes().data()), read.bytes().size()};
}

void write_bytes(const Tensor& tensor, const std::string& bytes, const char* what) {
  if (bytes.size() != tensor.bytes()) {
    throw damaged_error("{} of {} bytes for a slice of {}", what, bytes.size(), tensor.bytes());
  }
  write_on_host<std::byte>(tensor,
                           [&](auto to) { std::memcpy(to.data(), bytes.data(), bytes.size()); });
}

}  // namespace

SliceState::SliceState(const SliceContext& context, std::uint32_t number)
    : context_(context),
      number_(number),
      next_(static_cast<std::size_t>(context.spec->num_lanes)),
      losses_(static_cast<std::size_t>(context.spec->num_lanes)) {
  const RunSpec& spec = *context_.spec;
  const Spec own = {spec.dtype, {slice().count}};
  MemoryPlan plan;
  const int values = plan.request_forever("values", "parameters", own.bytes());
  const int gradients =
      plan.request_forever("gradients", "gradients", own.in_compute_dtype().bytes());
  if (spec.consistency != Consistency::kEasgd) {
    optimizer_ =
        optim::make_optimizer(spec.optimizer, {spec.dtype, {spec.num_elements}}, slice().ranges);
    optimizer_->request(plan);
  }
  plan.place();
  Device& device = context_.stream->device();
  arena_ = std::make_unique<Arena>(device, plan);
  values_ = arena_->tensor(values, own);
  gradients_ = arena_->tensor(gradients, own.in_compute_dtype());
  if (!optimizer_) return;
  optimizer_->bind(*arena_);
  if (optimizer_->scratch_bytes() > 0) scratch_ = Buffer(device, optimizer_->scratch_bytes());
}

void SliceState::load(const Load& load) {
  write_bytes(values_, load.values, "values");
  write_dense(load.state);
  std::fill(next_.begin(), next_.end(), load.step);
  version_ = load.step;
  updates_ = load.updates;
  summed_ = taken_for_zero_ = 0;
  waiting_.clear();
  sum_.reset();
  gathered_ = skipped_ = 0;
  gathered_lr_ = 0;
  visible_.clear();
  pulled_.clear();
  is_loaded_ = true;
  is_restored_ = false;
}

SliceState::Outcome SliceState::outcome_of(const Push& push) const {
  if (push.step < next(push.lane)) return Outcome::kDuplicate;
  return push.step > waits_for(push.lane) ? Outcome::kAhead : Outcome::kTaken;
}

// bsp: a lane whose push has come waits for the step's update.
std::int64_t SliceState::waits_for(std::int64_t lane) const {
  return is_bsp() ? std::min(next(lane), version_) : next(lane);
}

SliceState::Outcome SliceState::push(const Push& push) {
  const Outcome outcome = outcome_of(push);
  if (outcome != Outcome::kTaken) return outcome;
  const auto lane = static_cast<std::size_t>(push.lane);
  if (is_bsp()) {
    add_contribution(push.lane, push);
  } else if (updates_by_round()) {
    gather(push);
  } else if (!push.is_skipped) {
    add(push.data);
  }
  ++next_[lane];
  if (updates_by_round()) end_round();
  visible_.clear();
  return outcome;
}

bool SliceState::updates_by_round() const {
  const Consistency consistency = context_.spec->consistency;
  return consistency == Consistency::kSsp || consistency == Consistency::kAsync;
}

// ssp and async: as many pushes as there are lanes, whoever they are of, are a round, which is one
// update. An update of each push would be n steps of momentum for one batch, and a second moment of
// gradients that have n times the variance.
void SliceState::gather(const Push& push) {
  std::string data = push.data;
  if (!push.is_skipped && data.size() != gradients_.bytes()) {
    throw damaged_error("a push of {} bytes for a slice of {}", data.size(), gradients_.bytes());
  }
  if (!push.is_skipped) compensate(push.lane, data);
  if (gathered_ == 0) {
    write_on_host<std::byte>(gradients_, [](auto to) { std::memset(to.data(), 0, to.size()); });
    gathered_lr_ = 0;
    skipped_ = 0;
  }
  ++gathered_;
  if (push.is_skipped) {
    ++skipped_;
    return;
  }
  gathered_lr_ += push.lr;
  const auto scale = static_cast<float>(push.scale);
  update_on_host<float>(gradients_, [&](std::span<float> sum) {
    const auto* x = reinterpret_cast<const float*>(data.data());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * x[i];
  });
}

// Where all lanes have come as far, as they have for a checkpoint, nothing is left of a round.
void SliceState::end_round() {
  const bool is_full = gathered_ == context_.spec->num_lanes;
  const bool are_even = slowest() == *std::max_element(next_.begin(), next_.end());
  if (gathered_ == 0 || !(is_full || are_even)) return;
  const auto count = static_cast<double>(gathered_ - skipped_);
  if (count > 0) apply(++updates_, gathered_lr_ / count, 1);
  gathered_ = 0;
}

// The values that a pull is given have all pushes: those of a round that has not ended as a step of
// the part of it that they are, on a copy of the optimizer's state.
const std::string& SliceState::visible() {
  if (!visible_.empty()) return visible_;
  const auto count = static_cast<double>(gathered_ - skipped_);
  if (!updates_by_round() || gathered_ == 0 || count == 0) return visible_ = bytes_of(values_);
  const std::string values = bytes_of(values_);
  const std::vector<std::string> dense = read_dense();
  const double lanes = static_cast<double>(context_.spec->num_lanes);
  apply(updates_ + 1, gathered_lr_ / lanes, lanes / count);
  visible_ = bytes_of(values_);
  write_bytes(values_, values, "values");
  write_dense(dense);
  return visible_;
}

// Sums run in lane order, whenever the lanes come.
void SliceState::add_contribution(std::int64_t lane, const Push& push) {
  if (push.data.size() != gradients_.bytes()) {
    throw damaged_error("a push of {} bytes for a slice of {}", push.data.size(),
                        gradients_.bytes());
  }
  losses_[static_cast<std::size_t>(lane)] = push.loss;
  waiting_[lane] = push.data;
  while (!waiting_.empty() && waiting_.begin()->first == summed_) {
    const std::string& data = waiting_.begin()->second;
    if (summed_ == 0) {
      write_bytes(gradients_, data, "a push");
    } else {
      update_on_host<float>(gradients_, [&](std::span<float> sum) {
        const auto* x = reinterpret_cast<const float*>(data.data());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
      });
    }
    waiting_.erase(waiting_.begin());
    ++summed_;
  }
  if (summed_ == context_.spec->num_lanes) finish_sum();
}

void SliceState::finish_sum() {
  std::vector<ops::Block> blocks;
  for (const parallel::NormBlock& block : parallel::norm_blocks(slice().ranges)) {
    blocks.push_back({block.begin, block.count});
  }
  sum_.emplace(Sum{.slice = number_, .step = version_, .squares = {}, .losses = losses_});
  sum_->squares.resize(blocks.size());
  Run run = {.stream = context_.stream};
  ops::sums_of_squares(run, gradients_, blocks, sum_->squares);
}

bool SliceState::has_sum(std::int64_t step) const {
  return sum_.has_value() && sum_->step == step;
}

Sum SliceState::sum(std::int64_t step) const {
  ATOLL_CHECK(has_sum(step), "no sum of step {}", step);
  return *sum_;
}

bool SliceState::can_update(std::int64_t step) const {
  return is_bsp() && step == version_ && has_sum(step);
}

void SliceState::update(std::int64_t step, const Update& update) {
  ATOLL_CHECK(can_update(step), "step {} at version {}", step, version_);
  if (!update.is_skipped) apply(step + 1, update.lr, update.scale);
  if (!update.is_skipped) updates_ = step + 1;
  visible_.clear();
  ++version_;
  summed_ = taken_for_zero_ = 0;
}

void SliceState::apply(std::int64_t step_number, double lr, double scale) {
  Run run = {.stream = context_.stream,
             .scratch = {static_cast<std::byte*>(scratch_.data()), scratch_.bytes()},
             .seed = context_.spec->seed,
             .step = step_number - 1};
  optimizer_->update(run, {.lr = lr, .grad_scale = scale, .step = step_number}, values_,
                     gradients_);
}

// Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", eq. 10:
// g += lambda g*g*(w - w_pulled), of the gradient that the optimizer takes, before its moments;
// lambda is taken relative to the root of the mean square of the slice's gradient, as the paper's
// adaptive one is for each element.
void SliceState::compensate(std::int64_t lane, std::string& data) {
  const double lambda = context_.spec->compensation;
  const auto at = static_cast<std::size_t>(lane);
  if (lambda == 0 || at >= pulled_.size() || pulled_[at].empty()) return;
  const std::string now = visible();
  const auto* values = reinterpret_cast<const float*>(now.data());
  const auto* before = reinterpret_cast<const float*>(pulled_[at].data());
  auto* g = reinterpret_cast<float*>(data.data());
  const std::size_t count = data.size() / sizeof(float);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += static_cast<double>(g[i]) * g[i];
  const double rms = std::sqrt(squares / static_cast<double>(count));
  if (!(rms > 0)) return;
  const auto factor = static_cast<float>(lambda / rms);
  for (std::size_t i = 0; i < count; ++i) g[i] += factor * g[i] * g[i] * (values[i] - before[i]);
}

void SliceState::add(const std::string& data) {
  if (data.size() != gradients_.bytes() || values_.dtype() != Dtype::kF32) {
    throw damaged_error("a push of {} bytes for a slice of {}", data.size(), gradients_.bytes());
  }
  update_on_host<float>(values_, [&](std::span<float> sum) {
    const auto* x = reinterpret_cast<const float*>(data.data());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  });
}

bool SliceState::can_answer(const Pull& pull) const {
  switch (context_.spec->consistency) {
    case Consistency::kBsp:
      return version_ >= pull.step;
    case Consistency::kSsp:
      return next(pull.lane) >= pull.step && slowest() >= pull.step - context_.spec->staleness;
    case Consistency::kAsync:
      return next(pull.lane) >= pull.step;
    case Consistency::kEasgd:
      return true;
  }
  return false;
}

Values SliceState::values(const Pull& pull) {
  return {.slice = number_,
          .step = pull.step,
          .lane = pull.lane,
          .slowest = is_bsp() ? version_ : slowest(),
          .next = next(pull.lane),
          .data = visible()};
}

void SliceState::mark_pulled(std::int64_t lane) {
  pulled_.resize(next_.size());
  pulled_[static_cast<std::size_t>(lane)] = visible();
}

State SliceState::state() const {
  return {.slice = number_, .values = bytes_of(values_), .state = read_dense()};
}

std::int64_t SliceState::slowest() const {
  return *std::min_element(next_.begin(), next_.end());
}

// Dense vectors have a number for each element of the slice; those that no range covers are zero.
void SliceState::write_dense(const std::vector<std::string>& dense) {
  if (!optimizer_) return;
  const std::vector<std::string> names = state_names(context_.spec->optimizer, values_.dtype());
  if (dense.size() != names.size()) {
    throw damaged_error("{} vectors of optimizer state for {}", dense.size(), names.size());
  }
  for (const optim::StateTensor& piece : optimizer_->state()) {
    const auto at = std::find(names.begin(), names.end(), piece.name) - names.begin();
    const std::string& from = dense[static_cast<std::size_t>(at)];
    if (from.size() != gradients_.bytes()) {
      throw damaged_error("{} of {} bytes for a slice of {}", piece.name, from.size(),
                          gradients_.bytes());
    }
    write_on_host<std::byte>(piece.tensor, [&](auto to) {
      const auto offset = static_cast<std::size_t>(piece.begin - slice().begin) * sizeof(float);
      std::memcpy(to.data(), from.data() + offset, to.size());
    });
  }
}

std::vector<std::string> SliceState::read_dense() const {
  if (!optimizer_) return {};
  const std::vector<std::string> names = state_names(context_.spec->optimizer, values_.dtype());
  std::vector<std::string> dense(names.size(), std::string(gradients_.bytes(), '\0'));
  for (const optim::StateTensor& piece : optimizer_->state()) {
    const auto at = std::find(names.begin(), names.end(), piece.name) - names.begin();
    const HostRead read(piece.tensor);
    const auto offset = static_cast<std::size_t>(piece.begin - slice().begin) * sizeof(float);
    std::memcpy(dense[static_cast<std::size_t>(at)].data() + offset, read.bytes().data(),
                read.bytes().size());
  }
  return dense;
}

std::string SliceState::encode() const {
  wire::Writer writer;
  writer(number_);
  writer(bytes_of(values_));
  writer(summed_ > 0 || has_sum(version_) || gathered_ > 0 ? bytes_of(gradients_) : std::string());
  writer(read_dense());
  writer(next_), writer(updates_), writer(version_), writer(summed_), writer(losses_);
  writer(static_cast<std::uint64_t>(waiting_.size()));
  for (const auto& [lane, data] : waiting_) writer(lane), writer(data);
  writer(sum_.has_value());
  if (sum_) writer(sum_->step), writer(sum_->squares), writer(sum_->losses);
  writer(gathered_), writer(skipped_), writer(gathered_lr_);
  writer(pulled_), writer(is_restored_);
  // Seldom there: the disks of earlier versions have none.
  if (taken_for_zero_ > 0) writer(taken_for_zero_);
  return writer.take();
}

void SliceState::decode(const std::string& bytes) {
  wire::Reader reader(bytes);
  std::uint32_t number = 0;
  reader(number);
  if (number != number_) throw damaged_error("slice {} where {} was expected", number, number_);
  std::string data;
  reader(data);
  write_bytes(values_, data, "values");
  reader(data);
  if (!data.empty()) write_bytes(gradients_, data, "gradients");
  std::vector<std::string> dense;
  reader(dense);
  write_dense(dense);
  const std::size_t lanes = next_.size();
  reader(next_), reader(updates_), reader(version_), reader(summed_), reader(losses_);
  if (next_.size() != lanes || losses_.size() != lanes) {
    throw damaged_error("slice {} of {} lanes, and there are {}", number_, next_.size(), lanes);
  }
  std::uint64_t count = 0;
  reader(count);
  waiting_.clear();
  for (; count > 0; --count) {
    std::int64_t lane = 0;
    reader(lane), reader(data);
    waiting_[lane] = data;
  }
  bool has_sum = false;
  reader(has_sum);
  sum_.reset();
  if (has_sum) {
    sum_.emplace(Sum{.slice = number_, .step = 0, .squares = {}, .losses = {}});
    reader(sum_->step), reader(sum_->squares), reader(sum_->losses);
  }
  reader(gathered_), reader(skipped_), reader(gathered_lr_);
  reader(pulled_), reader(is_restored_);
  taken_for_zero_ = 0;
  if (!reader.is_at_end()) reader(taken_for_zero_);
  reader.end();
  visible_.clear();
  is_loaded_ = true;
}

std::int64_t SliceState::skip_lost(std::int64_t lane, std::int64_t step) {
  if (!is_restored_) return 0;
  if (is_bsp()) return lose_updates(step);
  std::int64_t& at = next_[static_cast<std::size_t>(lane)];
  if (step <= at) return 0;
  const std::int64_t lost = step - at;
  at = step;
  visible_.clear();
  return lost;
}

// Brings bsp to a version that the other slices have. What has come of the steps between is of
// updates that nobody can make any more: how they were made was told to this slice alone.
std::int64_t SliceState::lose_updates(std::int64_t version) {
  if (version <= version_) return 0;
  const std::int64_t lost = (version - version_) * std::ssize(next_) - taken_for_zero_;
  version_ = version;
  summed_ = taken_for_zero_ = 0;
  waiting_.clear();
  // Workers that have not heard the sum of the step before yet need it for the other slices.
  if (!has_sum(version - 1)) sum_.reset();
  for (std::int64_t& next : next_) next = std::max(next, version);
  visible_.clear();
  return lost;
}

std::int64_t SliceState::lose_contribution(std::int64_t lane, std::int64_t step) {
  if (!is_restored_ || !is_bsp()) return 0;
  const std::int64_t lost = lose_updates(step);
  if (next(lane) > step) return lost;
  push({.slice = number_,
        .step = step,
        .lane = lane,
        .is_skipped = false,
        .lr = 0,
        .scale = 1,
        .loss = 0,
        .data = std::string(gradients_.bytes(), '\0')});
  ++taken_for_zero_;
  return lost + 1;
}

}  // namespace atl::param_server
