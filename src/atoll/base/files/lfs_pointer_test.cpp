#include "atoll/base/files/lfs_pointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl {
namespace {

TEST(LfsPointer, IsNamedWithTheWayOut) {
  try {
    refuse_lfs_pointer("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
                       "m/model.safetensors");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), testing::StartsWith("m/model.safetensors is a Git LFS pointer"));
    EXPECT_THAT(error.what(), testing::HasSubstr("git lfs pull"));
  }
}

TEST(LfsPointer, AnyOtherContentIsNone) {
  for (const char* content : {"", "version", "GGUF", "version https://git-lfs.github.com/spec/v"}) {
    EXPECT_NO_THROW(refuse_lfs_pointer(content, "f")) << content;
  }
}

}  // namespace
}  // namespace atl
