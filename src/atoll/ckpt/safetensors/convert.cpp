#include "atoll/ckpt/safetensors/convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "atoll/base/check.h"

namespace atl::ckpt {

namespace {

// memcpy because tensors in files of others are not always aligned.
template <typename T, typename Fn>
void load_each(std::span<const std::byte> bytes, std::span<float> out, Fn&& fn) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = fn(value);
  }
}

void check_below(std::span<const float> values, float first_beyond, std::string_view largest,
                 std::string_view tensor) {
  for (const float value : values) {
    if (std::isfinite(value) && std::abs(value) >= first_beyond) {
      throw user_error("tensor \"{}\" holds {}, beyond the largest {}", tensor, value, largest);
    }
  }
}

template <typename T, typename Fn>
void store_each(std::span<const float> values, std::span<std::byte> out, Fn&& fn) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = fn(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

bool converts_to_f32(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF64 || dtype == Dtype::kBf16 ||
         dtype == Dtype::kF16;
}

void convert_to_f32(Dtype dtype, std::span<const std::byte> bytes, std::span<float> out) {
  ATOLL_CHECK(converts_to_f32(dtype), "{}", dtype_name(dtype));
  ATOLL_CHECK_EQ(bytes.size(), out.size() * dtype_size(dtype));
  if (dtype == Dtype::kF32) {
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  } else if (dtype == Dtype::kF64) {
    load_each<double>(bytes, out, [](double value) { return static_cast<float>(value); });
  } else if (dtype == Dtype::kBf16) {
    load_each<std::uint16_t>(bytes, out, bf16_to_f32);
  } else {
    load_each<std::uint16_t>(bytes, out, f16_to_f32);
  }
}

void convert_from_f32(std::span<const float> values, Dtype dtype, std::span<std::byte> out) {
  ATOLL_CHECK(converts_to_f32(dtype), "{}", dtype_name(dtype));
  ATOLL_CHECK_EQ(out.size(), values.size() * dtype_size(dtype));
  if (dtype == Dtype::kF32) {
    if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  } else if (dtype == Dtype::kF64) {
    store_each<double>(values, out, [](float value) { return static_cast<double>(value); });
  } else if (dtype == Dtype::kBf16) {
    store_each<std::uint16_t>(values, out, f32_to_bf16);
  } else {
    store_each<std::uint16_t>(values, out, f32_to_f16);
  }
}

void convert_floats(Dtype from, std::span<const std::byte> in, Dtype to, std::span<std::byte> out,
                    std::string_view tensor) {
  const std::size_t count = in.size() / dtype_size(from);
  ATOLL_CHECK_EQ(in.size(), count * dtype_size(from));
  ATOLL_CHECK_EQ(out.size(), count * dtype_size(to));
  if (from == to) {
    if (count > 0) std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  std::array<float, 1024> piece;
  for (std::size_t begin = 0; begin < count; begin += piece.size()) {
    const std::span<float> values(piece.data(), std::min(piece.size(), count - begin));
    const auto piece_in = in.subspan(begin * dtype_size(from), values.size() * dtype_size(from));
    check_fits_f32(from, piece_in, tensor);
    convert_to_f32(from, piece_in, values);
    check_fits(values, to, tensor);
    convert_from_f32(values, to,
                     out.subspan(begin * dtype_size(to), values.size() * dtype_size(to)));
  }
}

void check_fits(std::span<const float> values, Dtype dtype, std::string_view tensor) {
  if (dtype == Dtype::kF16) {
    check_below(values, 65520.0F, "f16 (65504); choose bf16 or f32", tensor);
  } else if (dtype == Dtype::kBf16) {
    // Halfway between the largest bf16, 0x1.FEp127, and what would be the next one.
    check_below(values, 0x1.FFp127F, "bf16 (3.3895e38); choose f32", tensor);
  }
}

void check_fits_f32(Dtype from, std::span<const std::byte> bytes, std::string_view tensor) {
  if (from != Dtype::kF64) return;
  // Halfway between the largest f32 and what would be the next one.
  constexpr double kFirstBeyond = 0x1.FFFFFFp127;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(double)) {
    double value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    if (std::isfinite(value) && std::abs(value) >= kFirstBeyond) {
      throw user_error("tensor \"{}\" holds {}, beyond the largest f32 (3.4028e38)", tensor, value);
    }
  }
}

}  // namespace atl::ckpt
