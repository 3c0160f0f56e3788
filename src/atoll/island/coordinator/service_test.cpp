#include "atoll/island/coordinator/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/island/ledger/testing.h"

namespace atl::island {
namespace {

TEST(CoordinatorService, ARunOfAnotherVersionOfTheProtocolIsLeftAlone) {
  const testing::LedgerDirectory dir;
  const std::string text = R"({"format": "atoll run", "version": 1,
    "identity": {"run": "r", "version": "2", "model": "", "tokenizer": "", "data": "",
                 "settings": ""},
    "plan": {"num_fragments": 1, "inner_steps": 4, "total_batches": 10, "min_islands": 1,
             "quorum": 1, "grace_seconds": 1, "is_private": false}})";
  write_file(dir.path() / "run.json", text);
  try {
    const CoordinatorService service({.dir = dir.path(), .listen = "127.0.0.1:0"});
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("version 2 of the protocol"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir.ledger()));
}

}  // namespace
}  // namespace atl::island
