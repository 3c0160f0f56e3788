#include "atoll/ckpt/gguf/gguf.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"

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

// Of a split model's file its place and the number of files, as its name says: from 1.
struct SplitName {
  std::string prefix;  ///< "model"
  std::size_t number = 0;
  std::size_t count = 0;
};

std::optional<SplitName> split_name(const std::filesystem::path& path) {
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr std::size_t kDigits = 5;
  const std::string name = path.filename().string();
  const std::size_t tail = 1 + 2 * kDigits + kOf.size() + kEnd.size();
  if (name.size() <= tail || !name.ends_with(kEnd)) return std::nullopt;
  const std::string_view end = std::string_view(name).substr(name.size() - tail);
  const std::string_view number = end.substr(1, kDigits);
  const std::string_view count = end.substr(1 + kDigits + kOf.size(), kDigits);
  const auto is_number = [](std::string_view text) {
    return text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (end.front() != '-' || end.substr(1 + kDigits, kOf.size()) != kOf || !is_number(number) ||
      !is_number(count)) {
    return std::nullopt;
  }
  return SplitName{name.substr(0, name.size() - tail), std::stoul(std::string(number)),
                   std::stoul(std::string(count))};
}

std::filesystem::path split_path(const std::filesystem::path& path, const SplitName& name,
                                 std::size_t number) {
  return path.parent_path() /
         fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path) {
  files_.emplace_back(path);
  header_ = parse_gguf(files_.front().bytes(), path.string());
  constexpr const char* kCount = "split.count";
  const std::int64_t count = integer(kCount, 0);
  if (count <= 1) return;
  const auto name = split_name(path);
  if (!name || name->count != static_cast<std::size_t>(count)) {
    throw user_error(
        "{} is one of {} files of a model, by its split.count, and they are found by names such as "
        "model-00001-of-{:05}.gguf; give all of them such names",
        path.string(), count, count);
  }
  const std::int64_t tensors = integer("split.tensors.count", -1);
  header_ = {};
  files_.clear();
  path_ = split_path(path, *name, 1);
  for (std::size_t i = 0; i < name->count; ++i) {
    add_split(split_path(path, *name, i + 1), i, name->count);
  }
  const auto found = static_cast<std::int64_t>(header_.tensors.size());
  if (tensors >= 0 && tensors != found) {
    throw damaged_error("{} and the files beside it have {} tensors, and split.tensors.count is {}",
                        path_.string(), found, tensors);
  }
}

void GgufFile::add_split(const std::filesystem::path& path, std::size_t index, std::size_t count) {
  if (!path_exists(path)) {
    throw user_error("there is no {}, one of the {} files of this model; get it, too",
                     path.string(), count);
  }
  files_.emplace_back(path);
  GgufHeader header = parse_gguf(files_.back().bytes(), path.string());
  // A file of another model may have the same name.
  std::vector<std::int64_t> number;
  const auto place = header.metadata.find("split.no");
  const bool has_place = place != header.metadata.end() && !place->second.is_array &&
                         read_integers(place->second, number) &&
                         number.front() == static_cast<std::int64_t>(index);
  if (!has_place) {
    throw user_error(
        "{}: its split.no is not {}, so it is another file of the model than its name "
        "says",
        path.string(), index);
  }
  for (GgufTensor& tensor : header.tensors) {
    if (find(tensor.name) != nullptr) {
      throw user_error("{}: the tensor {} is in another file of this model, too", path.string(),
                       tensor.name);
    }
    tensor.file = index;
  }
  header_.tensors.insert(header_.tensors.end(), std::make_move_iterator(header.tensors.begin()),
                         std::make_move_iterator(header.tensors.end()));
  if (index == 0) {
    header_.version = header.version;
    header_.metadata = std::move(header.metadata);
  }
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  for (const GgufTensor& tensor : header_.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  return files_[tensor.file].bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

FloatRows GgufFile::rows(const GgufTensor& tensor) const {
  const std::span<const std::byte> bytes = this->bytes(tensor);
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
