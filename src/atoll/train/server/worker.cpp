#include "atoll/train/server/worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/optim/clip.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/config/server.h"

namespace atl::train {

namespace {

using param_server::Consistency;
using param_server::LaneAt;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWait{50};

std::string bytes_of(const Tensor& tensor) {
  const HostRead read(tensor);
  return {reinterpret_cast<const char*>(read.bytes().data()), read.bytes().size()};
}

void write_bytes(const Tensor& tensor, std::string_view bytes) {
  if (bytes.size() != tensor.bytes()) {
    throw damaged_error("{} bytes for a slice of {}", bytes.size(), tensor.bytes());
  }
  write_on_host<std::byte>(tensor,
                           [&](auto to) { std::memcpy(to.data(), bytes.data(), bytes.size()); });
}

// Calls `each` with the part of a piece of optimizer state that lies in a slice, and where it
// begins there.
void within(const param_server::Slice& slice, const optim::StateTensor& piece,
            const std::function<void(const Tensor& part, std::int64_t at)>& each) {
  const std::int64_t begin = std::max(slice.begin, piece.begin);
  const std::int64_t end =
      std::min(slice.begin + slice.count, piece.begin + piece.tensor.num_elements());
  if (begin < end)
    each(piece.tensor.rows(begin - piece.begin, end - piece.begin), begin - slice.begin);
}

}  // namespace

ServerWorker::ServerWorker(const Parts& parts, std::string identity, std::int64_t step)
    : parts_(parts),
      first_step_(step),
      plan_(parts.config.train.batch_size / parts.config.train.micro_batch,
            static_cast<int>(num_lanes(parts.config))),
      spec_(make_spec()),
      worker_(parts.config.sync.worker, identity),
      loop_(worker_,
            {.consistency = spec_.consistency,
             .num_slices = spec_.slices.size(),
             .period = parts.config.sync.period},
            hooks()),
      own_updates_(step),
      connection_(worker_, parts.config.sync.addresses, link_of(parts.config.sync),
                  parts.config.comm.timeout_s) {
  spec_.identity = std::move(identity);
  if (parts.config.sync.worker == 0) worker_.offer(spec_);
}

ServerWorker::~ServerWorker() = default;

param_server::RunSpec ServerWorker::make_spec() const {
  const TrainConfig& config = parts_.config;
  if (!state().model().expert_loads.empty()) {
    throw user_error(
        "sync.mode = ps and a model with experts do not go together yet: what a "
        "router balances is counted over ranks; use all-reduce");
  }
  const parallel::FlatLayout& layout = state().store().layout();
  param_server::RunSpec spec;
  spec.consistency = consistency_of(config.sync);
  spec.staleness = config.sync.staleness;
  spec.compensation = config.sync.compensation;
  spec.num_lanes = num_lanes(config);
  spec.replicas = config.sync.replicas;
  spec.num_servers = config.sync.servers;
  spec.num_workers = config.sync.workers;
  spec.first_step = first_step_;
  spec.num_steps = config.train.steps;
  spec.fence_every = config.checkpoint.every;
  spec.seed = static_cast<std::uint64_t>(config.run.seed);
  spec.dtype = layout.flat().dtype;
  spec.num_elements = layout.flat().shape.num_elements();
  spec.optimizer = state().options().optimizer;
  spec.slices = param_server::cut_into_slices(layout.ranges(), spec.num_elements);
  return spec;
}

param_server::WorkerHooks ServerWorker::hooks() {
  return {
      .state = [this](std::uint32_t slice) { return state_of(slice); },
      .take_values = [this](std::uint32_t slice,
                            std::string_view values) { write_bytes(values_of(slice), values); },
      .gradient = [this](std::uint32_t slice) { return bytes_of(gradients_of(slice)); },
      .push_args = [this](const LaneAt& at) { return push_args(at); },
      .decide = [this](std::int64_t step, std::span<const double> squares,
                       std::span<const double> losses) { return decide(step, squares, losses); },
      .average = [this](std::uint32_t slice,
                        std::string_view values) { return average(slice, values); },
      .take_state = [this](const param_server::State& state) { take_state(state); }};
}

Tensor ServerWorker::values_of(std::uint32_t slice) const {
  const param_server::Slice& part = spec_.slices[slice];
  return state().store().values().rows(part.begin, part.begin + part.count);
}

Tensor ServerWorker::gradients_of(std::uint32_t slice) const {
  const param_server::Slice& part = spec_.slices[slice];
  return state().store().grads().rows(part.begin, part.begin + part.count);
}

double ServerWorker::share_of(std::int64_t lane) const {
  return static_cast<double>(plan_.share(static_cast<int>(lane))) /
         static_cast<double>(plan_.num_micro_batches());
}

// ---- the state, to servers and from them ----

param_server::Load ServerWorker::state_of(std::uint32_t slice) const {
  const param_server::Slice& part = spec_.slices[slice];
  const std::vector<std::string> names = param_server::state_names(spec_.optimizer, spec_.dtype);
  const auto bytes = static_cast<std::size_t>(part.count) * sizeof(float);
  param_server::Load load = {
      .slice = slice,
      .step = first_step_,
      .updates = first_step_,
      .values = bytes_of(values_of(slice)),
      .state = std::vector<std::string>(names.size(), std::string(bytes, '\0'))};
  for (const optim::StateTensor& piece : state().optimizer().state()) {
    const auto name = std::find(names.begin(), names.end(), piece.name) - names.begin();
    within(part, piece, [&](const Tensor& of_slice, std::int64_t at) {
      const HostRead read(of_slice);
      std::memcpy(load.state[static_cast<std::size_t>(name)].data() +
                      static_cast<std::size_t>(at) * sizeof(float),
                  read.bytes().data(), read.bytes().size());
    });
  }
  return load;
}

void ServerWorker::take_state(const param_server::State& given) {
  write_bytes(values_of(given.slice), given.values);
  if (given.state.empty()) return;  // easgd: each worker has an optimizer of its own
  const param_server::Slice& part = spec_.slices[given.slice];
  const std::vector<std::string> names = param_server::state_names(spec_.optimizer, spec_.dtype);
  if (given.state.size() != names.size()) {
    throw damaged_error("{} vectors of optimizer state for {}", given.state.size(), names.size());
  }
  for (const optim::StateTensor& piece : state().optimizer().state()) {
    const auto name = std::find(names.begin(), names.end(), piece.name) - names.begin();
    const std::string& from = given.state[static_cast<std::size_t>(name)];
    within(part, piece, [&](const Tensor& of_slice, std::int64_t at) {
      write_bytes(of_slice, std::string_view(from).substr(
                                static_cast<std::size_t>(at) * sizeof(float), of_slice.bytes()));
    });
  }
}

// ---- waiting ----

void ServerWorker::pump(const WantsStop& wants_stop) {
  if (wants_stop() && !has_asked_to_stop_) {
    has_asked_to_stop_ = true;
    worker_.ask_to_stop();
  }
  const Clock::time_point begin = Clock::now();
  connection_.pump(kWait);
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

std::optional<std::int64_t> ServerWorker::begin(const WantsStop& wants_stop) {
  while (!worker_.begun() && !worker_.ended()) {
    loop_.next();
    pump(wants_stop);
  }
  if (!worker_.begun()) return std::nullopt;
  step_ = *worker_.begun();
  return step_;
}

ServerWorker::Turn ServerWorker::turn(const WantsStop& wants_stop, metrics::Timeline* timeline) {
  using What = param_server::WorkerLoop::Job::What;
  for (;;) {
    if (!job_) job_ = loop_.next();
    // A step is taken when all lanes that this worker has are beyond it.
    if (const auto position = loop_.position(); position && *position > step_) {
      const bool is_step = std::exchange(has_result_, false);
      step_ = *position;
      StepResult result = std::exchange(result_, {});
      if (is_step) {
        return {.what = Turn::What::kStep,
                .step = step_,
                .result = std::move(result),
                .staleness = std::exchange(staleness_, 0)};
      }
    }
    const param_server::WorkerLoop::Job job = *std::exchange(job_, std::nullopt);
    switch (job.what) {
      case What::kWait:
        pump(wants_stop);
        break;
      case What::kCompute:
        compute(job.at, timeline);
        loop_.computed();
        connection_.flush();
        break;
      case What::kSave:
        return {.what = Turn::What::kSave, .step = job.at.step};
      case What::kEnd:
        return {};
    }
  }
}

// ---- work ----

MicroBatchResult ServerWorker::run_lane(const LaneAt& at, metrics::Timeline* timeline) {
  LaneData& data = data_[at.lane];
  if (!data.loader || data.step != at.step) {
    data.loader = std::make_unique<data::Loader>(
        parts_.samples, data::LoaderOptions{.micro_batch = parts_.config.train.micro_batch,
                                            .global_batch = parts_.config.train.batch_size,
                                            .micro_batches = plan_.of(static_cast<int>(at.lane)),
                                            .first_step = at.step});
  }
  data.step = at.step + 1;
  Run run = parts_.model.run();
  run.seed = static_cast<std::uint64_t>(parts_.config.run.seed);
  run.step = at.step;
  const auto next = [&] { return data.loader->next(); };
  MicroBatchResult micro =
      pass_one_by_one(state(), run, {plan_, static_cast<int>(at.lane), next, timeline});
  read_losses(*run.stream, micro);
  return micro;
}

void ServerWorker::compute(const LaneAt& at, metrics::Timeline* timeline) {
  const MicroBatchResult micro = run_lane(at, timeline);
  Run run = parts_.model.run();
  lane_loss_ = std::accumulate(micro.losses.begin(), micro.losses.end(), 0.0);
  first_sample_ = micro.first_sample;
  lane_has_targets_ = micro.targets > 0;
  if (!is_bsp()) {
    state().store().reduce(run);
    lane_norm_ = state().store().grad_norm(run) / share_of(at.lane);
  }
  note(at, micro, lane_norm_);
  if (spec_.consistency == Consistency::kEasgd) update_own(at, lane_norm_);
}

// What the step's line says. With bsp the servers tell the rest: decide().
void ServerWorker::note(const LaneAt& at, const MicroBatchResult& micro, double norm) {
  if (computed_ == 0 || !has_result_) {
    result_ = {.targets = micro.targets, .has_targets = lane_has_targets_};
    computed_ = 0;
    has_result_ = true;
  }
  ++computed_;
  result_.targets = micro.targets;
  result_.compute_seconds +=
      (micro.seconds / static_cast<double>(micro.losses.size()) - result_.compute_seconds) /
      static_cast<double>(computed_);
  staleness_ = std::max(staleness_, loop_.last_stale());
  if (is_bsp() || !lane_has_targets_) return;
  const double loss = lane_loss_ / (share_of(at.lane) * static_cast<double>(micro.targets));
  result_.loss += (loss - result_.loss) / static_cast<double>(computed_);
  result_.grad_norm += (norm - result_.grad_norm) / static_cast<double>(computed_);
  for (const std::int64_t sample : micro.nonfinite_samples) {
    result_.nonfinite_samples.push_back(sample);
  }
  if (std::isfinite(norm) || !micro.nonfinite_samples.empty()) return;
  for (const std::int64_t number : plan_.of(static_cast<int>(at.lane))) {
    for (std::int64_t i = 0; i < parts_.config.train.micro_batch; ++i) {
      result_.nonfinite_samples.push_back(first_sample_ + number * parts_.config.train.micro_batch +
                                          i);
    }
  }
}

// easgd: an ordinary step, on the mean over the lane's samples.
void ServerWorker::update_own(const LaneAt& at, double norm) {
  if (!std::isfinite(norm) || !lane_has_targets_) return;
  Run run = parts_.model.run();
  run.seed = spec_.seed;
  run.step = at.step;
  run.scratch = state().optimizer_scratch();
  state().optimizer().update(
      run,
      {.lr = parts_.schedule.learning_rate(at.step),
       .grad_scale = optim::clip_scale(norm, parts_.config.optim.clip) / share_of(at.lane),
       .step = ++own_updates_},
      state().store().values(), state().store().grads());
}

// A lane's gradient is a part of the batch's; clipping goes by its norm as that of a whole one.
param_server::PushArgs ServerWorker::push_args(const LaneAt& at) const {
  if (is_bsp()) return {.loss = lane_loss_};
  if (spec_.consistency == Consistency::kEasgd) return {};
  return {.is_skipped = !std::isfinite(lane_norm_) || !lane_has_targets_,
          .lr = parts_.schedule.learning_rate(at.step),
          .scale = optim::clip_scale(lane_norm_, parts_.config.optim.clip),
          .loss = lane_loss_};
}

// For a worker that has only seen the end of a step.
std::int64_t ServerWorker::count_targets(std::int64_t step) const {
  const LoopSettings& train = parts_.config.train;
  data::RowScratch scratch;
  const std::int64_t count =
      data::count_step_targets(parts_.samples, step, train.batch_size, scratch);
  if (count == data::kNoTargets) return 0;
  return count > 0 ? count : train.batch_size * train.context;
}

param_server::Update ServerWorker::decide(std::int64_t step, std::span<const double> squares,
                                          std::span<const double> losses) {
  double sum = 0;
  for (const double block : squares) sum += block;
  const double norm = std::sqrt(sum);
  double loss = 0;
  if (result_.targets <= 0) result_.targets = count_targets(step);
  const std::int64_t targets = result_.targets;
  for (const double lane : losses) {
    loss += lane / static_cast<double>(std::max<std::int64_t>(targets, 1));
  }
  result_.has_targets = targets > 0;
  result_.loss = loss;
  result_.grad_norm = norm;
  const bool is_taken = std::isfinite(norm) && std::isfinite(loss);
  result_.nonfinite_samples.clear();
  if (!is_taken) {
    result_.nonfinite_samples.resize(static_cast<std::size_t>(parts_.config.train.batch_size));
    std::iota(result_.nonfinite_samples.begin(), result_.nonfinite_samples.end(), first_sample_);
  }
  return {.is_given = true,
          .is_skipped = !is_taken || !result_.has_targets,
          .lr = parts_.schedule.learning_rate(step),
          .scale = optim::clip_scale(norm, parts_.config.optim.clip)};
}

// Zhang et al. 2015, "Deep learning with elastic averaging SGD", eq. 5 and 6.
std::string ServerWorker::average(std::uint32_t slice, std::string_view values) {
  const auto alpha = static_cast<float>(elasticity_of(parts_.config.sync));
  const Tensor own = values_of(slice);
  if (values.size() != own.bytes()) {
    throw damaged_error("{} bytes for a slice of {}", values.size(), own.bytes());
  }
  std::vector<float> centre(values.size() / sizeof(float));
  std::memcpy(centre.data(), values.data(), values.size());
  update_on_host<float>(own, [&](std::span<float> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      centre[i] = alpha * (x[i] - centre[i]);
      x[i] -= centre[i];
    }
  });
  return {reinterpret_cast<const char*>(centre.data()), values.size()};
}

}  // namespace atl::train
