// Every backend that lives in one process, through the suite that all share.

#include <gtest/gtest.h>

#include "atoll/comm/testing/suite.h"
#include "atoll/comm/testing/worlds.h"

namespace atl::comm {
namespace {

struct Case {
  test::Backend backend;
  int size;
};

class Collectives : public testing::TestWithParam<Case> {};

TEST_P(Collectives, AreBitwiseTheSerialChain) {
  WorldOptions options;
  options.timeout_s = 60;
  EXPECT_NO_THROW(test::run(GetParam().backend, GetParam().size, options, test::check_collectives));
}

std::vector<Case> cases() {
  std::vector<Case> all{{test::Backend::kSelf, 1}};
  for (const int size : {2, 3, 4}) all.push_back({test::Backend::kThreads, size});
  for (const int size : {2, 3, 4}) all.push_back({test::Backend::kMessages, size});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Collectives, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(test::name_of(info.param.backend)) + std::to_string(info.param.size);
});

}  // namespace
}  // namespace atl::comm
