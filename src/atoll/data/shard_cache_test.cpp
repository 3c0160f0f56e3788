#include "atoll/data/shard_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>
#include <thread>

#include "atoll/data/testing.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::counting;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

constexpr std::uint64_t kShardBytes = 88 + 1000 * 2;

class ShardCacheTest : public ::testing::Test {
 protected:
  ShardCacheTest() {
    for (std::int32_t i = 0; i < 4; ++i) {
      std::vector<std::int32_t> tokens = counting(1000);
      tokens[0] = i;
      write_shard(source(i), {tokens, {}, 1000, {}});
    }
  }
  fs::path source(int i) const { return directory_ / fmt::format("{}.atsh", i); }
  static std::int32_t first_token(const CachedShard& cached) {
    std::int32_t token = -1;
    cached.shard.copy(0, std::span(&token, 1));
    return token;
  }
  // The copies, by the first token they hold.
  std::vector<std::int32_t> copies(const ShardCache& cache) const {
    std::vector<std::int32_t> all;
    for (const auto& entry : fs::directory_iterator(cache.directory())) {
      const Shard shard(entry.path());
      all.emplace_back();
      shard.copy(0, std::span(&all.back(), 1));
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  TemporaryDirectory directory_;
};

TEST_F(ShardCacheTest, ReadsTheCopyOnceItIsThere) {
  const ShardCache cache(directory_ / "cache", 10 * kShardBytes);
  EXPECT_EQ(first_token(cache.open(source(2))), 2);
  EXPECT_EQ(cache.bytes(), kShardBytes);
  // Only the header of the original is looked at now.
  fs::resize_file(source(2), 100);
  EXPECT_EQ(first_token(cache.open(source(2))), 2);
}

TEST_F(ShardCacheTest, RemovesTheLongestUnusedAtItsLimit) {
  const ShardCache cache(directory_ / "cache", 3 * kShardBytes);
  for (const int i : {0, 1, 2, 0}) {
    cache.open(source(i));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // times of files have a grain
  }
  cache.open(source(3));
  EXPECT_THAT(copies(cache), ::testing::ElementsAre(0, 2, 3));
}

TEST_F(ShardCacheTest, NeverRemovesWhatIsInUse) {
  const ShardCache cache(directory_ / "cache", 2 * kShardBytes);
  std::optional<CachedShard> oldest = cache.open(source(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  cache.open(source(1));
  cache.open(source(2));
  EXPECT_THAT(copies(cache), ::testing::ElementsAre(0, 2));
  const CachedShard other = cache.open(source(2));
  EXPECT_THAT(error_of([&] { cache.open(source(3)); }),
              AllOf(HasSubstr("in use"), HasSubstr("3.atsh"), HasSubstr("raise its limit")));
  oldest.reset();
  EXPECT_EQ(first_token(cache.open(source(3))), 3);
}

TEST_F(ShardCacheTest, RefusesAShardLargerThanItsLimit) {
  const ShardCache cache(directory_ / "cache", kShardBytes - 1);
  EXPECT_THAT(error_of([&] { cache.open(source(0)); }),
              AllOf(HasSubstr("0.atsh has 2088 bytes"), HasSubstr("may hold 2087")));
}

TEST_F(ShardCacheTest, CopiesAgainWhatIsDamaged) {
  const ShardCache cache(directory_ / "cache", 10 * kShardBytes);
  cache.open(source(1));
  const fs::path copy = fs::directory_iterator(cache.directory())->path();
  fs::resize_file(copy, 500);
  EXPECT_EQ(first_token(cache.open(source(1))), 1);
  EXPECT_EQ(fs::file_size(copy), kShardBytes);
}

TEST_F(ShardCacheTest, NamesTheOriginalThatIsDamagedAndKeepsNoCopy) {
  const ShardCache cache(directory_ / "cache", 10 * kShardBytes);
  fs::resize_file(source(1), 500);
  EXPECT_THAT(error_of([&] { cache.open(source(1)); }), HasSubstr("1.atsh ends at byte 500"));
  EXPECT_EQ(cache.bytes(), 0U);
  EXPECT_THAT(error_of([&] { cache.open(directory_ / "none.atsh"); }), HasSubstr("none.atsh"));
}

TEST_F(ShardCacheTest, RemovesWhatAKilledCopyLeft) {
  const ShardCache cache(directory_ / "cache", 10 * kShardBytes);
  write_file(cache.directory() / "00ff.atsh.tmp-123", "half");
  cache.open(source(0));
  EXPECT_FALSE(fs::exists(cache.directory() / "00ff.atsh.tmp-123"));
}

TEST_F(ShardCacheTest, ProcessesShareIt) {
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int status = 1;
      try {
        const ShardCache cache(directory_ / "cache", 2 * kShardBytes);
        status = 0;
        for (int i = 0; i < 40; ++i) {
          const int wanted = (i * 7 + child) % 4;
          // With two in use by others there may be no room: that is the only error allowed.
          const std::string error = error_of([&] {
            if (first_token(cache.open(source(wanted))) != wanted) status = 2;
          });
          if (!error.empty() && error.find("in use") == std::string::npos) status = 3;
        }
      } catch (...) {
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(ShardCache(directory_ / "cache", 1).bytes(), 2 * kShardBytes);
}

}  // namespace
}  // namespace atl::data
