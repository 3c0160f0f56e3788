// GGUF files against what the gguf package wrote and read (tools/golden/gguf_oracle.py), and files
// whose headers lie.

#include "atoll/ckpt/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "atoll/ckpt/gguf/ggml_encode.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> values_of(const GgufFile& file, const GgufTensor& tensor) {
  const FloatRows rows = file.rows(tensor);
  std::vector<float> values(static_cast<std::size_t>(rows.num_rows() * rows.width()));
  const RowReader read = rows.open();
  for (std::int64_t r = 0; r < rows.num_rows(); ++r) {
    read(r, std::span(values).subspan(static_cast<std::size_t>(r * rows.width()),
                                      static_cast<std::size_t>(rows.width())));
  }
  return values;
}

TEST(GgufQuants, EveryTypeIsReadBitForBitAsTheGgufPackageReadsIt) {
  const GgufFile file(testing::testdata() / "quants.gguf");
  const std::string expected = read_file(testing::testdata() / "quants.f32");
  std::size_t at = 0;
  ASSERT_EQ(file.tensors().size(), 17U);
  for (const GgufTensor& tensor : file.tensors()) {
    const std::vector<float> values = values_of(file, tensor);
    const std::size_t bytes = values.size() * sizeof(float);
    ASSERT_LE(at + bytes, expected.size());
    EXPECT_EQ(std::memcmp(values.data(), expected.data() + at, bytes), 0) << tensor.name;
    at += bytes;
  }
  EXPECT_EQ(at, expected.size());
}

TEST(GgufQuants, Q8AndMxfp4AreRoundedAsTheReferenceRoundsThem) {
  const GgufFile file(testing::testdata() / "quants.gguf");
  const std::string raw = read_file(file.path());
  const std::vector<float> source = values_of(file, *file.find("source"));
  for (const auto& [type, name] :
       {std::pair{GgmlType::kQ8_0, "encoded"}, std::pair{GgmlType::kMxfp4, "encoded_mxfp4"}}) {
    const GgufTensor& encoded = *file.find(name);
    std::vector<std::byte> ours(encoded.end - encoded.begin);
    encode(type, source, ours, "source");
    EXPECT_EQ(std::memcmp(ours.data(), raw.data() + encoded.begin, ours.size()), 0) << name;
  }
}

TEST(GgufQuants, WhatATypeCannotHoldIsRefused) {
  std::vector<float> row(32, 1.0F);
  std::vector<std::byte> out(64);
  const auto refusal = [&](GgmlType type, float value) -> std::string {
    row[7] = value;
    try {
      encode(type, row, std::span(out).first(ggml_row_bytes(type, 32)), "w");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "encoded";
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(GgmlType::kF16, 65520), AllOf(HasSubstr("\"w\""), HasSubstr("65520")));
  EXPECT_EQ(refusal(GgmlType::kF16, 65519), "encoded");
  EXPECT_EQ(refusal(GgmlType::kF16, kInfinity), "encoded");
  EXPECT_THAT(refusal(GgmlType::kQ8_0, kInfinity), HasSubstr("holds inf"));
  EXPECT_THAT(refusal(GgmlType::kQ8_0, std::nanf("")), HasSubstr("nan"));
  EXPECT_THAT(refusal(GgmlType::kQ8_0, 127.0F * 65520.0F), HasSubstr("choose f32"));
  EXPECT_EQ(refusal(GgmlType::kQ8_0, 1e6F), "encoded");
  // The scale's reciprocal overflows: zeros, not undefined casts.
  row.assign(32, 1e-44F);
  EXPECT_EQ(refusal(GgmlType::kQ8_0, 2e-44F), "encoded");
  EXPECT_EQ(out[2 + 7], std::byte{0});
  EXPECT_THAT(refusal(GgmlType::kMxfp4, std::nanf("")), HasSubstr("nan"));
  EXPECT_THAT(refusal(GgmlType::kMxfp4, -kInfinity), HasSubstr("holds -inf"));
  EXPECT_EQ(refusal(GgmlType::kMxfp4, std::numeric_limits<float>::max()), "encoded");
  // The least power of two there is: zeros, no exponent below 0.
  row.assign(32, 1e-44F);
  EXPECT_EQ(refusal(GgmlType::kMxfp4, 2e-44F), "encoded");
  EXPECT_EQ(out[0], std::byte{0});
  EXPECT_EQ(out[1 + 7], std::byte{0});
}

TEST(Gguf, MetadataOfEveryKindIsRead) {
  const GgufFile file(testing::testdata() / "quants.gguf");
  EXPECT_EQ(file.integer("kind.u8"), 200);
  EXPECT_EQ(file.integer("kind.i8"), -100);
  EXPECT_EQ(file.integer("kind.u16"), 60000);
  EXPECT_EQ(file.integer("kind.i16"), -30000);
  EXPECT_EQ(file.integer("kind.u32"), 4000000000);
  EXPECT_EQ(file.integer("kind.i32"), -2000000000);
  EXPECT_EQ(file.integer("kind.u64"), std::int64_t{1} << 40);
  EXPECT_EQ(file.integer("kind.i64"), -(std::int64_t{1} << 40));
  EXPECT_EQ(file.number("kind.f32"), 0.5);
  EXPECT_EQ(file.number("kind.f64"), 0.1);
  EXPECT_TRUE(file.boolean("kind.bool", false));
  EXPECT_EQ(file.text("kind.string"),
            "gr\xc3\xbc\xc3\x9f"
            "e");
  EXPECT_EQ(file.texts("kind.strings"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(file.integers("kind.integers"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(file.numbers("kind.numbers"), (std::vector<double>{0.25, -1.5}));
  EXPECT_EQ(file.integer("kind.none", 5), 5);
  EXPECT_THROW(file.integer("kind.none"), Error);
  EXPECT_THROW(file.integer("kind.string"), Error);
  EXPECT_THROW(file.integer("kind.integers"), Error);
  EXPECT_THROW(file.text("kind.u8"), Error);
}

// A file put together by hand, so that any number in it can lie.
class Forged {
 public:
  Forged(std::uint64_t tensors, std::uint64_t entries) {
    bytes_ = "GGUF";
    number(std::uint32_t{3}).number(tensors).number(entries);
  }
  template <typename T>
  Forged& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Forged& string(std::string_view text) {
    number(std::uint64_t{text.size()});
    bytes_ += text;
    return *this;
  }
  Forged& entry(std::string_view key, std::uint32_t value) {
    return string(key).number(std::uint32_t{4}).number(value);
  }
  Forged& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                 std::uint64_t offset) {
    string(name).number(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) number(dim);
    return number(type).number(offset);
  }
  Forged& data(std::size_t bytes) {
    bytes_.append((32 - bytes_.size() % 32) % 32 + bytes, '\0');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string refusal(const std::string& bytes) {
  try {
    parse_gguf(std::as_bytes(std::span(bytes)), "m.gguf");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("m.gguf: GGUF: "));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "accepted";
}

TEST(Gguf, AWholeFileIsAccepted) {
  Forged file(2, 1);
  file.entry("k", 1).tensor("a", {4, 2}, 0, 0).tensor("b", {32}, 8, 32).data(66);
  EXPECT_EQ(refusal(file.bytes()), "accepted");
  const GgufHeader header = parse_gguf(std::as_bytes(std::span(file.bytes())), "m.gguf");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(header.tensors[1].end, file.bytes().size());
  for (std::size_t cut = 0; cut < file.bytes().size(); ++cut) {
    EXPECT_NE(refusal(file.bytes().substr(0, cut)), "accepted") << cut;
  }
}

TEST(Gguf, CountsAndLengthsThatLieAreRefusedByName) {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(refusal("GGML"), HasSubstr("does not begin"));
  std::string other = Forged(0, 0).bytes();
  other[4] = 1;
  EXPECT_THAT(refusal(other), HasSubstr("version 1"));
  EXPECT_THAT(refusal(Forged(kHuge, 0).data(99).bytes()),
              HasSubstr("18446744073709551615 tensors"));
  EXPECT_THAT(refusal(Forged(0, kHuge).data(99).bytes()), HasSubstr("metadata entries"));
  EXPECT_THAT(refusal(Forged(0, 1).number(kHuge).data(99).bytes()),
              AllOf(HasSubstr("metadata 1 of 1"), HasSubstr("18446744073709551615 bytes")));
  EXPECT_THAT(refusal(Forged(0, 1).string("k").number(77U).data(99).bytes()),
              AllOf(HasSubstr("\"k\""), HasSubstr("kind 77")));
  EXPECT_THAT(refusal(Forged(0, 1).string("k").number(9U).number(8U).number(kHuge).bytes()),
              AllOf(HasSubstr("\"k\""), HasSubstr("18446744073709551615 elements")));
  EXPECT_THAT(refusal(Forged(0, 1).string("k").number(9U).number(9U).number(1UL).data(99).bytes()),
              HasSubstr("an array of arrays"));
  EXPECT_THAT(refusal(Forged(0, 1).string("k").number(7U).number('\2').data(99).bytes()),
              HasSubstr("2 is no boolean"));
  EXPECT_THAT(refusal(Forged(0, 2).entry("k", 1).entry("k", 2).data(99).bytes()),
              HasSubstr("\"k\": it is there twice"));
  EXPECT_THAT(refusal(Forged(0, 1).string("line\nbreak").number(77U).data(99).bytes()),
              HasSubstr("\"line?break\""));
}

TEST(Gguf, ALfsPointerIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\n";
  try {
    parse_gguf(std::as_bytes(std::span(pointer)), "m.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("m.gguf is a Git LFS pointer"));
  }
}

TEST(Gguf, TensorsThatLieAreRefusedByName) {
  const auto with = [](std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    return refusal(Forged(1, 0).tensor("w", std::move(dims), type, offset).data(64).bytes());
  };
  constexpr std::uint64_t kBig = std::uint64_t{1} << 62;
  EXPECT_EQ(with({16}, 0, 0), "accepted");
  EXPECT_THAT(with({}, 0, 0), AllOf(HasSubstr("\"w\""), HasSubstr("0 dims")));
  EXPECT_THAT(with({1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dims"));
  EXPECT_THAT(with({0}, 0, 0), HasSubstr("dim 0"));
  EXPECT_THAT(with({kBig, kBig}, 0, 0), HasSubstr("more elements than any memory"));
  EXPECT_THAT(with({1, kBig, 4}, 1, 0), HasSubstr("more elements than any memory"));
  EXPECT_THAT(with({std::uint64_t{1} << 63}, 0, 0), HasSubstr("dim 9223372036854775808"));
  EXPECT_THAT(with({33}, 8, 0), HasSubstr("33 elements are no whole blocks of Q8_0's 32"));
  EXPECT_THAT(with({16}, 0, 1), HasSubstr("offset 1 is not a multiple of the alignment 32"));
  EXPECT_THAT(with({16}, 0, 32), HasSubstr("bytes 32 to 96 of the data, which has 64"));
  EXPECT_THAT(with({16}, 0, ~std::uint64_t{31}), HasSubstr("beyond any file"));
  EXPECT_THAT(with({256}, 20, 0), HasSubstr("IQ4_NL"));
  EXPECT_THAT(with({256}, 1234, 0), HasSubstr("number 1234"));
  Forged twice(2, 0);
  twice.tensor("w", {8}, 0, 0).tensor("w", {8}, 0, 32).data(64);
  EXPECT_THAT(refusal(twice.bytes()), HasSubstr("\"w\": it is there twice"));
  Forged overlap(2, 0);
  overlap.tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64);
  EXPECT_THAT(refusal(overlap.bytes()), HasSubstr("tensor \"a\" and tensor \"b\" overlap"));
}

TEST(Gguf, BytesThatNoTensorHasAreRefused) {
  const auto with = [](std::vector<std::uint64_t> dims, std::size_t data, std::size_t set) {
    std::string bytes = Forged(1, 0).tensor("w", std::move(dims), 0, 0).data(data).bytes();
    bytes[bytes.size() - set] = '\1';
    return refusal(bytes);
  };
  EXPECT_EQ(with({16}, 64, 1), "accepted");
  EXPECT_THAT(with({8}, 64, 1), AllOf(HasSubstr("behind tensor \"w\""), HasSubstr("no tensor's")));
  EXPECT_THAT(with({8}, 64, 64), HasSubstr("are no tensor's"));
  EXPECT_THAT(with({4}, 32, 1), HasSubstr("no tensor's and not zero"));  // in the padding
  EXPECT_EQ(with({4}, 32, 32), "accepted");
  Forged gap(2, 0);
  gap.tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 64).data(96);
  EXPECT_THAT(refusal(gap.bytes()), HasSubstr("behind tensor \"a\", are no tensor's"));
  Forged late(1, 0);
  late.tensor("a", {8}, 0, 32).data(64);
  EXPECT_THAT(refusal(late.bytes()), HasSubstr("behind the header, are no tensor's"));
  EXPECT_EQ(refusal(Forged(0, 1).entry("k", 1).bytes()), "accepted");
  EXPECT_EQ(refusal(Forged(0, 1).entry("k", 1).data(0).bytes()), "accepted");
  EXPECT_THAT(refusal(Forged(0, 1).entry("k", 1).data(32).bytes()), HasSubstr("no tensor's"));
}

TEST(Gguf, AlignmentMustBeAPowerOfTwo) {
  for (const std::uint32_t alignment : {0U, 3U, 48U}) {
    Forged file(1, 1);
    file.entry("general.alignment", alignment).tensor("w", {16}, 0, 0).data(128);
    EXPECT_THAT(refusal(file.bytes()), HasSubstr(fmt::format("general.alignment {}", alignment)));
  }
  Forged file(1, 1);
  file.entry("general.alignment", 64).tensor("w", {16}, 0, 0);
  std::string bytes = file.bytes();
  bytes.resize((bytes.size() + 63) / 64 * 64 + 64);
  EXPECT_EQ(refusal(bytes), "accepted");
}

TEST(Gguf, RandomDamageEndsInAnErrorOrAFileThatHolds) {
  const std::string whole = read_file(testing::testdata() / "quants.gguf");
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (int n = 0; n < 3; ++n) damaged[random() % 1500] = static_cast<char>(random());
    try {
      const auto bytes = std::as_bytes(std::span(damaged));
      const GgufHeader header = parse_gguf(bytes, "m.gguf");
      for (const GgufTensor& tensor : header.tensors) ASSERT_LE(tensor.end, damaged.size());
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
}

FloatRows ramp(std::string name, std::vector<std::int64_t> shape) {
  const std::int64_t width = shape.back();
  return {std::move(name), std::move(shape), [width]() -> RowReader {
            return [width](std::int64_t row, std::span<float> out) {
              for (std::size_t i = 0; i < out.size(); ++i) {
                out[i] = static_cast<float>(row * width) + static_cast<float>(i);
              }
            };
          }};
}

TEST(GgufWriter, WhatItWritesReadsBack) {
  const testing::TemporaryDirectory directory("gguf-writer");
  const GgufFields fields = {{"a", true},
                             {"b", std::uint32_t{7}},
                             {"c", -3},
                             {"d", 0.5F},
                             {"e", std::string("text")},
                             {"f", std::vector<std::string>{"x", ""}},
                             {"g", std::vector<std::int32_t>{1, -1}},
                             {"h", std::vector<float>{0.5F}}};
  const std::vector<GgufSource> sources = {{ramp("v", {5}), GgmlType::kF32},
                                           {ramp("m", {3, 32}), GgmlType::kQ8_0},
                                           {ramp("n", {2, 3}), GgmlType::kF16}};
  const WrittenFile written = write_gguf(directory / "x.gguf", fields, sources);
  const GgufFile file(directory / "x.gguf");
  EXPECT_EQ(std::filesystem::file_size(file.path()), written.bytes);
  EXPECT_TRUE(file.boolean("a", false));
  EXPECT_EQ(file.integer("b"), 7);
  EXPECT_EQ(file.integer("c"), -3);
  EXPECT_EQ(file.number("d"), 0.5);
  EXPECT_EQ(file.text("e"), "text");
  EXPECT_EQ(file.texts("f"), (std::vector<std::string_view>{"x", ""}));
  EXPECT_EQ(file.integers("g"), (std::vector<std::int64_t>{1, -1}));
  EXPECT_EQ(file.numbers("h"), (std::vector<double>{0.5}));
  EXPECT_EQ(values_of(file, *file.find("v")), (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(values_of(file, *file.find("n")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.find("m")->shape, (std::vector<std::int64_t>{3, 32}));
  EXPECT_NEAR(values_of(file, *file.find("m"))[95], 95, 95.0 / 254 + 95.0 / 2048);
}

class GgufSplit : public ::testing::Test {
 protected:
  // File `number` of three, with one tensor.
  void write(int number, GgufFields fields = {}, const char* tensor = nullptr) {
    const std::string name = fmt::format("t{}", number);
    fields.emplace_back("split.no", static_cast<std::uint32_t>(number - 1));
    fields.emplace_back("split.count", std::uint32_t{3});
    fields.emplace_back("split.tensors.count", 3);
    const std::vector<GgufSource> sources = {
        {ramp(tensor != nullptr ? tensor : name.c_str(), {number, 2}), GgmlType::kF32}};
    write_gguf(path(number), fields, sources);
  }
  void write_all() {
    write(1, {{"general.architecture", std::string("llama")}});
    write(2);
    write(3);
  }
  std::filesystem::path path(int number) const {
    return directory_ / fmt::format("m-{:05}-of-00003.gguf", number);
  }
  std::string refusal_of(int number) const {
    try {
      GgufFile{path(number)};
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  }
  const testing::TemporaryDirectory directory_{"gguf-split"};
};

TEST_F(GgufSplit, AnyOfItsFilesIsTheWholeModel) {
  write_all();
  for (const int given : {1, 3}) {
    const GgufFile file(path(given));
    EXPECT_EQ(file.path(), path(1));
    EXPECT_EQ(file.text("general.architecture"), "llama");
    ASSERT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(values_of(file, *file.find("t3")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(values_of(file, *file.find("t1")), (std::vector<float>{0, 1}));
  }
}

TEST_F(GgufSplit, FilesThatAreNotOfOneModelAreRefused) {
  write_all();
  std::filesystem::remove(path(2));
  EXPECT_THAT(refusal_of(1), AllOf(HasSubstr("there is no"), HasSubstr("m-00002-of-00003.gguf")));
  write(2, {}, "t1");
  EXPECT_THAT(refusal_of(1), HasSubstr("the tensor t1 is in another file"));
  std::filesystem::copy_file(path(3), path(2), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_of(1), HasSubstr("split.no is not 1"));
  write_gguf(path(2), {{"split.no", std::uint32_t{1}}}, {});
  EXPECT_THAT(refusal_of(1), HasSubstr("have 2 tensors, and split.tensors.count is 3"));
  std::filesystem::rename(path(1), directory_ / "model.gguf");
  try {
    GgufFile{directory_ / "model.gguf"};
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model-00001-of-00003.gguf"));
  }
}

TEST(GgufWriter, RowsOfNoWholeBlocksAreRefused) {
  const testing::TemporaryDirectory directory("gguf-blocks");
  const std::vector<GgufSource> sources = {{ramp("m", {3, 48}), GgmlType::kQ8_0}};
  EXPECT_THROW(write_gguf(directory / "x.gguf", {}, sources), Error);
  EXPECT_FALSE(std::filesystem::exists(directory / "x.gguf"));
}

}  // namespace
}  // namespace atl::ckpt
