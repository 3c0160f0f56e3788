// Islands that are not as fast as each other, and one that is stopped in the middle of a round.

#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/metrics/finished.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

constexpr std::int64_t kSteps = 30;
constexpr double kPeak = 0.001;

// The schedule is a straight line down to 0, so a learning rate says which step it is of.
double schedule_step(double lr) {
  return (1 - lr / kPeak) * static_cast<double>(kSteps - 1);
}

class UnequalIslands : public RanksFixture {
 protected:
  void SetUp() override {
    RanksFixture::SetUp();
    coordinator_ = std::make_unique<island::CoordinatorService>(
        island::ServiceOptions{.dir = root_ / "ledger"});
  }
  std::vector<std::string> settings(int islands, std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"--island.coordinator=" + coordinator_->address(), "--island.listen=127.0.0.1:0",
                 fmt::format("--outer.islands={}", islands), "--outer.inner_steps=4",
                 fmt::format("--train.steps={}", kSteps), fmt::format("--optim.lr={}", kPeak),
                 "--optim.schedule=linear", "--optim.min_lr_ratio=0", "--optim.warmup_steps=0"});
    return more;
  }

  // Calls back with each step that was taken.
  class OnStep final : public metrics::Sink {
   public:
    explicit OnStep(std::function<void(std::int64_t)> action) : action_(std::move(action)) {}
    void write(const metrics::Record& record) override {
      const bool is_step = std::any_of(record.values.begin(), record.values.end(),
                                       [](const auto& value) { return value.first == "step_ms"; });
      if (is_step) action_(record.step);
    }
    void flush() override {}

   private:
    std::function<void(std::int64_t)> action_;
  };

  void train_island(const std::string& name, std::vector<std::string> all,
                    const std::function<void(std::int64_t)>& on_step) const {
    TrainConfig config;
    Settings settings = make_settings(config);
    all.push_back("--island.name=" + name);
    configure_ranks(config, settings, name, all);
    Trainer trainer(config, settings);
    OnStep sink(on_step);
    trainer.add_sink(sink);
    trainer.run();
  }

  // The steps of records that have this value.
  std::vector<std::int64_t> steps_with(const std::string& name, const std::string& value) const {
    std::vector<std::int64_t> steps;
    for (const metrics::Record& record : metrics::read_jsonl(root_ / name / "metrics.jsonl")) {
      for (const auto& entry : record.values) {
        if (entry.first == value) steps.push_back(record.step);
      }
    }
    return steps;
  }
  // Which steps of the schedule its steps were.
  std::vector<double> schedule_of(const std::string& name) const {
    std::vector<double> steps =
        values_of(metrics::read_jsonl(root_ / name / "metrics.jsonl"), "lr");
    std::transform(steps.begin(), steps.end(), steps.begin(), schedule_step);
    return steps;
  }

  std::unique_ptr<island::CoordinatorService> coordinator_;
};

// Multiples of `every` up to `last`.
std::vector<std::int64_t> multiples(std::int64_t every, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t step = every; step <= last; step += every) all.push_back(step);
  return all;
}

// A third of the other's speed, by events: a step of the slow one waits for three of the fast one,
// which does not wait for the slow one's pseudo-gradients.
TEST_F(UnequalIslands, HaveTheRunsLearningRateAndDoWhatIsDueByTheirOwnSteps) {
  const std::vector<std::string> all =
      settings(2, {"--outer.quorum=1", "--outer.grace_s=0.01", "--eval.every=3",
                   "--checkpoint.every=5", "--checkpoint.keep=100"});
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t fast_steps = 0;
  bool is_over = false;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const Captured captured;
  std::thread slow([&] {
    train_island("slow", all, [&](std::int64_t step) {
      std::unique_lock lock(mutex);
      // Batches that it holds must not keep the run from its end.
      const std::int64_t wanted = std::min<std::int64_t>(3 * step, 36);
      const bool came = changed.wait_for(lock, std::chrono::seconds(120),
                                         [&] { return is_over || fast_steps >= wanted; });
      EXPECT_TRUE(came) << "step " << step;
    });
  });
  train_island("fast", all, [&](std::int64_t step) {
    const std::lock_guard lock(mutex);
    fast_steps = step;
    changed.notify_all();
  });
  {
    const std::lock_guard lock(mutex);
    is_over = true;
    changed.notify_all();
  }
  slow.join();

  const std::vector<double> fast = schedule_of("fast"), of_slow = schedule_of("slow");
  ASSERT_GE(fast.size(), 36U);
  EXPECT_LE(fast.at(kSteps - 1), kSteps - 4.0) << "its own steps are at their end, the run is not";
  // All have the run's step, give or take a round of four.
  EXPECT_GE(fast.back(), kSteps - 5.0);
  EXPECT_GE(of_slow.at(8), 12.0) << "three times as many were taken elsewhere";
  for (const std::string name : {"fast", "slow"}) {
    const std::vector<std::int64_t> steps = steps_with(name, "lr");
    EXPECT_EQ(steps, multiples(1, std::ssize(steps))) << name;
    EXPECT_EQ(metrics::finished_step(root_ / name), std::ssize(steps)) << name;
    std::vector<std::int64_t> evaluations = steps_with(name, "held_out_loss");
    evaluations.erase(std::unique(evaluations.begin(), evaluations.end()), evaluations.end());
    std::vector<std::int64_t> due = multiples(3, std::ssize(steps));
    if (due.back() != std::ssize(steps)) due.push_back(std::ssize(steps));  // at the end
    EXPECT_EQ(evaluations, due) << name;
    due = multiples(5, std::ssize(steps));
    if (due.back() != std::ssize(steps)) due.push_back(std::ssize(steps));
    EXPECT_EQ(ckpt::checkpoint_steps(root_ / name / "checkpoints"), due) << name;
  }
}

TEST_F(UnequalIslands, OneThatIsKilledInARoundGoesOnWithTheSameBits) {
  const Ended whole = train_ranks("whole", 1, settings(1, {"--island.name=lyon"}));
  const std::vector<double> rates = values_of(whole.records, "lr");
  ASSERT_EQ(rates.size(), static_cast<std::size_t>(kSteps));
  for (std::size_t i = 0; i < rates.size(); ++i) {
    EXPECT_NEAR(schedule_step(rates[i]), static_cast<double>(i), 1e-9) << "its own step";
  }
  coordinator_ = std::make_unique<island::CoordinatorService>(
      island::ServiceOptions{.dir = root_ / "ledger-of-parts"});
  const std::vector<std::string> again = settings(1, {"--checkpoint.every=6"});
  const auto die = [](std::int64_t step) {
    if (step == 7) throw std::runtime_error("killed");
  };
  {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    EXPECT_THROW(train_island("parts", again, die), std::runtime_error);
    train_island("parts", again, [](std::int64_t) {});
  }
  const std::vector<metrics::Record> records = metrics::read_jsonl(root_ / "parts/metrics.jsonl");
  EXPECT_EQ(values_of(records, "lr"), rates);
  const std::string last = this->whole(root_ / "parts/checkpoints" / ckpt::checkpoint_name(kSteps));
  EXPECT_TRUE(last == whole.values);
}

}  // namespace
}  // namespace atl::train
