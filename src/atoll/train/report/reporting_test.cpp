#include "atoll/train/report/reporting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/device/choose_device.h"
#include "atoll/metrics/finished.h"
#include "atoll/metrics/jsonl_sink.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReporterTest : public ::testing::Test {
 protected:
  ReporterTest() {
    config_.log.every = 2;
    config_.log.format = "json";
    reporter_.set_rates({.num_ranks = 1, .flops_per_token = 10, .peak_flops = 1e9});
  }

  void open(std::int64_t step = 0) {
    reporter_.open(directory_.path(), step, settings_);
    reporter_.begin(/*shows_bar=*/false);
  }
  // A step with this loss, as the loop accounts for it.
  void step(double loss, std::int64_t steps_left) {
    ++position_.step;
    ++position_.line_steps;
    position_.line_loss += loss;
    position_.tokens += 8;
    reporter_.stepped({.loss = loss, .grad_norm = 1, .targets = 8}, 0.5, steps_left, position_);
  }
  std::vector<metrics::Record> records() const {
    return metrics::read_jsonl(directory_ / "metrics.jsonl");
  }
  static metrics::Value value(const metrics::Record& record, const std::string& name) {
    for (const auto& [found, value] : record.values) {
      if (found == name) return value;
    }
    return "none";
  }

  ckpt::testing::TemporaryDirectory directory_{"reporting"};
  TrainConfig config_;
  Settings settings_ = make_settings(config_);
  Reporter reporter_{config_};
  Position position_;
};

TEST_F(ReporterTest, ALineIsTheMeanOfTheStepsSinceTheOneBefore) {
  open();
  step(4, 2);
  EXPECT_TRUE(records().empty());
  step(2, 1);
  step(1, 0);
  ASSERT_EQ(records().size(), 2U) << "every two steps, and after the last";
  EXPECT_EQ(records()[0].step, 2);
  EXPECT_EQ(value(records()[0], "loss"), metrics::Value(3.0));
  EXPECT_EQ(value(records()[0], "tokens"), metrics::Value(std::int64_t{16}));
  EXPECT_EQ(value(records()[1], "loss"), metrics::Value(1.0));
  EXPECT_EQ(position_.line_steps, 0);
}

TEST_F(ReporterTest, ARankThatDoesNotLeadWritesNothingAndCountsAll) {
  reporter_.begin(/*shows_bar=*/false);
  step(4, 1);
  step(2, 0);
  reporter_.record({.step = 2});
  reporter_.evaluated(2, {}, /*is_repeated=*/false);
  reporter_.flush();
  EXPECT_FALSE(reporter_.is_open());
  EXPECT_FALSE(fs::exists(directory_ / "metrics.jsonl"));
  EXPECT_EQ(position_.line_steps, 0) << "the lead's position is that of all";
}

TEST_F(ReporterTest, LinesTellOfTheMachineNowAndThen) {
  reporter_.set_system_every(std::chrono::hours(1));
  open();
  step(4, 1);
  step(4, 0);
  EXPECT_EQ(value(records()[0], "system/process_memory_bytes"), metrics::Value("none"));
  reporter_.set_system_every({});
  open(2);
  const std::unique_ptr<Device> cpu = open_chosen({.choice = DeviceChoice::kCpu, .threads = 1});
  const std::unique_ptr<Device> gpu = open_chosen({.choice = DeviceChoice::kFakeCuda});
  const Buffer buffer(*gpu, 1 << 20);
  reporter_.watch(*cpu);
  step(4, 0);
  EXPECT_GT(std::get<double>(value(records()[1], "system/process_memory_bytes")), 0);
  EXPECT_GT(std::get<double>(value(records()[1], "system/disk_free_bytes")), 0);
  EXPECT_EQ(value(records()[1], "system/gpu_memory_bytes"), metrics::Value("none"));
  EXPECT_EQ(std::get<double>(value(records()[1], "loss")), 4);
  reporter_.watch(*gpu);
  step(4, 0);
  EXPECT_GE(std::get<double>(value(records()[2], "system/gpu_memory_bytes")), 1 << 20);
}

TEST_F(ReporterTest, ARunThatGoesOnHasNotFinished) {
  config_.run.dir = directory_.path().string();
  open();
  EXPECT_EQ(metrics::finished_step(directory_.path()), -1);
  reporter_.finished(7);
  EXPECT_EQ(metrics::finished_step(directory_.path()), 7);
  open(7);
  EXPECT_EQ(metrics::finished_step(directory_.path()), -1);
}

TEST_F(ReporterTest, RanksAreReportedWhereThereAreSeveral) {
  open();
  reporter_.set_rates({.num_ranks = 2, .flops_per_token = 10, .peak_flops = 1e9});
  step(1, 2);
  reporter_.heard(1,
                  {{.waited_seconds = 0.5, .compute_seconds = 1},
                   {.waited_seconds = 0.25, .compute_seconds = 3}},
                  1.0);
  reporter_.sent(1000);
  reporter_.sent(3000);
  step(1, 1);
  ASSERT_EQ(records().size(), 1U);
  EXPECT_EQ(value(records()[0], "ranks"), metrics::Value(std::int64_t{2}));
  EXPECT_EQ(value(records()[0], "exposed_comm_fraction"), metrics::Value(0.25));
  EXPECT_EQ(value(records()[0], "bytes_sent"), metrics::Value(1500.0));
  EXPECT_EQ(value(records()[0], "slowest_rank"), metrics::Value(std::int64_t{1}));
  EXPECT_EQ(value(records()[0], "slowest_rank_excess"), metrics::Value(2.0));
}

TEST_F(ReporterTest, TextsAreNamedAsTheyWereEvaluatedAndARepeatedLossIsPrintedAlone) {
  open();
  Evaluation whole;
  whole.loss = 2;
  ::testing::internal::CaptureStdout();
  reporter_.evaluated(5, {whole, {whole, whole}, {"a", "c"}}, /*is_repeated=*/true);
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, HasSubstr("held-out loss 2.0000 of a"));
  EXPECT_THAT(out, HasSubstr("held-out loss 2.0000 of c"));
  EXPECT_TRUE(records().empty());
  reporter_.evaluated(5, {whole, {whole}, {"a"}}, /*is_repeated=*/false);
  ASSERT_EQ(records().size(), 1U);
  EXPECT_TRUE(has_evaluation(directory_ / "metrics.jsonl", 5));
  EXPECT_FALSE(has_evaluation(directory_ / "metrics.jsonl", 4));
}

TEST_F(ReporterTest, OpeningWritesTheSettingsAndDropsWhatWillBeSaidAgain) {
  open();
  step(1, 3);
  step(1, 2);
  step(1, 1);
  step(1, 0);
  ASSERT_EQ(records().size(), 2U);
  Reporter again(config_);
  again.open(directory_.path(), 2, settings_);
  EXPECT_EQ(records().size(), 1U);
  EXPECT_EQ(read_file(directory_ / "settings.toml"), settings_.to_toml());
}

}  // namespace
}  // namespace atl::train
