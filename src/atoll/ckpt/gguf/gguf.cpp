#include "atoll/ckpt/gguf/gguf.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/check.h"

namespace atl::ckpt {

namespace {

template <typename T, typename Out>
void append(std::span<const std::byte> bytes, std::vector<Out>& out) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    out.push_back(static_cast<Out>(value));
  }
}

// The whole numbers of a value, if they are; one of 64 bits without a sign must fit with one.
bool read_integers(const GgufValue& value, std::vector<std::int64_t>& out) {
  switch (value.kind) {
    case GgufKind::kU8:
      append<std::uint8_t>(value.bytes, out);
      return true;
    case GgufKind::kI8:
      append<std::int8_t>(value.bytes, out);
      return true;
    case GgufKind::kU16:
      append<std::uint16_t>(value.bytes, out);
      return true;
    case GgufKind::kI16:
      append<std::int16_t>(value.bytes, out);
      return true;
    case GgufKind::kU32:
      append<std::uint32_t>(value.bytes, out);
      return true;
    case GgufKind::kI32:
      append<std::int32_t>(value.bytes, out);
      return true;
    case GgufKind::kI64:
      append<std::int64_t>(value.bytes, out);
      return true;
    case GgufKind::kU64:
      append<std::uint64_t>(value.bytes, out);
      return std::none_of(out.begin(), out.end(), [](std::int64_t n) { return n < 0; });
    default:
      return false;
  }
}

bool read_numbers(const GgufValue& value, std::vector<double>& out) {
  if (value.kind == GgufKind::kF32) {
    append<float>(value.bytes, out);
  } else if (value.kind == GgufKind::kF64) {
    append<double>(value.bytes, out);
  } else {
    return false;
  }
  return true;
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_gguf(file_.bytes(), path.string())) {}

const GgufTensor* GgufFile::find(std::string_view name) const {
  for (const GgufTensor& tensor : header_.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

FloatRows GgufFile::rows(const GgufTensor& tensor) const {
  const std::span<const std::byte> bytes =
      file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  const std::size_t row_bytes = ggml_row_bytes(tensor.type, tensor.shape.back());
  return {tensor.name, tensor.shape, [bytes, row_bytes, type = tensor.type]() -> RowReader {
            return [bytes, row_bytes, type](std::int64_t row, std::span<float> out) {
              dequantize(type, bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes),
                         out);
            };
          }};
}

const GgufValue& GgufFile::get(std::string_view key) const {
  const auto found = header_.metadata.find(key);
  if (found == header_.metadata.end()) {
    throw user_error("{} does not say \"{}\", without which it cannot be read as a model",
                     path_.string(), key);
  }
  return found->second;
}

const GgufValue& GgufFile::scalar(std::string_view key) const {
  const GgufValue& value = get(key);
  if (value.is_array) wrong(key, "a single value");
  return value;
}

void GgufFile::wrong(std::string_view key, std::string_view expected) const {
  throw damaged_error("{}: \"{}\" is not {}", path_.string(), key, expected);
}

std::int64_t GgufFile::integer(std::string_view key) const {
  std::vector<std::int64_t> values;
  if (!read_integers(scalar(key), values)) wrong(key, "a whole number");
  return values.front();
}

std::int64_t GgufFile::integer(std::string_view key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufFile::number(std::string_view key) const {
  std::vector<double> values;
  if (!read_numbers(scalar(key), values)) wrong(key, "a number");
  return values.front();
}

double GgufFile::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufFile::boolean(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const GgufValue& value = scalar(key);
  if (value.kind != GgufKind::kBool) wrong(key, "true or false");
  return value.bytes.front() != std::byte{0};
}

std::string GgufFile::text(std::string_view key) const {
  const GgufValue& value = scalar(key);
  if (value.kind != GgufKind::kString) wrong(key, "a string");
  return std::string(value.strings.front());
}

std::string GgufFile::text(std::string_view key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  const GgufValue& value = get(key);
  if (!value.is_array || value.kind != GgufKind::kString) wrong(key, "an array of strings");
  return value.strings;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  std::vector<std::int64_t> values;
  if (!get(key).is_array || !read_integers(get(key), values)) {
    wrong(key, "an array of whole numbers");
  }
  return values;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  std::vector<double> values;
  if (!get(key).is_array || !read_numbers(get(key), values)) wrong(key, "an array of numbers");
  return values;
}

}  // namespace atl::ckpt
