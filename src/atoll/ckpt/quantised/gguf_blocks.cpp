// Blocks of GGUF's types in a Hugging Face directory, as `atoll import --dtype stored` writes them.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/gguf/ggml_types.h"
#include "atoll/ckpt/quantised/methods.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::json;

// Rows of whole blocks, as GGUF files have them.
class GgmlFormat final : public ops::PackedFormat {
 public:
  GgmlFormat(GgmlType type, std::int64_t rows, std::int64_t columns)
      : type_(type), rows_(rows), columns_(columns), row_bytes_(ggml_row_bytes(type, columns)) {}

  std::string_view name() const override { return ggml_layout(type_).name; }
  std::size_t bytes() const override { return static_cast<std::size_t>(rows_) * row_bytes_; }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    for (std::int64_t row = begin; row < end; ++row, out += columns_) {
      dequantize(type_, {packed + static_cast<std::size_t>(row) * row_bytes_, row_bytes_},
                 {out, static_cast<std::size_t>(columns_)});
    }
  }

 private:
  GgmlType type_;
  std::int64_t rows_, columns_;
  std::size_t row_bytes_;
};

std::optional<GgmlType> ggml_named(std::string_view name) {
  for (std::uint32_t number = 0; number < 64; ++number) {
    const std::optional<GgmlType> type = ggml_type(number);
    if (type && !plain_dtype(*type) && ggml_layout(*type).name == name) return type;
  }
  return std::nullopt;
}

}  // namespace

StoredMatrices read_gguf_blocks(const QuantisedSource& source) {
  StoredMatrices found;
  try {
    for (const auto& [name, entry] : source.config.at("tensors").items()) {
      const auto type_name = entry.at("type").get<std::string>();
      const std::optional<GgmlType> type = ggml_named(type_name);
      if (!type) {
        throw user_error("{}: \"quantization_config\": {} is of type {}, which atoll does not read",
                         source.origin, name, type_name);
      }
      const std::int64_t rows = whole_number(entry.at("shape").at(0));
      const std::int64_t columns = whole_number(entry.at("shape").at(1));
      check_shape(source, name, rows, columns);
      if (columns % ggml_layout(*type).block_elements != 0) {
        throw damaged_error("{}: {} has rows of {}, not whole blocks of {}", source.origin, name,
                            columns, type_name);
      }
      const auto format = std::make_shared<GgmlFormat>(*type, rows, columns);
      const auto bytes = part_of(source, name, name, format->bytes());
      found.emplace(
          name, StoredMatrix{{rows, columns}, Dtype::kF32, format, {name}, [bytes](std::byte* to) {
                               std::copy(bytes.begin(), bytes.end(), to);
                             }});
    }
  } catch (const Json::exception& error) {
    throw damaged_error("{}: \"quantization_config\" does not list tensors of GGUF's types: {}",
                        source.origin, json_reason(error));
  }
  return found;
}

}  // namespace atl::ckpt
