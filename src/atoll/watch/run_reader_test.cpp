#include "atoll/watch/run_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/metrics/finished.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/watch/run_compare.h"
#include "atoll/watch/run_list.h"
#include "atoll/watch/run_plot.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Curve, LosesNoExtremeAndNoNaN) {
  Curve curve;
  constexpr int kSteps = 100'000;
  double sum = 0;
  for (int step = 1; step <= kSteps; ++step) {
    double value = std::sin(step * 0.001);
    if (step == 77'777) value = 50;
    if (step == 12'345) value = -50;
    if (step == 5) value = std::numeric_limits<double>::quiet_NaN();
    if (std::isfinite(value)) sum += value;
    curve.add(step, step, 0, value);
  }
  EXPECT_LE(curve.buckets().size(), Curve::kMost);
  EXPECT_GE(curve.buckets().size(), Curve::kMost / 2);
  EXPECT_EQ(curve.highest(), 50);
  EXPECT_EQ(curve.lowest(), -50);
  std::int64_t count = 0, nonfinite = 0, next = 1;
  double total = 0;
  for (const CurveBucket& one : curve.buckets()) {
    EXPECT_EQ(one.first_step, next);
    next = one.last_step + 1;
    count += one.count;
    nonfinite += one.nonfinite;
    total += one.sum;
  }
  EXPECT_EQ(next, kSteps + 1);
  EXPECT_EQ(count + nonfinite, kSteps);
  EXPECT_EQ(nonfinite, 1);
  EXPECT_NEAR(total, sum, 1e-6);
  EXPECT_EQ(curve.at(0), std::nullopt);
  EXPECT_EQ(curve.at(kSteps + 1), std::nullopt);
  EXPECT_NEAR(*curve.at(50'000), std::sin(50), 0.1);
}

// Directories of runs, removed at the end.
class RunFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("atoll-runs-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path make_run(const std::string& name, const std::string& settings, double loss) const {
    const fs::path dir = root_ / name;
    fs::create_directories(dir);
    write_file(dir / "settings.toml", settings);
    std::string text;
    for (int step = 10; step <= 100; step += 10) {
      metrics::Record record = {.step = step, .wall_time_s = 1e9 + step};
      record.add("loss", loss + 10.0 / step);
      record.add("tokens", std::int64_t{512} * step);
      text += metrics::to_jsonl(record) + "\n";
    }
    metrics::Record record = {.step = 100, .wall_time_s = 1e9 + 101};
    record.add("held_out_loss", loss + 0.2);
    write_file(dir / "metrics.jsonl", text + metrics::to_jsonl(record) + "\n");
    return dir;
  }

  fs::path root_;
};

TEST_F(RunFiles, AreReadPastDamageAndUpToACut) {
  const fs::path dir = make_run("a", "[train]\nsteps = 100\n", 2);
  const std::string good = read_file(dir / "metrics.jsonl");
  const std::string line = good.substr(0, good.find('\n') + 1);
  write_file(dir / "metrics.jsonl", good + "{\"step\": 3, \"version\": 9\n" + "\n" +
                                        std::string(3 << 20, 'x') + "\n" + line +
                                        line.substr(0, 20));
  const RunData run = read_run(dir, "a");
  EXPECT_EQ(run.num_records, 12);
  EXPECT_EQ(run.num_bad_lines, 3);
  EXPECT_EQ(run.last_step, 100);
  EXPECT_THAT(run.names, ElementsAre("loss", "tokens", "held_out_loss"));
  EXPECT_EQ(run.curve("held_out_loss")->buckets()[0].tokens, 51200);
  EXPECT_FALSE(run.is_running);
}

TEST_F(RunFiles, AreFoundWithIslandsAndRefusedByName) {
  make_run("deep/islands/island-1", "", 2);
  make_run("deep/islands/island-2", "", 2);
  make_run("a", "", 2);
  EXPECT_EQ(runs_at(root_ / "deep").size(), 2u);
  EXPECT_EQ(runs_at(root_ / "a").size(), 1u);
  const auto below = runs_below(root_);
  ASSERT_EQ(below.size(), 3u);
  EXPECT_EQ(below[1].first, "deep/islands/island-1");
  const auto error_of = [](const fs::path& path) -> std::string {
    try {
      runs_at(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(root_ / "b"), HasSubstr("there is no run"));
  EXPECT_THAT(error_of(root_), HasSubstr("atoll runs list"));
}

TEST_F(RunFiles, DifferExactlyInNestedSettings) {
  const std::string a = "[train]\nsteps = 100\n[optim]\nlr = 0.1\n[data.fields]\ntext = \"t\"\n";
  const std::string b =
      "[train]\nsteps = 100\n[optim]\nlr = 0.1000001\n[data.fields]\ntext = \"u\"\n[log]\nevery = "
      "5\n";
  const std::vector<RunData> runs = {read_run(make_run("a", a, 2), "a"),
                                     read_run(make_run("b", b, 3), "b")};
  const std::vector<SettingDifference> found = differences(runs);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].key, "optim.lr");
  EXPECT_THAT(found[0].values, ElementsAre("0.1", "0.1000001"));
  EXPECT_EQ(found[1].key, "data.fields.text");
  EXPECT_EQ(found[2].key, "log.every");
  EXPECT_THAT(found[2].values, ElementsAre("", "5"));
  const std::string text = describe_comparison(runs, {}, 3);
  EXPECT_THAT(text, AllOf(HasSubstr("A  0.1\n"), HasSubstr("B  0.1000001\n"), HasSubstr("B  5\n"),
                          HasSubstr("A  (not set)\n"),
                          HasSubstr("        10               3               4\n"),
                          HasSubstr("       100          2.1000          3.1000\n"),
                          HasSubstr("A held_out_loss")));
  EXPECT_THAT(comparison_json(runs, {"loss"}), HasSubstr("\"optim.lr\""));
  EXPECT_THROW(describe_comparison(runs, {"none"}, 3), Error);
  EXPECT_EQ(differences({runs[0], runs[0]}).size(), 0u);
}

TEST_F(RunFiles, AreListedInOrder) {
  std::vector<RunData> runs = {read_run(make_run("a", "[train]\nsteps = 100\n", 3), "a"),
                               read_run(make_run("b", "[train]\nsteps = 200\n", 2), "b")};
  sort_runs(runs, "loss");
  EXPECT_EQ(runs[0].name, "b");
  sort_runs(runs, "name");
  EXPECT_EQ(runs[0].name, "a");
  EXPECT_EQ(state_of(runs[0]), ListedState::kFinished);
  EXPECT_EQ(state_of(runs[1]), ListedState::kStopped);
  EXPECT_THAT(describe_list(runs), AllOf(HasSubstr("100/100"), HasSubstr("100/200")));
  metrics::write_finished(runs[1].dir, 99);  // it has gone on since
  EXPECT_EQ(state_of(read_run(runs[1].dir, "b")), ListedState::kStopped);
  metrics::write_finished(runs[1].dir, 100);  // as an island that others have outrun
  EXPECT_EQ(state_of(read_run(runs[1].dir, "b")), ListedState::kFinished);
  EXPECT_THAT(list_json(runs), HasSubstr("\"best_held_out_loss\": 3.2"));
  EXPECT_THROW(sort_runs(runs, "size"), Error);
}

TEST_F(RunFiles, AreDrawnWithMarkupEscaped) {
  const std::vector<RunData> runs = {read_run(make_run("a", "", 2), "<script>&\"'"),
                                     read_run(make_run("b", "", 3), "b")};
  const std::string svg = plot_svg(runs, {});
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), HasSubstr("&lt;script&gt;&amp;&quot;&#39;"),
                         Not(HasSubstr("<script>"))));
  const std::string text = plot_text(runs, {.columns = 60, .rows = 10});
  EXPECT_THAT(text, AllOf(HasSubstr("a"), HasSubstr("step 100")));
  EXPECT_THROW(plot_text(runs, {.metric = "none"}), Error);
  EXPECT_THROW(plot_text(runs, {.smooth = 1}), Error);
}

TEST(Plot, DrawsExtremesAndBreaksAtNaN) {
  RunData run;
  run.name = "run";
  Curve& curve = run.curves["loss"];
  for (int step = 0; step < 5000; ++step) {
    curve.add(step, 0, 0, step == 4321 ? 90.0 : step == 1000 ? NAN : 1.0);
  }
  const std::string svg = plot_svg({run}, {});
  EXPECT_THAT(svg, HasSubstr(",36.0 ")) << "the spike touches the top of the frame";
  EXPECT_THAT(svg, HasSubstr("not finite"));
}

}  // namespace
}  // namespace atl::watch
