#include "atoll/ops/packed/grouped.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kExperts = 4, kRows = 24, kColumns = 40, kTokens = 61;

// Eighths in a byte each.
class Eighths final : public PackedFormat {
 public:
  std::string_view name() const override { return "eighths"; }
  std::size_t bytes() const override { return kRows * kColumns; }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    for (std::int64_t i = begin * kColumns; i < end * kColumns; ++i) {
      *out++ = static_cast<float>(static_cast<std::int8_t>(packed[i])) / 8;
    }
  }
};

struct Stack {
  Stack() : bytes(static_cast<std::size_t>(kExperts * kRows * kColumns)) {
    const auto format = std::make_shared<Eighths>();
    packed.shape = {kExperts * kRows, kColumns};
    for (std::int64_t e = 0; e < kExperts; ++e) packed.append(kRows, format);
    bytes.resize(packed.num_bytes());
    const auto codes = test::random_tokens({std::ssize(bytes)}, 256, 5);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(codes.values[i]);
    }
    packed.bytes = Tensor(bytes.data(), {Dtype::kU8, {std::ssize(bytes)}});
  }
  std::vector<std::byte> bytes;
  PackedMatrix packed;
};

// Two experts with a few rows and with many, one with none, and rows that nobody has.
OwnedTensor<std::int32_t> offsets() {
  OwnedTensor<std::int32_t> begins({kExperts + 1});
  begins.values = {0, 2, 2, 50, 57};
  return begins;
}

template <typename T>
void expect_bits_of_the_widened(Transpose transpose) {
  TestRun run(2, 1 << 20);
  Stack stack;
  OwnedTensor<float> wide(stack.packed.shape);
  widen_packed(run, stack.packed, 0, stack.packed.shape.dim(0), wide);
  OwnedTensor<T> weights(stack.packed.shape);
  for (std::int64_t i = 0; i < wide.size(); ++i) weights[i] = test::number<T>(wide[i]);
  auto begins = offsets();
  const bool is_nt = transpose == Transpose::kNT;
  auto a = random_tensor<T>({kTokens, is_nt ? kColumns : kRows}, 3);
  OwnedTensor<T> expected({kTokens, is_nt ? kRows : kColumns});
  auto c = random_tensor<T>({kTokens, is_nt ? kRows : kColumns}, 4);
  grouped_matmul(run, transpose, a, weights, begins, expected);
  grouped_matmul_packed(run, transpose, a, stack.packed, begins, c);
  EXPECT_EQ(std::memcmp(c.values.data(), expected.values.data(), c.values.size() * sizeof(T)), 0);
}

TEST(GroupedMatmulPacked, HaveTheBitsOfTheWidened) {
  for (const Transpose transpose : {Transpose::kNT, Transpose::kNN}) {
    expect_bits_of_the_widened<float>(transpose);
    expect_bits_of_the_widened<Bf16>(transpose);
  }
}

}  // namespace
}  // namespace atl::ops
