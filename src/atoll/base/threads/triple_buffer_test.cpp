#include "atoll/base/threads/triple_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace atl {
namespace {

TEST(TripleBuffer, HasTheNewestValue) {
  TripleBuffer<int> buffer;
  EXPECT_EQ(buffer.newest(), 0);
  for (int i = 1; i < 10; ++i) {
    buffer.back() = i;
    if (i % 3 == 0) {
      EXPECT_EQ(buffer.newest(), i - 1) << "what is not published is not seen";
    }
    buffer.publish();
    if (i % 2 == 0) {
      EXPECT_EQ(buffer.newest(), i);
    }
  }
  EXPECT_EQ(buffer.newest(), 9);
  EXPECT_EQ(buffer.newest(), 9);
}

TEST(TripleBuffer, AReaderSeesWholeValuesThatNeverGoBack) {
  constexpr std::uint64_t kLast = 200'000;
  TripleBuffer<std::vector<std::uint64_t>> buffer;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= kLast; ++i) {
      buffer.back().assign(16, i);
      buffer.publish();
    }
  });
  std::uint64_t seen = 0;
  bool is_whole = true;
  while (seen < kLast) {
    const std::vector<std::uint64_t>& value = buffer.newest();
    if (value.empty()) continue;
    for (const std::uint64_t one : value) is_whole = is_whole && one == value.front();
    is_whole = is_whole && value.front() >= seen;
    seen = value.front();
  }
  writer.join();
  EXPECT_TRUE(is_whole);
}

}  // namespace
}  // namespace atl
