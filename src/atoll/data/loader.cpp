#include "atoll/data/loader.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

LoaderOptions checked(LoaderOptions options) {
  if (options.micro_batch < 1) {
    throw user_error("micro_batch ({}) must be at least 1", options.micro_batch);
  }
  if (options.global_batch == 0) options.global_batch = options.micro_batch;
  if (options.global_batch < 1 || options.global_batch % options.micro_batch != 0) {
    throw user_error(
        "a global batch of {} sequences cannot be cut into micro-batches of {}; make it a multiple",
        options.global_batch, options.micro_batch);
  }
  const std::int64_t per_step = options.global_batch / options.micro_batch;
  if (options.micro_batches.empty()) {
    options.micro_batches.resize(static_cast<std::size_t>(per_step));
    std::iota(options.micro_batches.begin(), options.micro_batches.end(), 0);
  }
  for (const std::int64_t number : options.micro_batches) {
    ATOLL_CHECK(0 <= number && number < per_step, "micro-batch {} of {}", number, per_step);
  }
  if (options.prefetch < 1 || options.prefetch > 4096) {
    throw user_error("prefetch must be between 1 and 4096 micro-batches, not {}", options.prefetch);
  }
  ATOLL_CHECK(options.first_step >= 0 && options.first_micro_batch >= 0);
  return options;
}

// The memory of one micro-batch.
struct Slot {
  std::vector<std::int32_t> tokens;     // (B, T)
  std::vector<std::int32_t> targets;    // (B, T)
  std::vector<std::int32_t> positions;  // (B, T), or empty
  std::int64_t first_sample = 0;
  std::int64_t step_targets = 0;
};

}  // namespace

struct Loader::State {
  State(const SampleSource& from, const LoaderOptions& given)
      : samples(from), options(checked(given)) {
    per_step = static_cast<std::int64_t>(options.micro_batches.size());
    // One slot more than is read ahead: the one that the caller looks at.
    slots.resize(static_cast<std::size_t>(options.prefetch) + 1);
    const auto size = static_cast<std::size_t>(options.micro_batch * samples.context());
    for (Slot& slot : slots) {
      slot.tokens.resize(size);
      slot.targets.resize(size);
      if (samples.has_documents()) slot.positions.resize(size);
    }
    thread = std::thread([this] { read_ahead(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }

  void read_ahead() {
    try {
      for (std::int64_t number = 0;; ++number) {
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stop || number - given < options.prefetch; });
          if (stop) return;
        }
        fill(slots[static_cast<std::size_t>(number) % slots.size()], number);
        {
          const std::lock_guard lock(mutex);
          filled = number + 1;
        }
        changed.notify_all();
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
      changed.notify_all();
    }
  }

  // Micro-batch `number` since the start of this loader.
  void fill(Slot& slot, std::int64_t number) {
    const auto T = static_cast<std::size_t>(samples.context());
    const std::int64_t index = options.first_micro_batch + number;
    const std::int64_t step = options.first_step + index / per_step;
    slot.first_sample =
        step * options.global_batch +
        options.micro_batches[static_cast<std::size_t>(index % per_step)] * options.micro_batch;
    slot.step_targets = step_targets(step);
    for (std::int64_t i = 0; i < options.micro_batch; ++i) {
      const auto row = [&, at = static_cast<std::size_t>(i) * T](std::vector<std::int32_t>& part) {
        return part.empty() ? std::span<std::int32_t>() : std::span(part).subspan(at, T);
      };
      samples.fill(slot.first_sample + i,
                   {row(slot.tokens), row(slot.targets), row(slot.positions)}, scratch);
    }
  }

  std::int64_t step_targets(std::int64_t step) {
    if (step != counted_step) {
      counted_targets = count_step_targets(samples, step, options.global_batch, scratch);
    }
    counted_step = step;
    return counted_targets;
  }

  const SampleSource& samples;
  const LoaderOptions options;
  std::int64_t per_step = 1;
  RowScratch scratch;
  std::int64_t counted_step = -1;  // the step of counted_targets
  std::int64_t counted_targets = 0;
  std::vector<Slot> slots;
  double waited_seconds = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t filled = 0;  // micro-batches read
  std::int64_t given = 0;   // micro-batches given to the caller, who may still look at the last
  bool stop = false;
  std::exception_ptr error;
  std::thread thread;
};

std::int64_t count_step_targets(const SampleSource& samples, std::int64_t step,
                                std::int64_t global_batch, RowScratch& scratch) {
  if (!samples.may_ignore()) return 0;
  std::int64_t count = 0;
  const std::int64_t first = step * global_batch;
  for (std::int64_t i = first; i < first + global_batch; ++i) {
    count += samples.count_targets(i, scratch);
  }
  return count == 0 ? kNoTargets : count;
}

Loader::Loader(const SampleSource& samples, const LoaderOptions& options)
    : state_(std::make_unique<State>(samples, options)) {}

Loader::Loader(const TokenSource& source, const Sampler& sampler, const LoaderOptions& options)
    : own_samples_(std::make_unique<WindowSamples>(source, sampler, Packing::kStream)),
      state_(std::make_unique<State>(*own_samples_, options)) {}

Loader::~Loader() = default;

std::int64_t Loader::micro_batches_per_step() const {
  return state_->per_step;
}

double Loader::waited_seconds() const {
  return state_->waited_seconds;
}

Batch Loader::next() {
  State& state = *state_;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.filled > state.given || state.error; });
  state.waited_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (state.filled == state.given) std::rethrow_exception(state.error);
  Slot& slot = state.slots[static_cast<std::size_t>(state.given++) % state.slots.size()];
  state.changed.notify_all();
  const Spec spec = {Dtype::kI32, {state.options.micro_batch, state.samples.context()}};
  Batch batch = {{slot.tokens.data(), spec}, {slot.targets.data(), spec}, slot.first_sample};
  if (!slot.positions.empty()) batch.positions = {slot.positions.data(), spec};
  batch.step_targets = slot.step_targets;
  return batch;
}

}  // namespace atl::data
