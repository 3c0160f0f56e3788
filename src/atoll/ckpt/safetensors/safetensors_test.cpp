#include "atoll/ckpt/safetensors/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <numeric>

#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A file's bytes with this header, its true size before it, and zeros behind it.
std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  return file + header + std::string(data_bytes, '\0');
}

std::string damage_of(const std::string& file) {
  try {
    parse_safetensors(as_bytes(file), "model.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    return error.what();
  }
  return "accepted";
}

std::string describe(const SafetensorsHeader& header) {
  std::string text = std::to_string(header.data_offset);
  for (const auto& e : header.entries) {
    text +=
        fmt::format(";{}:{}:{}:{}-{}", e.name, e.dtype, fmt::join(e.shape, ","), e.begin, e.end);
  }
  for (const auto& [key, value] : header.metadata) text += ";" + key + "=" + value;
  return text;
}

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override { std::iota(weights_.begin(), weights_.end(), -3.5f); }

  std::vector<NamedTensor> tensors() {
    return {{"bytes", {bytes_.data(), {Dtype::kU8, {3}}}},
            {"weight", {weights_.data(), {Dtype::kF32, {2, 3}}}},
            {"empty", {weights_.data(), {Dtype::kF32, {0, 4}}}},
            {"scalar", {&step_, {Dtype::kI64, {}}}}};
  }

  testing::TemporaryDirectory directory_{"safetensors"};
  std::filesystem::path path_ = directory_ / "a.safetensors";
  std::vector<float> weights_ = std::vector<float>(6);
  std::vector<std::uint8_t> bytes_ = {1, 2, 255};
  std::int64_t step_ = -7;
};

TEST_F(Safetensors, RoundTripIsBitExactAndDeterministic) {
  const WrittenFile written = write_safetensors(path_, tensors(), {{"format", "pt"}});
  const std::string content = read_file(path_);
  EXPECT_EQ(written.bytes, content.size());
  EXPECT_EQ(written.hash, hash_bytes(content.data(), content.size()));

  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  ASSERT_EQ(file.entries().size(), 4u);
  for (const NamedTensor& named : tensors()) {
    const Tensor read = file.tensor(named.name);  // every one is aligned, whatever the order given
    EXPECT_EQ(read.spec(), named.tensor.spec());
    EXPECT_EQ(std::memcmp(read.raw(), named.tensor.raw(), read.bytes()), 0) << named.name;
  }
  write_safetensors(path_, tensors(), {{"format", "pt"}});
  EXPECT_EQ(read_file(path_), content);
}

TEST_F(Safetensors, SourceInPiecesEqualsTensor) {
  write_safetensors(path_, tensors());
  const std::string whole = read_file(path_);
  std::vector<TensorSource> sources;
  for (const NamedTensor& named : tensors()) {
    sources.push_back({named.name, named.tensor.spec(), [t = named.tensor](const ByteSink& sink) {
                         const auto* data = static_cast<const char*>(t.raw());
                         for (std::size_t i = 0; i < t.bytes(); ++i) sink(data + i, 1);
                       }});
  }
  write_safetensors(path_, sources);
  EXPECT_EQ(read_file(path_), whole);
}

TEST_F(Safetensors, SourceOfTheWrongSizeLeavesNoFile) {
  for (const std::size_t size : {3, 5}) {
    const TensorSource source{
        "x", {Dtype::kU8, {4}}, [size](const ByteSink& sink) { sink("abcdef", size); }};
    EXPECT_THROW(write_safetensors(path_, std::span(&source, 1)), Error);
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(Safetensors, NameTwiceIsRefused) {
  std::vector<NamedTensor> twice = {tensors()[0], tensors()[0]};
  EXPECT_THROW(write_safetensors(path_, twice), Error);
}

TEST_F(Safetensors, NoBitOfTheHeaderChangesUnseen) {
  write_safetensors(path_, tensors(), {{"k", "v"}});
  const std::string content = read_file(path_);
  const SafetensorsHeader header = parse_safetensors(as_bytes(content), "a");
  const std::string original = describe(header);
  for (std::size_t byte = 0; byte < header.data_offset; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = content;
      changed[byte] = static_cast<char>(changed[byte] ^ (1 << bit));
      try {
        EXPECT_NE(describe(parse_safetensors(as_bytes(changed), "a")), original)
            << "byte " << byte << " bit " << bit;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      }
    }
  }
}

TEST_F(Safetensors, EveryTruncationIsDamage) {
  write_safetensors(path_, tensors());
  const std::string content = read_file(path_);
  for (std::size_t size = 0; size < content.size(); ++size) {
    EXPECT_NE(damage_of(content.substr(0, size)), "accepted") << size;
  }
  EXPECT_THAT(damage_of(content + "x"), HasSubstr("take 35 bytes and the file has 36"));
}

TEST(SafetensorsHeader, ViolationsAreNamed) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(damage_of(file_with("{" + a + "}", 8)), "accepted");
  const auto expect = [](const std::string& header, std::size_t bytes, const char* message) {
    EXPECT_THAT(damage_of(file_with(header, bytes)), HasSubstr(message)) << header;
  };
  expect("{" + a + "," + a + "}", 8, "\"a\" stands there twice");
  expect("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})", 8,
         "\"b\" begins at byte 7 of the data, not at 8");
  expect("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10, "at byte 9");
  expect("{" + a + "}", 9, "take 8 bytes and the file has 9");
  expect("{" + a + "}", 7, "it was cut off");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not hold the 8 bytes");
  expect(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
         "do not hold the 12 bytes");
  expect(R"({"a":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})", 8, "dtype \"X9\" is unknown");
  expect(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "dim -2");
  expect(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "dim 2.0");
  expect(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
         "more elements than any memory");
  expect(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "8 dims");
  expect(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "[begin, end]");
  expect(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "is not {dtype, shape, data_offsets}");
  expect(R"({"__metadata__":{"k":1}})", 0, "__metadata__");
  expect(std::string(100000, '['), 0, "not a JSON object");
  expect("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0, "nested");
  expect("[] ", 0, "not a JSON object");
  expect(" \n", 0, "not a JSON object");
  expect(std::string("{}\0", 3), 0, "not a JSON object");  // the library refuses it too
  expect(R"({"__metadata__":{"k":null}})", 0, "__metadata__");
  std::string huge = file_with("{}", 0);
  huge[7] = 1;
  EXPECT_THAT(damage_of(huge), HasSubstr("a header of 72057594037927938 bytes"));
}

// What safetensors 0.8 reads: safe_open(path, "np").keys().
TEST(SafetensorsHeader, WhatTheLibraryReadsPastIsReadPast) {
  const std::string entry = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  const std::string plain =
      describe(parse_safetensors(as_bytes(file_with("{\"a\":{" + entry + "}}", 1)), "m"));
  const std::string tensor = plain.substr(plain.find(';'));
  for (const std::string& header :
       {R"({"__metadata__":null,"a":{)" + entry + "}}", "{\"a\":{" + entry + "}}\n",
        "{\"a\":{" + entry + "}} \t\r\n ", "\n {\"a\":{" + entry + "}}",
        "{\"a\":{" + entry + R"(,"novel":{"b":[1]}}})"}) {
    const std::string file = file_with(header, 1);
    EXPECT_THAT(describe(parse_safetensors(as_bytes(file), "m")), ::testing::EndsWith(tensor))
        << header;
  }
}

TEST(SafetensorsHeader, EveryDtypeOfTheLibraryIsListed) {
  for (const auto& [dtype, bytes] : std::map<std::string, std::size_t>{
           {"BOOL", 8}, {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},
           {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"I16", 16},
           {"U16", 16}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F16", 16},    {"BF16", 16},
           {"I32", 32}, {"U32", 32},        {"F32", 32},        {"C64", 64},    {"F64", 64},
           {"I64", 64}, {"U64", 64}}) {
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[8],"data_offsets":[0,{}]}}}})", dtype, bytes);
    EXPECT_EQ(damage_of(file_with(header, bytes)), "accepted") << dtype;
  }
}

TEST_F(Safetensors, ALinkIsReadAndALfsPointerIsNamed) {
  write_safetensors(directory_ / "blob", tensors());
  std::filesystem::create_symlink("blob", path_);
  EXPECT_EQ(SafetensorsFile(path_).entries().size(), 4U);
  std::filesystem::remove(path_);
  write_file(path_, "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n");
  try {
    const SafetensorsFile file(path_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("a.safetensors is a Git LFS pointer"));
  }
}

TEST_F(Safetensors, ReadsAnyFloatAsF32AndNamesWhatMismatches) {
  std::vector<std::uint16_t> halves = {0x3f80, 0xc000};  // 1, -2 in bf16
  const std::vector<NamedTensor> named = {{"h", {halves.data(), {Dtype::kBf16, {2, 1}}}},
                                          {"n", {&step_, {Dtype::kI64, {1}}}}};
  write_safetensors(path_, named);
  const SafetensorsFile file(path_);
  std::vector<float> out(2);
  file.read_f32("h", Tensor(out.data(), {Dtype::kF32, {2, 1}}));
  EXPECT_EQ(out, (std::vector<float>{1, -2}));
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] {
                file.read_f32("h", Tensor(out.data(), {Dtype::kF32, {1, 2}}));
              }),
              HasSubstr("a.safetensors: tensor \"h\" has shape (2, 1), expected (1, 2)"));
  EXPECT_THAT(message([&] { file.read_f32("n", std::span(out).first(1)); }),
              HasSubstr("\"n\" is i64, expected floats"));
  EXPECT_THAT(message([&] {
                file.read("h", Tensor(out.data(), {Dtype::kF32, {2, 1}}));
              }),
              HasSubstr("is bf16 (2, 1), expected f32 (2, 1)"));
  EXPECT_THAT(message([&] { file.find("z"); }), HasSubstr("has no tensor \"z\""));
}

TEST_F(Safetensors, DtypesWithoutTensorAreListedAndRefusedOnlyWhenAskedFor) {
  write_file(path_, file_with(R"({"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},)"
                              R"("d":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[2,3]}})",
                              3));
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.bytes("b").size(), 2u);
  EXPECT_THROW(file.tensor("b"), Error);
  EXPECT_THROW(file.tensor("d"), Error);
}

TEST(SafetensorsHeader, ManyTensorsAreReadInLinearTime) {
  // 40,000 tensors take well under a second; a search through all names for each took minutes.
  std::string header = "{";
  for (int i = 0; i < 40000; ++i) {
    header += fmt::format("{}\"t{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                          i == 0 ? "" : ",", i, i, i + 1);
  }
  const std::string file = file_with(header + "}", 40000);
  EXPECT_EQ(parse_safetensors(as_bytes(file), "m").entries.size(), 40000U);
}

}  // namespace
}  // namespace atl::ckpt
