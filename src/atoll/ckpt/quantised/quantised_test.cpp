#include "atoll/ckpt/quantised/quantised.h"

#include <gmock/gmock.h>

#include <cstring>

#include "atoll/base/error.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class QuantisedGolden : public ::testing::TestWithParam<const char*> {};

// tools/golden/quantised.py has written them: bit for bit.
TEST_P(QuantisedGolden, HasTheNumbersOfItsMethod) {
  const HfDirectory directory(testing::testdata() / "quantised" / GetParam());
  const QuantisedWeights weights(directory);
  ASSERT_EQ(weights.all().size(), 1U);
  const StoredMatrix* stored = weights.find("x.weight");
  ASSERT_NE(stored, nullptr);
  EXPECT_EQ(stored->shape, directory.spec("expected").shape);
  EXPECT_EQ(stored->tensors.size() + 1, directory.tensor_names().size());
  std::vector<float> expected(static_cast<std::size_t>(stored->shape.num_elements()));
  directory.read_f32("expected", expected);
  std::vector<float> widened(expected.size());
  widen_stored(*stored, widened);
  EXPECT_EQ(widened, expected);
}

// A product asks for some rows at a time.
TEST_P(QuantisedGolden, RowsAreTheSameOnTheirOwn) {
  const HfDirectory directory(testing::testdata() / "quantised" / GetParam());
  const QuantisedWeights weights(directory);
  const StoredMatrix& stored = weights.all().begin()->second;
  std::vector<std::byte> packed(stored.format->bytes());
  stored.fill(packed.data());
  const std::int64_t rows = stored.shape.dim(0), columns = stored.shape.dim(1);
  std::vector<float> all(static_cast<std::size_t>(rows * columns)), some(all.size());
  stored.format->widen(packed.data(), 0, rows, all.data());
  for (const std::int64_t begin : {std::int64_t{1}, rows / 2, rows - 1}) {
    stored.format->widen(packed.data(), begin, rows, some.data());
    EXPECT_TRUE(std::equal(all.begin() + begin * columns, all.end(), some.begin())) << begin;
  }
}

// What is in memory takes no more than the file.
TEST_P(QuantisedGolden, TakesTheBytesOfItsFile) {
  const HfDirectory directory(testing::testdata() / "quantised" / GetParam());
  const QuantisedWeights weights(directory);
  const StoredMatrix& stored = weights.all().begin()->second;
  std::size_t bytes = 0;
  for (const std::string& name : stored.tensors)
    bytes += directory.file_of(name).bytes(name).size();
  // Zeros of GPTQ and AWQ are a byte each here; parts begin on cache lines.
  const std::size_t zeros =
      directory.contains("x.qzeros") ? directory.file_of("x.qzeros").bytes("x.qzeros").size() : 0;
  EXPECT_LE(stored.format->bytes(), bytes + zeros + 3 * 64);
}

INSTANTIATE_TEST_SUITE_P(Methods, QuantisedGolden,
                         ::testing::Values("nf4", "nf4_nested", "nf4_odd", "fp4", "int8", "gptq4",
                                           "gptq4_act", "gptq4_v2", "gptq8", "awq", "fp8",
                                           "fp8_narrow_scales"),
                         [](const auto& info) { return std::string(info.param); });

// A directory of a test's own: tensors of bytes, changed from a golden one.
class QuantisedErrors : public ::testing::Test {
 protected:
  struct Entry {
    Spec spec;
    std::string bytes;
  };

  void copy(const std::string& name) {
    const HfDirectory golden(testing::testdata() / "quantised" / name);
    config_ = golden.config_json();
    tensors_.clear();
    for (const std::string& tensor : golden.tensor_names()) {
      if (tensor == "expected") continue;
      const auto bytes = golden.file_of(tensor).bytes(tensor);
      tensors_[tensor] = {golden.spec(tensor),
                          {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
  }
  std::string error() {
    write_file(directory_ / "config.json", config_);
    std::vector<NamedTensor> written;
    for (auto& [name, entry] : tensors_) {
      written.push_back({name, Tensor(entry.bytes.data(), entry.spec)});
    }
    write_safetensors(directory_ / "model.safetensors", written);
    return error_of_files();
  }
  std::string error_of_files() {
    try {
      const HfDirectory directory(directory_.path());
      const QuantisedWeights weights(directory);
      return "none";
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal);
      return error.what();
    }
  }
  void replace(std::string& text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
  }
  // Of 4 bits: changes the JSON beside a weight.
  std::string error_of_state(const std::string& from, const std::string& to) {
    copy("nf4_nested");
    Entry& state = tensors_.at("x.weight.quant_state.bitsandbytes__nf4");
    replace(state.bytes, from, to);
    state.spec.shape = {static_cast<std::int64_t>(state.bytes.size())};
    return error();
  }
  void cut(const std::string& name, const Spec& spec) {
    tensors_.at(name) = {spec, std::string(spec.bytes(), '\1')};
  }

  testing::TemporaryDirectory directory_{"quantised"};
  std::string config_;
  std::map<std::string, Entry> tensors_;
};

TEST_F(QuantisedErrors, AMissingPartIsNamed) {
  for (const auto& [golden, part] : {std::pair{"nf4", "x.weight.absmax"},
                                     {"nf4", "x.weight"},
                                     {"nf4", "x.weight.quant_map"},
                                     {"nf4_nested", "x.weight.nested_absmax"},
                                     {"nf4_nested", "x.weight.nested_quant_map"},
                                     {"gptq4", "x.scales"},
                                     {"gptq4", "x.qzeros"},
                                     {"awq", "x.scales"},
                                     {"awq", "x.qzeros"}}) {
    copy(golden);
    EXPECT_EQ(error(), "none") << golden;
    tensors_.erase(part);
    EXPECT_THAT(error(), AllOf(HasSubstr(directory_.path().string()), HasSubstr(part)))
        << golden << " " << part;
  }
}

// Files of int8 are not written here: of the header, a name or a shape is changed.
TEST_F(QuantisedErrors, PartsOfInt8AreNamed) {
  const fs::path golden = testing::testdata() / "quantised/int8";
  config_ = read_file(golden / "config.json");
  const std::tuple<const char*, const char*, const char*> kChanges[] = {
      {"\"x.weight\":", "\"x.weighs\":", "\"x.weight\""},
      {"\"I8\",\"shape\":[6,33]", "\"I8\",\"shape\":[33,6]", "\"x.SCB\""},
  };
  for (const auto& [from, to, named] : kChanges) {
    std::string content = read_file(golden / "model.safetensors");
    replace(content, from, to);
    write_file(directory_ / "config.json", config_);
    write_file(directory_ / "model.safetensors", content);
    EXPECT_THAT(error_of_files(), AllOf(HasSubstr(directory_.path().string()), HasSubstr(named)));
  }
}

TEST_F(QuantisedErrors, APartOfAnotherShapeIsNamed) {
  const std::pair<const char*, std::pair<const char*, Spec>> kParts[] = {
      {"nf4", {"x.weight.absmax", {Dtype::kF32, {8}}}},
      {"nf4", {"x.weight", {Dtype::kU8, {287, 1}}}},
      {"nf4", {"x.weight.quant_map", {Dtype::kF32, {15}}}},
      {"nf4_nested", {"x.weight.nested_absmax", {Dtype::kF32, {1}}}},
      {"gptq4", {"x.scales", {Dtype::kF16, {3, 15}}}},
      {"gptq4", {"x.qzeros", {Dtype::kI32, {3, 1}}}},
      {"gptq4", {"x.g_idx", {Dtype::kI32, {47}}}},
      {"gptq4", {"x.qweight", {Dtype::kI32, {96}}}},
      {"awq", {"x.scales", {Dtype::kF16, {1, 24}}}},
      {"awq", {"x.qzeros", {Dtype::kI32, {2, 2}}}},
  };
  for (const auto& [golden, part] : kParts) {
    copy(golden);
    cut(part.first, part.second);
    EXPECT_THAT(error(), AllOf(HasSubstr(directory_.path().string()), HasSubstr("\"x.")))
        << golden << " " << part.first;
  }
}

TEST_F(QuantisedErrors, AStateThatDescribesNoWeightIsRefused) {
  EXPECT_THAT(error_of_state("\"blocksize\": 64", "\"blocksize\": 0"), HasSubstr("4 bits"));
  EXPECT_THAT(error_of_state("\"blocksize\": 64", "\"blocksize\": 6.4"), HasSubstr("4 bits"));
  EXPECT_THAT(error_of_state("\"shape\": [136, 128]", "\"shape\": [136]"), HasSubstr("matrix"));
  EXPECT_THAT(error_of_state("\"shape\": [136, 128]", "\"shape\": [1099511627776, 1099511627776]"),
              HasSubstr("shape"));
  EXPECT_THAT(error_of_state("\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\""),
              HasSubstr("fp4"));
  EXPECT_THAT(error_of_state("\"dtype\": \"float16\"", "\"dtype\": \"int8\""), HasSubstr("int8"));
  EXPECT_THAT(error_of_state("\"nested_dtype\": \"float32\"", "\"nested_dtype\": \"float16\""),
              HasSubstr("float16"));
  EXPECT_THAT(error_of_state("}", ""), HasSubstr("quant_state"));
}

TEST_F(QuantisedErrors, AGroupThatIsNotThereIsNamed) {
  copy("gptq4");
  for (const std::int32_t group : {-1, 3}) {
    std::memcpy(tensors_.at("x.g_idx").bytes.data(), &group, sizeof(group));
    EXPECT_THAT(error(),
                AllOf(HasSubstr("x.g_idx"), HasSubstr(fmt::format("group {} of 3", group))));
  }
}

TEST_F(QuantisedErrors, WhatIsNotReadIsRefusedByName) {
  copy("gptq4");
  for (const char* method : {"fbgemm_fp8", "compressed-tensors", "hqq", "aqlm"}) {
    config_ = fmt::format(R"({{"quantization_config": {{"quant_method": "{}"}}}})", method);
    EXPECT_THAT(error(), AllOf(HasSubstr(fmt::format("\"{}\"", method)), HasSubstr("NF4")));
  }
  const std::tuple<const char*, const char*, const char*> kChanges[] = {
      {"gptq4", "\"bits\": 4", "\"bits\": 3"},
      {"gptq4", "\"bits\": 4", "\"bits\": 2"},
      {"gptq4", "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\""},
      {"gptq4", "\"group_size\": 16", "\"group_size\": 0"},
      {"awq", "\"version\": \"gemm\"", "\"version\": \"gemv\""},
      {"awq", "\"bits\": 4", "\"bits\": 8"},
      {"awq", "\"quant_method\": \"awq\"", "\"quant_method\": 4"},
  };
  for (const auto& [golden, from, to] : kChanges) {
    copy(golden);
    replace(config_, from, to);
    EXPECT_THAT(error(), AllOf(HasSubstr("config.json"), HasSubstr("quantization_config"))) << to;
  }
}

TEST_F(QuantisedErrors, Fp8InOtherFormsIsRefusedByField) {
  copy("gptq4");
  const auto with = [&](const char* fields) {
    config_ = fmt::format(R"({{"quantization_config": {{"quant_method": "fp8"{}}}}})", fields);
    return error();
  };
  EXPECT_THAT(with(""), AllOf(HasSubstr("config.json"), HasSubstr("weight_block_size")));
  EXPECT_THAT(with(R"(, "weight_block_size": [64, 128])"), HasSubstr("[64,128]"));
  EXPECT_THAT(with(R"(, "weight_block_size": [128, 128], "fmt": "e5m2")"), HasSubstr("e5m2"));
}

TEST_F(QuantisedErrors, AConfigThatQuantisesNothingIsRefused) {
  copy("nf4");
  tensors_.clear();
  tensors_["y.weight"] = {{Dtype::kF32, {1}}, std::string(4, '\0')};
  EXPECT_THAT(error(), AllOf(HasSubstr("none of them is"), HasSubstr("config.json")));
}

}  // namespace
}  // namespace atl::ckpt
