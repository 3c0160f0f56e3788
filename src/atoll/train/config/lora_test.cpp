#include "atoll/train/config/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(LoraPatterns, TheLastEqualsSignParts) {
  EXPECT_THAT(rank_patterns({"v_proj=4", "(?=a)b=4096"}),
              ElementsAre(Pair("v_proj", 4), Pair("(?=a)b", 4096)));
  EXPECT_THAT(alpha_patterns({"v_proj=0.5", "x=16"}),
              ElementsAre(Pair("v_proj", 0.5), Pair("x", 16)));
}

TEST(LoraPatterns, OthersAreRefusedByName) {
  for (const char* entry : {"v_proj", "=4", "v_proj=", "v_proj=0", "v_proj=4.5", "v_proj=4097",
                            "v_proj=-1", "v_proj=4 "}) {
    try {
      rank_patterns({entry});
      ADD_FAILURE() << entry;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("lora.rank_pattern"));
      EXPECT_THAT(error.what(), HasSubstr(entry));
    }
  }
  for (const char* entry : {"v_proj", "v_proj=0", "v_proj=inf", "v_proj=nan", "v_proj=x"}) {
    try {
      alpha_patterns({entry});
      ADD_FAILURE() << entry;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("lora.alpha_pattern"));
    }
  }
}

}  // namespace
}  // namespace atl::train
