#include "atoll/tensor/file_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "atoll/base/error.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

class FileArenaTest : public ::testing::Test {
 protected:
  fs::path root_ = fs::temp_directory_path() / fmt::format("atoll-file-arena-{}", ::getpid());
  std::unique_ptr<Device> device_ = open_cpu(1);
  MemoryPlan plan_;

  void TearDown() override { fs::remove_all(root_); }
};

TEST_F(FileArenaTest, EachRequestHasPagesOfItsOwnAndStartsZeroed) {
  const Spec spec = {Dtype::kF32, {1000}};
  const int a = plan_.request_forever("a", "g", spec.bytes());
  const int b = plan_.request_forever("b", "g", spec.bytes());
  const FileArena file(*device_, root_, plan_);
  EXPECT_EQ(FileArena::bytes_of(plan_), 2 * kFilePage);
  for (const int number : {a, b}) {
    const Tensor tensor = file.arena().tensor(number, spec);
    EXPECT_EQ(file.place_in_page(tensor), 0U);
    EXPECT_TRUE(file.holds(tensor));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(tensor.data<float>()[i], 0.0F);
  }
  EXPECT_EQ(file.place_in_page(file.arena().tensor(b, spec).rows(16, 32)), 64U);
  float number = 0;
  EXPECT_FALSE(file.holds(Tensor(&number, {Dtype::kF32, {1}})));
  EXPECT_FALSE(file.holds(Tensor()));
}

TEST_F(FileArenaTest, TransfersAndViewsSeeEachOther) {
  const Spec spec = {Dtype::kF32, {5000}};
  const int number = plan_.request_forever("a", "g", spec.bytes());
  FileArena file(*device_, root_, plan_);
  const Tensor in_file = file.arena().tensor(number, spec);
  std::vector<float> values(5000), back(5000);
  std::iota(values.begin(), values.end(), 1.0F);
  std::future<void> write = file.start_write(Tensor(values.data(), spec), in_file);
  finish(write);
  finish(write);  // none is under way: nothing happens
  EXPECT_EQ(in_file.data<float>()[4999], 5000.0F);
  in_file.data<float>()[17] = -1;
  give_back(in_file.rows(0, 100));         // its memory, not its elements
  give_back(Tensor(values.data(), spec));  // nothing: it is no view of a file
  std::future<void> read = file.start_read(in_file, Tensor(back.data(), spec));
  finish(read);
  values[17] = -1;
  EXPECT_EQ(back, values);
}

TEST_F(FileArenaTest, WhatLiesElsewhereIsNotMoved) {
  const int number = plan_.request_forever("a", "g", 64);
  FileArena file(*device_, root_, plan_);
  std::vector<float> memory(16);
  const Tensor outside(memory.data(), {Dtype::kF32, {16}});
  EXPECT_THROW(file.start_read(outside, outside), Error);
  const Tensor inside = file.arena().tensor(number, {Dtype::kF32, {16}});
  EXPECT_THROW(file.start_read(inside, outside.rows(0, 8)), Error);
}

}  // namespace
}  // namespace atl
