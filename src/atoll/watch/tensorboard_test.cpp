#include "atoll/watch/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "atoll/base/files/file.h"
#include "watch/event.pb.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;

// The events of the only file in a directory, framing checked.
std::vector<event::Event> read_events(const fs::path& directory) {
  const std::string content = read_file(fs::directory_iterator(directory)->path());
  std::vector<event::Event> events;
  for (std::size_t at = 0; at < content.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, content.data() + at, sizeof size);
    const std::string payload = content.substr(at + 12, size);
    EXPECT_EQ(content.substr(at, size + 16), tfrecord(payload));
    EXPECT_TRUE(events.emplace_back().ParseFromString(payload));
    at += size + 16;
  }
  return events;
}

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoard()
      : directory_(fs::temp_directory_path() / fmt::format("atoll-tensorboard-{}", ::getpid())) {
    fs::remove_all(directory_);
  }
  ~TensorBoard() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // the same
}

TEST_F(TensorBoard, WritesScalarsWithTheirTags) {
  {
    TensorBoardSink sink(directory_, -1);
    metrics::Record record;
    record.step = 12;
    record.wall_time_s = 99.5;
    record.add("loss", 2.5);
    record.add("eval/loss", 3.5);
    record.add("tokens", std::int64_t{4096});
    record.add("note", "not a number");
    sink.write(record);
    sink.flush();
  }
  const std::vector<event::Event> events = read_events(directory_);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 12);
  EXPECT_EQ(events[1].wall_time(), 99.5);
  ASSERT_EQ(events[1].summary().value_size(), 3);
  EXPECT_EQ(events[1].summary().value(0).tag(), "train/loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 2.5f);
  EXPECT_EQ(events[1].summary().value(1).tag(), "eval/loss");
  EXPECT_EQ(events[1].summary().value(2).simple_value(), 4096.0f);
}

TEST_F(TensorBoard, ZeroIsWritten) {
  {
    TensorBoardSink sink(directory_, -1);
    metrics::Record record;
    record.add("loss", 0.0);
    sink.write(record);
  }
  EXPECT_TRUE(read_events(directory_).at(1).summary().value(0).has_simple_value());
}

TEST_F(TensorBoard, ResumeForgetsLaterSteps) {
  { TensorBoardSink sink(directory_, 40); }
  const std::vector<event::Event> events = read_events(directory_);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].session_log().status(), event::SessionLog::START);
  EXPECT_EQ(events[1].step(), 41);
}

TEST_F(TensorBoard, BytesAreThoseOfTensorFlowsMessage) {
  { TensorBoardSink sink(directory_, -1); }
  const std::string content = read_file(fs::directory_iterator(directory_)->path());
  // Field 3 (file_version), wire type 2: 0x1a, thirteen bytes.
  EXPECT_NE(content.find(std::string("\x1a\x0d") + "brain.Event:2"), std::string::npos);
}

// The other half of tools/golden/tensorboard_oracle.py, which says how to run both.
TEST(TensorBoardFiles, LibraryReadsThem) {
  const char* directory = std::getenv("ATOLL_TENSORBOARD_GOLDEN");
  if (directory == nullptr) GTEST_SKIP() << "run tools/golden/tensorboard_oracle.py";
  const auto write = [&](std::int64_t last_step, std::int64_t end, double offset) {
    TensorBoardSink sink(directory, last_step);
    for (std::int64_t step = last_step + 1; step < end; ++step) {
      metrics::Record record;
      record.step = step;
      record.wall_time_s = 1000.25 + static_cast<double>(step);
      record.add("loss", 0.5 * static_cast<double>(step) + offset);
      record.add("tokens", 1024 * step);
      if (step % 5 == 0) record.add("eval/loss", 1.0);
      sink.write(record);
    }
  };
  write(-1, 20, 0);
  write(9, 15, 100);
}

}  // namespace
}  // namespace atl::watch
