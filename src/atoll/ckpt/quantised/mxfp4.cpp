// gpt-oss's experts in MXFP4 (Open Compute Project 2023, "OCP Microscaling Formats", section 5):
// "<stack>_blocks", u8 (experts, out, in / 32, 16), has 32 numbers of 4 bits in each block, the
// lower half of a byte first, and "<stack>_scales", u8 (experts, out, in / 32), has a power of two
// for each block. Rows of gate and up alternate.

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/ckpt/hf/stacked_experts.h"
#include "atoll/ckpt/quantised/methods.h"

namespace atl::ckpt {

namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::int64_t kBlockElements = 32;
constexpr std::size_t kBlockBytes = kBlockElements / 2;

// E2M1: a sign, two bits of exponent and one of mantissa.
constexpr float kNumbers[] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                              -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// Blocks of a scale's byte and the numbers' 16.
class Mxfp4Format final : public ops::PackedFormat {
 public:
  Mxfp4Format(std::int64_t rows, std::int64_t columns)
      : blocks_(columns / kBlockElements), rows_(rows) {}

  std::string_view name() const override { return "mxfp4"; }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(rows_ * blocks_) * (1 + kBlockBytes);
  }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    constexpr int kBias = 127;
    for (std::int64_t block = begin * blocks_; block < end * blocks_; ++block) {
      const std::byte* at = packed + static_cast<std::size_t>(block) * (1 + kBlockBytes);
      const float scale = std::ldexp(1.0F, std::to_integer<int>(at[0]) - kBias);
      for (std::size_t i = 1; i <= kBlockBytes; ++i) {
        const auto both = std::to_integer<unsigned>(at[i]);
        *out++ = kNumbers[both % 16] * scale;
        *out++ = kNumbers[both / 16] * scale;
      }
    }
  }

 private:
  std::int64_t blocks_, rows_;
};

Spec spec_of(const QuantisedSource& source, const std::string& stack, const std::string& name) {
  if (!source.directory.contains(name)) {
    throw damaged_error("{}: {} is quantised, and there is no tensor {}", source.origin, stack,
                        name);
  }
  return source.directory.spec(name);
}

void add_stack(const QuantisedSource& source, const std::string& stack, StoredMatrices& found) {
  const std::string blocks_name = stack + std::string(kBlocks), scales_name = stack + "_scales";
  const Spec blocks = spec_of(source, stack, blocks_name);
  const Spec scales = spec_of(source, stack, scales_name);
  const auto where = stacked_expert(stacked_name(stack, 0, 0));
  const bool fits =
      blocks.dtype == Dtype::kU8 && scales.dtype == Dtype::kU8 && blocks.shape.rank() == 4 &&
      blocks.shape.dim(3) == kBlockBytes &&
      scales.shape == Shape({blocks.shape.dim(0), blocks.shape.dim(1), blocks.shape.dim(2)}) &&
      blocks.shape.num_elements() > 0 && blocks.shape.dim(1) % where->num_parts == 0;
  if (!fits) {
    throw damaged_error("{}: {} is {} and {} is {}, which are no experts in MXFP4", source.origin,
                        blocks_name, blocks.to_string(), scales_name, scales.to_string());
  }
  const std::int64_t parts = where->num_parts, rows = blocks.shape.dim(1) / parts;
  const std::int64_t per_row = blocks.shape.dim(2);
  check_shape(source, stack, blocks.shape.dim(0) * blocks.shape.dim(1), per_row * kBlockElements);
  const auto format = std::make_shared<Mxfp4Format>(rows, per_row * kBlockElements);
  const std::byte* numbers = source.directory.file_of(blocks_name).bytes(blocks_name).data();
  const std::byte* powers = source.directory.file_of(scales_name).bytes(scales_name).data();
  for (std::int64_t expert = 0; expert < blocks.shape.dim(0); ++expert) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto fill = [=](std::byte* to) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t first = ((expert * rows + row) * parts + part) * per_row;
          for (std::int64_t block = first; block < first + per_row; ++block) {
            *to++ = powers[block];
            to = std::copy_n(numbers + static_cast<std::size_t>(block) * kBlockBytes, kBlockBytes,
                             to);
          }
        }
      };
      found.emplace(stacked_name(stack, expert, part),
                    StoredMatrix{{rows, per_row * kBlockElements},
                                 Dtype::kBf16,
                                 format,
                                 {blocks_name, scales_name},
                                 fill});
    }
  }
}

}  // namespace

StoredMatrices read_mxfp4(const QuantisedSource& source) {
  StoredMatrices found;
  for (const std::string& name : source.directory.tensor_names()) {
    if (!name.ends_with(kBlocks)) continue;
    const std::string stack = name.substr(0, name.size() - kBlocks.size());
    if (!stack.ends_with(".experts.gate_up_proj") && !stack.ends_with(".experts.down_proj")) {
      throw user_error(
          "{}: {} is in MXFP4, which atoll reads of gpt-oss's experts alone; give the model that "
          "was quantised, or dequantise it: transformers' model.dequantize() and "
          "save_pretrained()",
          source.origin, name);
    }
    add_stack(source, stack, found);
  }
  return found;
}

}  // namespace atl::ckpt
