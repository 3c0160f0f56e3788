#include "atoll/metrics/jsonl_sink.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>

#include "atoll/base/files/file.h"

namespace atl::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Record record(std::int64_t step, double loss) {
  Record r;
  r.step = step;
  r.wall_time_s = 1000.5 + static_cast<double>(step);
  r.add("loss", loss);
  r.add("tokens", step * 100);
  return r;
}

class Jsonl : public ::testing::Test {
 protected:
  Jsonl() : path_(fs::temp_directory_path() / fmt::format("atoll-metrics-{}.jsonl", ::getpid())) {
    fs::remove(path_);
  }
  ~Jsonl() override {
    io_fault::disarm();
    fs::remove(path_);
  }
  void write(std::int64_t last_step, std::int64_t begin, std::int64_t end) {
    JsonlSink sink(path_, last_step);
    for (std::int64_t step = begin; step < end; ++step) sink.write(record(step, 1.0 / 3));
  }
  fs::path path_;
};

TEST_F(Jsonl, LineHasFieldsInOrder) {
  EXPECT_EQ(to_jsonl(record(5, 2.5)), R"({"step":5,"time":1005.5,"loss":2.5,"tokens":500})");
}

TEST_F(Jsonl, RoundTripKeepsEveryBitAndType) {
  Record r = record(1, 0.1);
  r.add("text", "a \"b\"\n");
  r.add("inf", std::numeric_limits<double>::infinity());
  r.add("minus", -std::numeric_limits<double>::infinity());
  r.add("nan", std::numeric_limits<double>::quiet_NaN());
  r.add("whole", 3.0);  // stays a double
  const Record back = parse_jsonl(to_jsonl(r), "x");
  EXPECT_EQ(back.step, 1);
  EXPECT_EQ(back.wall_time_s, r.wall_time_s);
  ASSERT_EQ(back.values.size(), r.values.size());
  for (std::size_t i = 0; i < r.values.size(); ++i) {
    EXPECT_EQ(back.values[i].first, r.values[i].first);
    if (r.values[i].first == "nan") {
      EXPECT_TRUE(std::isnan(std::get<double>(back.values[i].second)));
    } else {
      EXPECT_EQ(back.values[i].second, r.values[i].second) << r.values[i].first;
    }
  }
}

TEST_F(Jsonl, ResumedFileEqualsUninterrupted) {
  write(-1, 0, 10);
  const std::string whole = read_file(path_);
  for (std::int64_t last = -1; last < 10; ++last) {
    fs::remove(path_);
    write(-1, 0, 8);
    write(last, last + 1, 10);
    // Last steps that the file never reached leave a gap: nothing to cut, nothing invented.
    if (last < 8) {
      EXPECT_EQ(read_file(path_), whole) << last;
    }
  }
  EXPECT_EQ(read_jsonl(path_).size(), 8u);
}

TEST_F(Jsonl, TornLastLineIsRepaired) {
  write(-1, 0, 3);
  const std::string whole = read_file(path_);
  const std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t size = last_line + 1; size < whole.size(); ++size) {
    write_file(path_, whole.substr(0, size));
    EXPECT_EQ(read_jsonl(path_).size(), 2u);
    write(2, 2, 3);
    ASSERT_EQ(read_file(path_), whole) << size;
  }
}

TEST_F(Jsonl, DamageInTheMiddleIsNamed) {
  write_file(path_, to_jsonl(record(0, 1)) + "\n{oops\n" + to_jsonl(record(2, 1)) + "\n");
  try {
    write(5, 6, 7);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), HasSubstr(path_.string() + ":2"));
  }
}

TEST_F(Jsonl, FullDiskIsAnErrorThatNamesTheFile) {
  JsonlSink sink(path_, -1);
  sink.write(record(0, 1));
  io_fault::arm(io_fault::Call::kWrite, 1, ENOSPC);
  try {
    sink.write(record(1, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path_.string()));
    EXPECT_THAT(error.what(), HasSubstr("No space left"));
  }
  EXPECT_EQ(read_file(path_), to_jsonl(record(0, 1)) + "\n");
}

TEST_F(Jsonl, FailedRepairLeavesTheFile) {
  write(-1, 0, 5);
  const std::string whole = read_file(path_);
  io_fault::arm(io_fault::Call::kRename, 1, EIO);
  EXPECT_THROW(JsonlSink(path_, 2), Error);
  EXPECT_EQ(read_file(path_), whole);
}

TEST_F(Jsonl, FanOutGivesEverySinkEveryRecord) {
  const fs::path other = path_.string() + "2";
  FanOut fan_out;
  fan_out.add(std::make_unique<JsonlSink>(path_, -1));
  fan_out.add(std::make_unique<JsonlSink>(other, -1));
  fan_out.write(record(0, 1));
  fan_out.flush();
  EXPECT_EQ(read_file(path_), to_jsonl(record(0, 1)) + "\n");
  EXPECT_EQ(read_file(other), read_file(path_));
  fs::remove(other);
}

}  // namespace
}  // namespace atl::metrics
