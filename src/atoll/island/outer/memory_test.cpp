#include "atoll/island/outer/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

namespace atl::island {
namespace {

std::map<std::string, std::size_t> parts(const OuterOptions& options,
                                         std::initializer_list<std::int64_t> elements) {
  std::map<std::string, std::size_t> by_name;
  const std::vector<std::int64_t> of_each = elements;
  for (const auto& [what, bytes] : outer_memory(options, of_each)) by_name[what] = bytes;
  return by_name;
}

TEST(OuterMemory, CountsVectorsOfAllAndOfTheLargestFragment) {
  OuterOptions options = {.algorithm = "streaming", .inner_steps = 4, .fragments = 2};
  options.optimizer = {.kind = "nesterov", .lr = 0.7, .momentum = 0.9};
  const auto found = parts(options, {1000, 3000});
  EXPECT_EQ(found.at("parameters, as sent"), 4U * 3000);
  EXPECT_EQ(found.at("anchor, outer optimizer"), 2U * 4 * 4000);
  EXPECT_EQ(found.at("next outer step"), 3U * 4 * 3000);
  EXPECT_EQ(found.at("pseudo-gradient"), 4U * 3000);
  EXPECT_GE(found.at("exchange"), 3U * 4 * 3000);
  EXPECT_EQ(found.size(), 5U);
}

TEST(OuterMemory, NamesWhatOnlySomeSettingsNeed) {
  OuterOptions eager = {.algorithm = "eager", .inner_steps = 4};
  eager.optimizer = {.kind = "nesterov", .lr = 0.7, .momentum = 0.9};
  EXPECT_EQ(parts(eager, {1000}).at("own state"), 2U * 4 * 1000);
  EXPECT_EQ(parts(eager, {1000}).at("next outer step"), 5U * 4 * 1000) << "steps go on meanwhile";
  OuterOptions sparse = {.algorithm = "diloco", .inner_steps = 4};
  sparse.optimizer = {.kind = "sgd", .lr = 1, .momentum = 0};
  sparse.codec = "topk";
  const auto found = parts(sparse, {4096});
  EXPECT_EQ(found.at("error feedback"), 2U * 4 * 4096);
  EXPECT_EQ(found.at("anchor, outer optimizer"), 4U * 4096);
  EXPECT_EQ(found.count("own state"), 0U);
}

}  // namespace
}  // namespace atl::island
