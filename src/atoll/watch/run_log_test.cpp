#include "atoll/watch/run_log.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "atoll/base/files/file.h"
#include "atoll/base/rng.h"
#include "atoll/metrics/jsonl_sink.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class RunLogTest : public ::testing::Test {
 protected:
  RunLogTest()
      : path_(fs::temp_directory_path() / fmt::format("atoll-run-log-{}.jsonl", ::getpid())) {
    fs::remove(path_);
  }
  ~RunLogTest() override { fs::remove(path_); }
  void append(std::string_view text) const { std::ofstream(path_, std::ios::app) << text; }
  static std::string line(std::int64_t step, double loss) {
    metrics::Record record{.step = step, .wall_time_s = 1000.0 + static_cast<double>(step)};
    record.add("loss", loss);
    record.add("tokens", step * 100);
    return metrics::to_jsonl(record) + "\n";
  }
  static void read_all(RunLog& log) {
    while (log.update(1 << 20)) {
    }
  }
  static SeriesPart part(const SeriesAnswer& answer) {
    return answer.series.empty() ? SeriesPart() : answer.series.front();
  }
  fs::path path_;
};

TEST_F(RunLogTest, PointsAreThoseOfTheFile) {
  append(line(1, 0.1) + line(2, 0.2) + line(3, 1.0 / 3));
  RunLog log(path_, 1 << 20);
  EXPECT_TRUE(log.update(1 << 20));
  EXPECT_FALSE(log.update(1 << 20));
  const SeriesAnswer answer = log.query({.names = {"loss", "absent"}});
  ASSERT_EQ(answer.series.size(), 1u);
  EXPECT_EQ(answer.size, 1u);
  EXPECT_THAT(part(answer).x0, ElementsAre(1, 2, 3));
  EXPECT_THAT(part(answer).mean, ElementsAre(0.1, 0.2, 1.0 / 3));
  EXPECT_THAT(part(log.query({.names = {"loss"}, .axis = Axis::kTokens})).x0,
              ElementsAre(100, 200, 300));
}

TEST_F(RunLogTest, HalfALineWaitsForItsEnd) {
  const std::string second = line(2, 2);
  RunLog log(path_, 1 << 20);
  EXPECT_FALSE(log.update(100));  // no file yet
  append(line(1, 1));
  for (const char c : second) {
    read_all(log);
    EXPECT_EQ(log.summary().num_records, 1u);
    append(std::string(1, c));
  }
  read_all(log);
  EXPECT_EQ(log.summary().num_records, 2u);
  EXPECT_EQ(log.summary().bad_lines, 0u);
}

TEST_F(RunLogTest, LinesThatAreNoRecordsAreCountedAndLeftOut) {
  append("{\"step\":1,\"time\":5,\"loss\":1}\nnonsense\n{\"loss\":3}\n[1]\n{\"step\":2.5}\n\n" +
         line(2, 2));
  RunLog log(path_, 1 << 20);
  read_all(log);
  EXPECT_EQ(log.summary().num_records, 2u);
  EXPECT_EQ(log.summary().bad_lines, 5u);
  EXPECT_THAT(part(log.query({.names = {"loss"}})).mean, ElementsAre(1, 2));
}

TEST_F(RunLogTest, MembersOfAnotherVersionAreLeftOut) {
  append(R"({"step":1,"new":{"a":[1]},"list":[1,2],"loss":1,"flag":true,"none":null,"text":"x"})"
         "\n");
  RunLog log(path_, 1 << 20);
  read_all(log);
  ASSERT_EQ(log.summary().series.size(), 1u);
  EXPECT_EQ(log.summary().series.front().name, "loss");
  EXPECT_EQ(log.texts(0).front().text, "x");
}

TEST_F(RunLogTest, AFileThatIsCutOrReplacedIsReadAnew) {
  append(line(1, 1) + line(2, 2) + line(3, 3));
  RunLog log(path_, 1 << 20);
  read_all(log);
  const std::uint64_t before = log.summary().generation;
  write_file(path_, line(1, 7));  // another file, as a run that goes on makes it
  read_all(log);
  EXPECT_NE(log.summary().generation, before);
  EXPECT_THAT(part(log.query({.names = {"loss"}})).mean, ElementsAre(7));
  // The same file with other content of another length.
  std::ofstream(path_, std::ios::trunc) << line(1, 8) << line(2, 9) << line(3, 10);
  read_all(log);
  EXPECT_THAT(part(log.query({.names = {"loss"}})).mean, ElementsAre(8, 9, 10));
  fs::remove(path_);
  EXPECT_TRUE(log.update(1 << 20));
  EXPECT_FALSE(log.update(1 << 20));
  EXPECT_TRUE(log.summary().is_gone);
  EXPECT_EQ(log.summary().num_records, 3u);  // what was read stays
  append(line(4, 4));
  read_all(log);
  EXPECT_FALSE(log.summary().is_gone);
}

TEST_F(RunLogTest, AVeryLongLineIsLeftOut) {
  append(line(1, 1) + "{\"step\":2,\"x\":\"");
  const std::string piece(1 << 20, 'x');
  for (std::size_t i = 0; i < RunLog::kMaxLineBytes / piece.size() + 2; ++i) append(piece);
  append("\"}\n" + line(3, 3));
  RunLog log(path_, 1 << 20);
  read_all(log);
  EXPECT_EQ(log.summary().bad_lines, 1u);
  EXPECT_THAT(part(log.query({.names = {"loss"}})).mean, ElementsAre(1, 3));
  EXPECT_LT(log.bytes(), std::size_t{1} << 20);
}

// What a chart draws of random series has the extremes, the ends and every NaN of the data, at each
// width and in each range, and with a cache of one block as with one of all.
TEST_F(RunLogTest, BucketsHideNothing) {
  const RngStream random(7, RngPurpose::kSynthetic);
  constexpr std::int64_t kCount = 20'000;
  std::vector<double> values;
  std::string text;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const std::uint64_t word = random.word(static_cast<std::uint64_t>(i));
    double value = static_cast<double>(word % 1'000'003) * 1e-3;
    if (word % 997 == 0) value = std::nan("");
    values.push_back(value);
    text += line(i, value);
  }
  append(text);
  for (const std::size_t cache : {std::size_t{1}, std::size_t{64} << 20}) {
    RunLog log(path_, cache);
    read_all(log);
    for (const std::size_t points : {1, 7, 100, 400, 3000, 50'000}) {
      for (const auto& [from, to] :
           {std::pair(0.0, 1e9), std::pair(5000.0, 5100.0), std::pair(100.0, 19'000.0)}) {
        const SeriesAnswer answer =
            log.query({.names = {"loss"}, .from = from, .to = to, .points = points});
        const SeriesPart drawn = part(answer);
        ASSERT_LE(drawn.records.size(), points + 1) << from;
        // The answer may have a little more than the range, so that lines reach the edge.
        const auto begin = static_cast<std::int64_t>(drawn.records.front());
        const std::int64_t end =
            std::min(kCount, static_cast<std::int64_t>(drawn.records.back() + answer.size));
        double least = 1e300;
        double greatest = -1e300;
        for (std::int64_t i = begin; i < end; ++i) {
          const double value = values[static_cast<std::size_t>(i)];
          if (std::isnan(value)) continue;
          least = std::min(least, value);
          greatest = std::max(greatest, value);
        }
        EXPECT_EQ(*std::ranges::min_element(drawn.min), least) << points << " " << from;
        EXPECT_EQ(*std::ranges::max_element(drawn.max), greatest) << points << " " << from;
        std::size_t nans = 0;
        for (std::int64_t i = 0; i < kCount; ++i) {
          const auto x = static_cast<double>(i);
          nans += std::isnan(values[static_cast<std::size_t>(i)]) && x >= from && x <= to ? 1 : 0;
        }
        EXPECT_EQ(drawn.nonfinite.size(), nans) << points << " " << from;
        EXPECT_LE(drawn.x0.front(), std::max(from, 0.0) + static_cast<double>(answer.size));
      }
    }
    const SeriesPart whole = part(log.query({.names = {"loss"}, .points = 10}));
    EXPECT_EQ(whole.first, values.front());
    EXPECT_EQ(whole.last, values.back());
  }
}

// A page that asks for what is new has, put together, what one that asks once has.
TEST_F(RunLogTest, NewPointsFitToTheOldOnes) {
  RunLog log(path_, 1 << 20);
  SeriesPart known;
  std::uint64_t num_known = 0;
  std::int64_t step = 0;
  for (int turn = 0; turn < 60; ++turn) {
    std::string text;
    for (int i = 0; i < 1 + turn * 5 % 97; ++i, ++step) {
      text += line(step, std::sin(static_cast<double>(step)));
    }
    append(text);
    read_all(log);
    const SeriesAnswer answer = log.query({.names = {"loss"}, .since = num_known, .size = 16});
    const SeriesPart fresh = part(answer);
    while (!known.records.empty() && known.records.back() >= answer.begins) {
      known.records.pop_back();
      known.min.pop_back();
      known.mean.pop_back();
    }
    known.records.insert(known.records.end(), fresh.records.begin(), fresh.records.end());
    known.min.insert(known.min.end(), fresh.min.begin(), fresh.min.end());
    known.mean.insert(known.mean.end(), fresh.mean.begin(), fresh.mean.end());
    num_known = answer.num_records;
  }
  const SeriesPart whole = part(log.query({.names = {"loss"}, .size = 16}));
  EXPECT_EQ(known.records, whole.records);
  EXPECT_EQ(known.min, whole.min);
  EXPECT_EQ(known.mean, whole.mean);
}

TEST_F(RunLogTest, AnotherStartIsAPauseAndNoTimeOfTraining) {
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text +=
        fmt::format("{{\"step\":{},\"time\":{},\"loss\":1}}\n", i, 100 + i + (i >= 5 ? 3600 : 0));
  }
  append(text);
  for (const std::size_t cache : {std::size_t{1}, std::size_t{1} << 20}) {
    RunLog log(path_, cache);
    read_all(log);
    ASSERT_EQ(log.summary().pauses.size(), 1u);
    EXPECT_EQ(log.summary().pauses.front()[0], 5);
    EXPECT_EQ(log.summary().last[static_cast<std::size_t>(Axis::kActive)], 8);
  }
}

}  // namespace
}  // namespace atl::watch
