#include "atoll/data/loader.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

LoaderOptions checked(LoaderOptions options) {
  if (options.micro_batch < 1 || options.num_ranks < 1) {
    throw user_error("micro_batch ({}) and the number of ranks ({}) must be at least 1",
                     options.micro_batch, options.num_ranks);
  }
  if (options.global_batch == 0) options.global_batch = options.micro_batch * options.num_ranks;
  if (options.global_batch < 1 ||
      options.global_batch % (options.micro_batch * options.num_ranks) != 0) {
    throw user_error(
        "a global batch of {} sequences cannot be cut into micro-batches of {} on {} ranks; make "
        "it a multiple of {}",
        options.global_batch, options.micro_batch, options.num_ranks,
        options.micro_batch * options.num_ranks);
  }
  if (options.prefetch < 1 || options.prefetch > 4096) {
    throw user_error("prefetch must be between 1 and 4096 micro-batches, not {}", options.prefetch);
  }
  ATOLL_CHECK(0 <= options.rank && options.rank < options.num_ranks, "rank {} of {}", options.rank,
              options.num_ranks);
  ATOLL_CHECK(options.first_step >= 0 && options.first_micro_batch >= 0);
  return options;
}

// The memory of one micro-batch.
struct Slot {
  std::vector<std::int32_t> tokens;   // (B, T)
  std::vector<std::int32_t> targets;  // (B, T)
  std::int64_t first_sample = 0;
};

}  // namespace

struct Loader::State {
  State(const TokenSource& from, const Sampler& order, const LoaderOptions& given)
      : source(from), sampler(order), options(checked(given)) {
    ATOLL_CHECK_EQ(source.num_tokens(), sampler.num_tokens());
    per_step = options.global_batch / (options.micro_batch * options.num_ranks);
    window.resize(static_cast<std::size_t>(sampler.context()) + 1);
    // One slot more than is read ahead: the one that the caller looks at.
    slots.resize(static_cast<std::size_t>(options.prefetch) + 1);
    const auto size = static_cast<std::size_t>(options.micro_batch * sampler.context());
    for (Slot& slot : slots) {
      slot.tokens.resize(size);
      slot.targets.resize(size);
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
    const std::int64_t T = sampler.context();
    const std::int64_t index = options.first_micro_batch + number;
    const std::int64_t step = options.first_step + index / per_step;
    slot.first_sample = step * options.global_batch +
                        (options.rank * per_step + index % per_step) * options.micro_batch;
    for (std::int64_t row = 0; row < options.micro_batch; ++row) {
      source.copy(sampler.sample(slot.first_sample + row).first_token, window);
      std::copy(window.begin(), window.end() - 1, slot.tokens.begin() + row * T);
      std::copy(window.begin() + 1, window.end(), slot.targets.begin() + row * T);
    }
  }

  const TokenSource& source;
  const Sampler sampler;
  const LoaderOptions options;
  std::int64_t per_step = 1;
  std::vector<std::int32_t> window;  // one row and its last target
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

Loader::Loader(const TokenSource& source, const Sampler& sampler, const LoaderOptions& options)
    : state_(std::make_unique<State>(source, sampler, options)) {}

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
  const Spec spec = {Dtype::kI32, {state.options.micro_batch, state.sampler.context()}};
  return {{slot.tokens.data(), spec}, {slot.targets.data(), spec}, slot.first_sample};
}

}  // namespace atl::data
