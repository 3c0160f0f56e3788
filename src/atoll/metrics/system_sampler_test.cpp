#include "atoll/metrics/system_sampler.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <map>

#include "atoll/base/files/file.h"

namespace atl::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

// A machine of files.
class SystemSamplerTest : public ::testing::Test {
 protected:
  SystemSamplerTest() {
    std::string name = (fs::temp_directory_path() / "atoll-system-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~SystemSamplerTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    write_file(root_ / path, text);
  }
  // Counters of a machine that has done `times` as much.
  void machine(int times) const {
    put("proc/stat", fmt("cpu  %d 0 %d %d %d 0 0 0 50 0\ncpu0 1 2 3\n", 100 * times, 50 * times,
                         200 * times, 50 * times));
    put("proc/self/stat", fmt("7 (a (b) c) R 1 1 1 0 -1 0 0 0 0 0 %ld 0 0 0 20 0 9 0\n",
                              times * ::sysconf(_SC_CLK_TCK)));
    put("proc/diskstats",
        fmt("  8 0 sda 1 2 %d 4 5 6 %d 8 9 10 11\n  8 1 sda1 1 2 %d 4 5 6 %d 8 9\n"
            "  7 0 loop0 1 2 %d 4 5 6 %d 8\n 253 0 dm-0 1 2 %d 4 5 6 %d 8\n",
            1000 * times, 2000 * times, 1000 * times, 2000 * times, 7 * times, 7 * times, 9 * times,
            9 * times));
    for (const char* net : {"lo", "eth0", "eth1", "docker0"}) {
      const std::string dir = std::string("sys/class/net/") + net;
      put(dir + "/statistics/rx_bytes", fmt("%d\n", 100 * times));
      put(dir + "/statistics/tx_bytes", fmt("%d\n", 300 * times));
    }
  }
  template <typename... Numbers>
  static std::string fmt(const char* format, Numbers... numbers) {
    char text[500];
    std::snprintf(text, sizeof text, format, numbers...);
    return text;
  }
  SystemSampler sampler() const { return SystemSampler(root_, std::chrono::seconds(5), root_); }
  static std::map<std::string, double> by_name(const SystemSampler::Values& values) {
    return {values.begin(), values.end()};
  }

  fs::path root_;
};

TEST_F(SystemSamplerTest, TellsWhatHasBeenDoneSinceTheSampleBefore) {
  machine(1);
  put("proc/meminfo", "MemTotal:    1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n");
  put("proc/self/statm", "900 30 20 1 0 1 0\n");
  fs::create_directories(root_ / "sys/block/sda");
  fs::create_directories(root_ / "sys/block/dm-0");
  fs::create_directories(root_ / "sys/class/net/eth0/device");
  fs::create_directories(root_ / "sys/class/net/eth1/device");
  SystemSampler sampler = this->sampler();
  const auto begin = SystemSampler::Clock::now() + std::chrono::seconds(10);
  sampler.sample(begin);
  EXPECT_FALSE(sampler.is_due(begin + std::chrono::milliseconds(4999)));
  EXPECT_TRUE(sampler.is_due(begin + std::chrono::seconds(5)));
  machine(3);
  const auto values = by_name(sampler.sample(begin + std::chrono::seconds(4)));
  const std::map<std::string, double> wanted = {
      {"system/cpu_fraction", 150.0 / 400},
      {"system/process_cpus", 2.0 / 4},
      {"system/memory_bytes", 600 * 1024.0},
      {"system/process_memory_bytes", 30.0 * static_cast<double>(::sysconf(_SC_PAGESIZE))},
      {"system/disk_read_bytes_per_s", 512.0 * 2000 / 4},
      {"system/disk_written_bytes_per_s", 512.0 * 4000 / 4},
      {"system/network_received_bytes_per_s", 2 * 200.0 / 4},
      {"system/network_sent_bytes_per_s", 2 * 600.0 / 4}};
  for (const auto& [name, value] : wanted) {
    ASSERT_THAT(values, Contains(Key(name)));
    EXPECT_DOUBLE_EQ(values.at(name), value) << name;
  }
  EXPECT_GT(values.at("system/disk_free_bytes"), 0);
  EXPECT_EQ(values.size(), wanted.size() + 1);
}

TEST_F(SystemSamplerTest, AContainerWithoutCardsHasItsOwnNetwork) {
  machine(1);
  SystemSampler sampler = this->sampler();
  machine(2);
  const auto values = by_name(sampler.sample(SystemSampler::Clock::now() + std::chrono::hours(1)));
  EXPECT_GT(values.at("system/network_received_bytes_per_s"), 0);
}

TEST_F(SystemSamplerTest, WhatCannotBeReadOrHasBegunAnewIsLeftOut) {
  SystemSampler nothing = SystemSampler(root_ / "absent", std::chrono::seconds(5), root_);
  EXPECT_TRUE(nothing.sample().empty());
  put("proc/stat", "cpu  1 2\n");
  put("proc/self/stat", "7 (a\n");
  put("proc/diskstats", "8 0 sda x\n");
  put("proc/meminfo", "MemTotal: many\n");
  put("sys/class/net/eth0/statistics/rx_bytes", "");
  EXPECT_TRUE(nothing.sample(SystemSampler::Clock::now() + std::chrono::hours(1)).empty());
  machine(2);
  SystemSampler sampler = this->sampler();
  machine(1);  // another machine's, or a card that was taken away
  const auto values = by_name(sampler.sample(SystemSampler::Clock::now() + std::chrono::hours(1)));
  EXPECT_THAT(values, Not(Contains(Key("system/network_sent_bytes_per_s"))));
  EXPECT_THAT(values, Not(Contains(Key("system/cpu_fraction"))));
}

TEST(SystemSampler, ReadsThisMachine) {
  SystemSampler sampler("/", std::chrono::seconds(5));
  std::map<std::string, double> values;
  for (const auto& [name, value] :
       sampler.sample(SystemSampler::Clock::now() + std::chrono::hours(1))) {
    values.emplace(name, value);
    EXPECT_GE(value, 0) << name;
  }
  EXPECT_GT(values.at("system/process_memory_bytes"), 0);
}

}  // namespace
}  // namespace atl::metrics
