#include "atoll/ckpt/gguf/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufSource tensor(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
  return {{std::move(name), std::move(shape),
           [values]() -> RowReader {
             return [values](std::int64_t row, std::span<float> out) {
               const auto at = row * static_cast<std::int64_t>(out.size());
               std::copy_n(values.begin() + at, out.size(), out.begin());
             };
           }},
          GgmlType::kF32};
}

// An old file, written number by number.
class OldFile {
 public:
  OldFile& number(std::int32_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  OldFile& text(const std::string& text) {
    number(static_cast<std::int32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  OldFile& floats(const std::vector<float>& values) {
    number(static_cast<std::int32_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class ImatrixTest : public ::testing::Test {
 protected:
  std::string refusal(ErrorKind kind = ErrorKind::kDamaged) const {
    try {
      read_imatrix(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
      return error.what();
    }
    return "read";
  }
  const testing::TemporaryDirectory directory_{"imatrix"};
  const std::filesystem::path path_ = directory_ / "m.imatrix";
};

TEST_F(ImatrixTest, SumsOfAGgufFileBecomeMeansForEachExpert) {
  const std::vector<GgufSource> sources = {
      tensor("blk.0.attn_q.weight.in_sum2", {1, 3}, {2, 4, 0}),
      tensor("blk.0.attn_q.weight.counts", {1, 1}, {2}),
      tensor("blk.0.ffn_up_exps.weight.in_sum2", {3, 2}, {3, 6, 0, 0, 8, 4}),
      tensor("blk.0.ffn_up_exps.weight.counts", {3, 1}, {3, 0, 4})};
  write_gguf(path_,
             {{"general.type", std::string("imatrix")},
              {"imatrix.datasets", std::vector<std::string>{"wiki.txt", "code.txt"}},
              {"imatrix.chunk_count", std::uint32_t{7}},
              {"imatrix.chunk_size", std::uint32_t{512}}},
             sources);
  const Imatrix imatrix = read_imatrix(path_);
  ASSERT_EQ(imatrix.columns.size(), 2U);
  EXPECT_THAT(imatrix.columns.at("blk.0.attn_q.weight"), ElementsAre(1, 2, 0));
  EXPECT_THAT(imatrix.columns.at("blk.0.ffn_up_exps.weight"), ElementsAre(1, 2, 1, 1, 2, 1));
  EXPECT_THAT(imatrix.datasets, ElementsAre("wiki.txt", "code.txt"));
  EXPECT_EQ(imatrix.chunks, 7);
  EXPECT_EQ(imatrix.name, "m.imatrix");
}

TEST_F(ImatrixTest, TheOlderFileSaysTheSame) {
  OldFile file;
  file.number(2).text("blk.0.attn_q.weight").number(2).floats({2, 4, 0});
  file.text("blk.0.ffn_up.weight").number(0).floats({5});
  write_file(path_, file.bytes());
  Imatrix imatrix = read_imatrix(path_);
  EXPECT_THAT(imatrix.columns.at("blk.0.attn_q.weight"), ElementsAre(1, 2, 0));
  EXPECT_THAT(imatrix.columns.at("blk.0.ffn_up.weight"), ElementsAre(5));
  EXPECT_EQ(imatrix.chunks, 0);
  write_file(path_, OldFile(file).number(9).text("wiki.txt").bytes());
  imatrix = read_imatrix(path_);
  EXPECT_EQ(imatrix.chunks, 9);
  EXPECT_THAT(imatrix.datasets, ElementsAre("wiki.txt"));
}

TEST_F(ImatrixTest, DamagedFilesAreRefusedByName) {
  OldFile file;
  file.number(1).text("w").number(1).floats({1, 2});
  for (std::size_t cut = 5; cut < file.bytes().size(); ++cut) {
    write_file(path_, file.bytes().substr(0, cut));
    EXPECT_THAT(refusal(), HasSubstr("bytes")) << cut;
  }
  write_file(path_, OldFile().number(1).text("w").number(1).number(1 << 30).bytes());
  EXPECT_THAT(refusal(), HasSubstr("w needs 4294967296 bytes, and 0 are left"));
  write_file(path_, OldFile().number(-1).bytes());
  EXPECT_THAT(refusal(), HasSubstr("the number of entries is -1"));
  write_file(path_, OldFile().number(1).text("w").number(1).floats({1, -2}).bytes());
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"w\""), HasSubstr("holds -2")));
  write_file(path_, OldFile().number(1).text("w").number(1).floats({std::nanf("")}).bytes());
  EXPECT_THAT(refusal(), HasSubstr("holds nan"));
  write_file(path_, OldFile().number(0).bytes());
  EXPECT_THAT(refusal(ErrorKind::kUser), HasSubstr("no importance of any tensor"));
}

TEST_F(ImatrixTest, SumsThatNothingCountsAreRefused) {
  const GgufSource sums = tensor("w.in_sum2", {1, 3}, {1, 2, 3});
  write_gguf(path_, {}, std::span(&sums, 1));
  EXPECT_THAT(refusal(), HasSubstr("3 sums of \"w\" and 0 counts"));
  write_gguf(path_, {}, std::vector<GgufSource>{sums, tensor("w.counts", {1, 2}, {1, 1})});
  EXPECT_THAT(refusal(), HasSubstr("3 sums of \"w\" and 2 counts"));
}

}  // namespace
}  // namespace atl::ckpt
