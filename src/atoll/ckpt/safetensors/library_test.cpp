#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/ckpt/safetensors/writer.h"

// The other half of tools/golden/safetensors_oracle.py, which says how to run both.

namespace atl::ckpt {
namespace {

// Element i of every tensor is i - 3, in its dtype.
std::vector<std::byte> ramp(const Spec& spec) {
  std::vector<std::byte> bytes(spec.bytes());
  for (std::int64_t i = 0; i < spec.shape.num_elements(); ++i) {
    const std::int64_t value = i - 3;
    const auto number = static_cast<float>(value);
    std::byte* at = bytes.data() + i * static_cast<std::int64_t>(dtype_size(spec.dtype));
    if (converts_to_f32(spec.dtype)) {
      convert_from_f32(std::span(&number, 1), spec.dtype, {at, dtype_size(spec.dtype)});
    } else {  // little-endian integers: the low bytes
      std::memcpy(at, &value, dtype_size(spec.dtype));
    }
  }
  return bytes;
}

TEST(SafetensorsLibrary, AgreesWithUs) {
  const char* directory = std::getenv("ATOLL_SAFETENSORS_GOLDEN");
  if (directory == nullptr) GTEST_SKIP() << "run tools/golden/safetensors_oracle.py";
  const std::vector<std::pair<std::string, Spec>> specs = {
      {"f32", {Dtype::kF32, {3, 5}}},        {"f64", {Dtype::kF64, {2, 1, 3}}},
      {"f16", {Dtype::kF16, {7}}},           {"i32", {Dtype::kI32, {2, 2, 2, 2}}},
      {"i64", {Dtype::kI64, {4}}},           {"u8", {Dtype::kU8, {5}}},
      {"scalar", {Dtype::kF32, {}}},         {"empty", {Dtype::kF32, {0, 4}}},
      {"ünïcödé.weight", {Dtype::kF32, {2}}}};
  const std::filesystem::path root(directory);
  const SafetensorsFile theirs(root / "theirs.safetensors");
  ASSERT_EQ(theirs.entries().size(), specs.size());
  std::vector<TensorSource> sources;
  for (const auto& [name, spec] : specs) {
    EXPECT_EQ(theirs.spec(name), spec) << name;
    const std::vector<std::byte> bytes = ramp(spec);
    const std::span<const std::byte> read = theirs.bytes(name);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end())) << name;
    sources.push_back(
        {name, spec, [bytes](const ByteSink& sink) { sink(bytes.data(), bytes.size()); }});
  }
  write_safetensors(root / "ours.safetensors", sources, theirs.metadata());
}

}  // namespace
}  // namespace atl::ckpt
