// bitsandbytes (Dettmers et al.): NF4 and FP4 in blocks of neighbours, whose largest magnitudes may
// be in 8 bits themselves ("double quantisation", QLoRA, 2023), and int8 with a factor a row.
// The numbers are those of bitsandbytes' own dequantisation on a CPU.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/quantised/methods.h"
#include "atoll/tensor/arena.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kCodes4 = 16;
constexpr std::int64_t kCodes8 = 256;

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

float f32_at(const std::byte* bytes, std::int64_t i) {
  float value = 0;
  std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof(float), sizeof(float));
  return value;
}

// The factors of blocks in 8 bits: code[q] * absmax + offset, for groups of neighbours.
struct Nested {
  std::vector<float> codes;  // kCodes8; empty: the factors are f32
  std::int64_t group = 0;
  float offset = 0;
};

struct FourBitState {
  std::string kind;  // "nf4", "fp4"
  std::int64_t rows = 0, columns = 0, block = 0;
  Dtype dtype = Dtype::kF32;
  std::array<float, kCodes4> codes = {};
  Nested nested;

  std::int64_t elements() const { return rows * columns; }
  std::int64_t blocks() const { return (elements() + block - 1) / block; }
  std::int64_t groups() const {
    return nested.codes.empty() ? 0 : (blocks() + nested.group - 1) / nested.group;
  }
  std::size_t code_bytes() const { return static_cast<std::size_t>((elements() + 1) / 2); }
  std::size_t factor_bytes() const {
    return static_cast<std::size_t>(blocks()) * (nested.codes.empty() ? sizeof(float) : 1);
  }
  std::size_t group_bytes() const { return static_cast<std::size_t>(groups()) * sizeof(float); }
};

// [codes, two an element, the first in the high bits][factors of blocks][factors of these]
class FourBitFormat final : public ops::PackedFormat {
 public:
  explicit FourBitFormat(FourBitState state) : state_(std::move(state)) {}

  std::string_view name() const override { return state_.kind; }
  std::size_t factors_at() const { return align_up(state_.code_bytes()); }
  std::size_t groups_at() const { return factors_at() + align_up(state_.factor_bytes()); }
  std::size_t bytes() const override { return groups_at() + state_.group_bytes(); }

  // Blocks run through the matrix as one row after the other, and may begin within a row.
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    std::int64_t at = begin * state_.columns;
    const std::int64_t last = end * state_.columns;
    while (at < last) {
      const std::int64_t block = at / state_.block;
      const std::int64_t until = std::min((block + 1) * state_.block, last);
      std::array<float, kCodes4> values;
      const float factor = factor_of(packed, block);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = rounded_to(state_.dtype, state_.codes[i] * factor);
      }
      out = widen_codes(packed, at, until, values, out);
      at = until;
    }
  }

 private:
  static float* widen_codes(const std::byte* packed, std::int64_t at, std::int64_t until,
                            const std::array<float, kCodes4>& values, float* out) {
    const auto code = [&](std::int64_t i) { return std::to_integer<unsigned>(packed[i / 2]); };
    if (at % 2 == 1 && at < until) *out++ = values[code(at++) & 15U];
    for (; at + 1 < until; at += 2) {
      const unsigned pair = code(at);
      *out++ = values[pair >> 4];
      *out++ = values[pair & 15U];
    }
    if (at < until) *out++ = values[code(at) >> 4];
    return out;
  }

  float factor_of(const std::byte* packed, std::int64_t block) const {
    const std::byte* factors = packed + factors_at();
    if (state_.nested.codes.empty()) return f32_at(factors, block);
    const auto q = std::to_integer<std::size_t>(factors[block]);
    const float scaled =
        state_.nested.codes[q] * f32_at(packed + groups_at(), block / state_.nested.group);
    return scaled + state_.nested.offset;
  }

  FourBitState state_;
};

Dtype dtype_named(const std::string& name) {
  if (name == "bfloat16" || name == "torch.bfloat16") return Dtype::kBf16;
  if (name == "float16" || name == "torch.float16") return Dtype::kF16;
  if (name == "float32" || name == "torch.float32") return Dtype::kF32;
  throw damaged_error("a quantised weight was of dtype \"{}\"", name);
}

std::int64_t positive(const Json& value) {
  return whole_number(value, 1, std::int64_t{1} << 40);
}

// The state of one weight: JSON in the bytes of a tensor.
FourBitState parse_state(std::string_view text, const std::string& kind,
                         const std::string& origin) {
  FourBitState state;
  try {
    const Json json = parse_json(text, origin, {.max_depth = 4});
    state.kind = json.at("quant_type").get<std::string>();
    if (state.kind != kind) {
      throw damaged_error("{} says \"{}\" and its name {}", origin, state.kind, kind);
    }
    state.block = positive(json.at("blocksize"));
    state.dtype = dtype_named(json.at("dtype").get<std::string>());
    const Json& shape = json.at("shape");
    if (!shape.is_array() || shape.size() != 2) {
      throw damaged_error("{} has shape {}, not that of a matrix", origin, shape.dump());
    }
    state.rows = positive(shape.at(0));
    state.columns = positive(shape.at(1));
    if (json.contains("nested_blocksize")) {
      state.nested.group = positive(json.at("nested_blocksize"));
      state.nested.offset = json.at("nested_offset").get<float>();
      if (dtype_named(json.at("nested_dtype").get<std::string>()) != Dtype::kF32) {
        throw damaged_error("{}: the factors of blocks are of {}, not float32", origin,
                            json.at("nested_dtype").get<std::string>());
      }
    }
  } catch (const Json::exception& error) {
    throw damaged_error("{} does not describe a weight of 4 bits: {}", origin, json_reason(error));
  }
  return state;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

StoredMatrix four_bit(const QuantisedSource& source, const std::string& weight,
                      const std::string& kind) {
  const auto named = [&](const char* part) { return weight + "." + part; };
  const std::string state_name = named("quant_state.bitsandbytes__") + kind;
  const SafetensorsFile& file = source.directory.file_of(state_name);
  FourBitState state =
      parse_state(text_of(file.bytes(state_name)), kind,
                  fmt::format("{}: tensor \"{}\"", file.path().string(), state_name));
  check_shape(source, weight, state.rows, state.columns);
  const std::int64_t codes[] = {kCodes4};
  const std::vector<float> map =
      floats_of(typed_part(source, weight, named("quant_map"), "F32", codes));
  std::copy(map.begin(), map.end(), state.codes.begin());
  StoredMatrix stored;
  stored.tensors = {weight, state_name, named("absmax"), named("quant_map")};
  std::span<const std::byte> groups;
  if (state.nested.group > 0) {
    const std::int64_t nested[] = {kCodes8};
    state.nested.codes =
        floats_of(typed_part(source, weight, named("nested_quant_map"), "F32", nested));
    const std::int64_t count[] = {state.groups()};
    groups = typed_part(source, weight, named("nested_absmax"), "F32", count);
    stored.tensors.push_back(named("nested_quant_map"));
    stored.tensors.push_back(named("nested_absmax"));
  }
  const std::int64_t blocks[] = {state.blocks()};
  const auto factors =
      typed_part(source, weight, named("absmax"), state.nested.group > 0 ? "U8" : "F32", blocks);
  // Whatever dtype bnb_4bit_quant_storage gave it: the bytes are the same.
  const auto packed = part_of(source, weight, weight, state.code_bytes());
  const auto format = std::make_shared<FourBitFormat>(state);
  stored.shape = {state.rows, state.columns};
  stored.dtype = state.dtype;
  stored.format = format;
  stored.fill = [=, layout = format.get()](std::byte* to) {
    std::copy(packed.begin(), packed.end(), to);
    std::copy(factors.begin(), factors.end(), to + layout->factors_at());
    std::copy(groups.begin(), groups.end(), to + layout->groups_at());
  };
  return stored;
}

// [int8, a row after the other][f32 factors of rows], which the format divides by 127.
class RowInt8Format final : public ops::PackedFormat {
 public:
  RowInt8Format(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  std::string_view name() const override { return "int8"; }
  std::size_t factors_at() const { return align_up(static_cast<std::size_t>(rows_ * columns_)); }
  std::size_t bytes() const override {
    return factors_at() + static_cast<std::size_t>(rows_) * sizeof(float);
  }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    constexpr float kOver127 = 0.007874015718698502F;  // as bitsandbytes writes 1 / 127
    for (std::int64_t row = begin; row < end; ++row) {
      const float factor = f32_at(packed + factors_at(), row);
      const auto* values = reinterpret_cast<const std::int8_t*>(packed) + row * columns_;
      for (std::int64_t i = 0; i < columns_; ++i) {
        *out++ = static_cast<float>(values[i]) * factor * kOver127;
      }
    }
  }

 private:
  std::int64_t rows_, columns_;
};

StoredMatrix eight_bit(const QuantisedSource& source, const std::string& module, Dtype dtype) {
  const std::string weight = module + ".weight";
  const std::string factors_name = module + ".SCB";
  const std::string order_name = module + ".weight_format";
  StoredMatrix stored;
  stored.shape = matrix_shape(source, weight, weight);
  stored.dtype = dtype;
  stored.tensors = {weight, factors_name};
  const std::int64_t shape[] = {stored.shape.dim(0), stored.shape.dim(1)};
  check_shape(source, weight, shape[0], shape[1]);
  const auto values = typed_part(source, weight, weight, "I8", shape);
  const auto factors = typed_part(source, weight, factors_name, "F32", std::span(shape).first(1));
  if (source.directory.contains(order_name)) {
    // A number in older files, a text's bytes in none: 0 is "row".
    const auto order = source.directory.file_of(order_name).bytes(order_name);
    if (std::any_of(order.begin(), order.end(), [](std::byte b) { return b != std::byte{0}; })) {
      throw user_error(
          "{}: tensor \"{}\" is not 0: the rows of this int8 weight are in an order for one kind "
          "of GPU; save the model again with bitsandbytes 0.45 or newer",
          source.directory.file_of(order_name).path().string(), order_name);
    }
    stored.tensors.push_back(order_name);
  }
  const auto format = std::make_shared<RowInt8Format>(shape[0], shape[1]);
  stored.format = format;
  stored.fill = [=, layout = format.get()](std::byte* to) {
    std::copy(values.begin(), values.end(), to);
    std::copy(factors.begin(), factors.end(), to + layout->factors_at());
  };
  return stored;
}

}  // namespace

StoredMatrices read_bitsandbytes(const QuantisedSource& source) {
  StoredMatrices found;
  for (const std::string& name : source.directory.tensor_names()) {
    for (const char* kind : {"nf4", "fp4"}) {
      const std::string suffix = fmt::format(".quant_state.bitsandbytes__{}", kind);
      if (!name.ends_with(suffix)) continue;
      const std::string weight = name.substr(0, name.size() - suffix.size());
      found.emplace(weight, four_bit(source, weight, kind));
    }
    constexpr std::string_view kFactors = ".SCB";
    if (!name.ends_with(kFactors)) continue;
    const std::string module = name.substr(0, name.size() - kFactors.size());
    found.emplace(module + ".weight", eight_bit(source, module, Dtype::kF16));
  }
  return found;
}

}  // namespace atl::ckpt
