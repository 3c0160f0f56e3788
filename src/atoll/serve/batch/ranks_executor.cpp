#include "atoll/serve/batch/ranks_executor.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/comm/world.h"
#include "atoll/serve/batch/step_choices.h"

namespace atl::serve {

// What the ranks' threads and the one that takes steps have in common.
struct RanksExecutor::Shared {
  std::thread thread;  // runs run_threads()
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex, but for what a step reads while it is under way.
  std::vector<StepModel*> models;  // of the ranks, whose threads own them
  int num_open = 0;                // ranks that have their models
  std::size_t bytes_per_step = 0;
  std::uint64_t step = 0;                // the last one that was begun
  std::vector<StepModel::Piece> pieces;  // of that step
  int at_work = 0;                       // ranks beside the leader that have not done it
  bool ends = false;
  std::exception_ptr failure;  // the first of any rank; nothing can be done any more

  // Of the thread that takes steps.
  std::unique_ptr<StepChoices> choices;
  std::deque<StepResult> done;

  bool is_open() const { return num_open == static_cast<int>(models.size()); }

  void fail(std::exception_ptr why) {
    {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::move(why);
    }
    changed.notify_all();
  }

  void run_ranks(const Open& open) {
    try {
      comm::run_threads(static_cast<int>(models.size()), {},
                        [&](comm::World& world) { run_rank(world, open); });
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void run_rank(comm::World& world, const Open& open) {
    ModelRanks ranks(world, {.tensor = world.size()});
    std::unique_ptr<StepModel> model;
    world.agree([&] { model = open(ranks); });
    {
      const std::lock_guard lock(mutex);
      models[static_cast<std::size_t>(world.rank())] = model.get();
      bytes_per_step += model->bytes_per_step();
      ++num_open;
    }
    changed.notify_all();
    // The thread that takes steps takes the leader's. When a step has failed, this thread ends with
    // that error, so that no rank waits for the leader.
    if (ranks.leads()) return wait_for_end();
    follow(*model);
  }

  void wait_for_end() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return ends || failure != nullptr; });
    if (failure != nullptr) std::rethrow_exception(failure);
  }

  void follow(StepModel& model) {
    for (std::uint64_t next = 1;; ++next) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return ends || failure != nullptr || step >= next; });
        if (step < next) return;
      }
      try {
        model.step(
            pieces, [](std::span<const StepModel::RowLogits>) {},
            [](std::size_t, std::span<const float>) {});
      } catch (...) {
        fail(std::current_exception());
        leave_step();
        throw;
      }
      leave_step();
    }
  }

  void leave_step() {
    {
      const std::lock_guard lock(mutex);
      --at_work;
    }
    changed.notify_all();
  }

  void begin(std::vector<StepModel::Piece> of_step) {
    {
      const std::lock_guard lock(mutex);
      if (failure != nullptr) std::rethrow_exception(failure);
      pieces = std::move(of_step);
      at_work = static_cast<int>(models.size()) - 1;
      ++step;
    }
    changed.notify_all();
  }

  // What the pieces point to is used until then.
  void wait_for_step() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return at_work == 0; });
    if (failure != nullptr) std::rethrow_exception(failure);
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }
};

RanksExecutor::RanksExecutor(int num_ranks, const Open& open, std::int64_t vocab_size)
    : shared_(std::make_unique<Shared>()) {
  Shared& shared = *shared_;
  shared.models.resize(static_cast<std::size_t>(num_ranks));
  shared.thread = std::thread([&] { shared.run_ranks(open); });
  {
    std::unique_lock lock(shared.mutex);
    shared.changed.wait(lock, [&] { return shared.is_open() || shared.failure != nullptr; });
  }
  if (shared.failure != nullptr) {
    shared.end();
    std::rethrow_exception(shared.failure);
  }
  if (vocab_size == 0) vocab_size = config().vocab_size;
  try {
    shared.choices = std::make_unique<StepChoices>(*shared.models.front(), vocab_size);
  } catch (...) {
    shared.end();  // no destructor will
    throw;
  }
}

RanksExecutor::~RanksExecutor() {
  shared_->end();
}

const StepRoom& RanksExecutor::room() const {
  return shared_->models.front()->room();
}

const nn::ModelConfig& RanksExecutor::config() const {
  return shared_->models.front()->model().config;
}

std::size_t RanksExecutor::bytes_per_step() const {
  return shared_->bytes_per_step;
}

void RanksExecutor::begin(const StepOrder& order) {
  shared_->begin(model_pieces(order.pieces));
  try {
    shared_->done.push_back(
        {.number = order.number, .pieces = shared_->choices->take(order.pieces)});
  } catch (...) {
    shared_->fail(std::current_exception());
  }
  shared_->wait_for_step();
}

std::optional<StepResult> RanksExecutor::take() {
  if (shared_->done.empty()) return std::nullopt;
  std::optional<StepResult> first = std::move(shared_->done.front());
  shared_->done.pop_front();
  return first;
}

}  // namespace atl::serve
