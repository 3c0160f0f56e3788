#include "atoll/data/parquet/encodings.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace atl::data {

namespace {

[[noreturn]] void fail_short() {
  throw std::runtime_error("a page ends within its values");
}

bool is_text(ParquetType type) {
  return type == ParquetType::kByteArray || type == ParquetType::kFixed ||
         type == ParquetType::kInt96;
}

// Bytes of a value of a fixed length.
std::size_t width_of(const ParquetElement& column) {
  switch (column.type) {
    case ParquetType::kInt32:
    case ParquetType::kFloat:
      return 4;
    case ParquetType::kInt64:
    case ParquetType::kDouble:
      return 8;
    case ParquetType::kInt96:
      return 12;
    case ParquetType::kFixed:
      if (column.type_length <= 0) throw std::runtime_error("a column has values of no length");
      return static_cast<std::size_t>(column.type_length);
    case ParquetType::kBoolean:
    case ParquetType::kByteArray:
      break;
  }
  throw std::runtime_error("a page has an encoding that its type does not have");
}

// 4 bytes are sign-extended, which keeps the bits of a float.
std::int64_t number_of(const char* bytes, std::size_t width) {
  if (width == 4) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  std::int64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

class PlainReader final : public ValueReader {
 public:
  PlainReader(std::string_view bytes, const ParquetElement& column)
      : bytes_(bytes), width_(width_of(column)), is_text_(is_text(column.type)) {}
  void next(ParquetValue& value) override {
    if (bytes_.size() < width_) fail_short();
    if (is_text_) {
      value.text = bytes_.substr(0, width_);
    } else {
      value.number = number_of(bytes_.data(), width_);
    }
    bytes_.remove_prefix(width_);
  }

 private:
  std::string_view bytes_;
  std::size_t width_;
  bool is_text_;
};

class PlainBytesReader final : public ValueReader {
 public:
  explicit PlainBytesReader(std::string_view bytes) : bytes_(bytes) {}
  void next(ParquetValue& value) override {
    std::uint32_t size = 0;
    if (bytes_.size() < sizeof(size)) fail_short();
    std::memcpy(&size, bytes_.data(), sizeof(size));
    bytes_.remove_prefix(sizeof(size));
    if (bytes_.size() < size) fail_short();
    value.text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
  }

 private:
  std::string_view bytes_;
};

class PlainBooleanReader final : public ValueReader {
 public:
  explicit PlainBooleanReader(std::string_view bytes) : bytes_(bytes) {}
  void next(ParquetValue& value) override {
    if (at_ / 8 >= bytes_.size()) fail_short();
    value.number = (static_cast<unsigned char>(bytes_[at_ / 8]) >> (at_ % 8)) & 1;
    ++at_;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

class RleBooleanReader final : public ValueReader {
 public:
  explicit RleBooleanReader(std::string_view bytes) {
    std::uint32_t size = 0;
    if (bytes.size() < sizeof(size)) fail_short();
    std::memcpy(&size, bytes.data(), sizeof(size));
    runs_ = RleReader(bytes.substr(sizeof(size), size), 1);
  }
  void next(ParquetValue& value) override { value.number = runs_.next(); }

 private:
  RleReader runs_;
};

class DictionaryReader final : public ValueReader {
 public:
  DictionaryReader(std::string_view bytes, const std::vector<ParquetValue>& dictionary)
      : dictionary_(dictionary) {
    const int bits = static_cast<unsigned char>(bytes.front());
    if (bits > 32)
      throw std::runtime_error("a page has places in a dictionary of more than 32 bits");
    runs_ = RleReader(bytes.substr(1), bits);
  }
  void next(ParquetValue& value) override {
    const std::uint32_t at = runs_.next();
    if (at >= dictionary_.size()) {
      throw std::runtime_error(
          fmt::format("a page names value {} of a dictionary of {}", at, dictionary_.size()));
    }
    value = dictionary_[at];
  }

 private:
  const std::vector<ParquetValue>& dictionary_;
  RleReader runs_;
};

class DeltaNumberReader final : public ValueReader {
 public:
  DeltaNumberReader(std::string_view bytes, bool is_32) : numbers_(bytes), is_32_(is_32) {}
  void next(ParquetValue& value) override {
    const std::int64_t number = numbers_.next();
    value.number = is_32_ ? static_cast<std::int32_t>(number) : number;
  }

 private:
  DeltaReader numbers_;
  bool is_32_;
};

class DeltaLengthReader final : public ValueReader {
 public:
  explicit DeltaLengthReader(std::string_view bytes)
      : lengths_(bytes), bytes_(bytes.substr(DeltaReader::encoded_bytes(bytes))) {}
  void next(ParquetValue& value) override {
    const std::int64_t size = lengths_.next();
    if (size < 0 || static_cast<std::uint64_t>(size) > bytes_.size()) fail_short();
    value.text = bytes_.substr(0, static_cast<std::size_t>(size));
    bytes_.remove_prefix(static_cast<std::size_t>(size));
  }

 private:
  DeltaReader lengths_;
  std::string_view bytes_;
};

// Each text begins as the one before it does.
class DeltaBytesReader final : public ValueReader {
 public:
  explicit DeltaBytesReader(std::string_view bytes)
      : prefixes_(bytes), rest_(bytes.substr(DeltaReader::encoded_bytes(bytes))) {}
  void next(ParquetValue& value) override {
    const std::int64_t prefix = prefixes_.next();
    rest_.next(value);
    if (prefix < 0 || static_cast<std::uint64_t>(prefix) > text_.size()) {
      throw std::runtime_error("a page of DELTA_BYTE_ARRAY takes more of a text than there is");
    }
    text_.resize(static_cast<std::size_t>(prefix));
    text_ += value.text;
    value.text = text_;
  }

 private:
  DeltaReader prefixes_;
  DeltaLengthReader rest_;
  std::string text_;
};

// The first bytes of all values, then the second ones, and so on.
class SplitReader final : public ValueReader {
 public:
  SplitReader(std::string_view bytes, const ParquetElement& column)
      : bytes_(bytes),
        is_text_(is_text(column.type)),
        num_values_(bytes.size() / width_of(column)),
        value_(width_of(column), '\0') {
    if (bytes.size() % value_.size() != 0) fail_short();
  }
  void next(ParquetValue& value) override {
    if (at_ >= num_values_) fail_short();
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * num_values_ + at_];
    ++at_;
    if (is_text_) {
      value.text = value_;
    } else {
      value.number = number_of(value_.data(), value_.size());
    }
  }

 private:
  std::string_view bytes_;
  bool is_text_;
  std::size_t num_values_;
  std::string value_;
  std::size_t at_ = 0;
};

std::string encoding_name(std::int32_t encoding) {
  constexpr std::array<const char*, 10> kNames = {
      "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
      "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
      "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  if (encoding < 0 || static_cast<std::size_t>(encoding) >= kNames.size()) {
    return std::to_string(encoding);
  }
  return kNames[static_cast<std::size_t>(encoding)];
}

}  // namespace

std::unique_ptr<ValueReader> make_value_reader(std::int32_t encoding, const ParquetElement& column,
                                               std::string_view bytes,
                                               const std::vector<ParquetValue>* dictionary) {
  const ParquetType type = column.type;
  const bool is_whole = type == ParquetType::kInt32 || type == ParquetType::kInt64;
  const bool is_bytes = type == ParquetType::kByteArray;
  // A page of nulls may have no bytes, not even of a header.
  if (bytes.empty()) return std::make_unique<PlainBytesReader>(bytes);
  switch (encoding) {
    case 0:
      if (is_bytes) return std::make_unique<PlainBytesReader>(bytes);
      if (type == ParquetType::kBoolean) return std::make_unique<PlainBooleanReader>(bytes);
      return std::make_unique<PlainReader>(bytes, column);
    case 2:
    case 8:
      if (dictionary == nullptr)
        throw std::runtime_error("a page needs a dictionary, and none came");
      return std::make_unique<DictionaryReader>(bytes, *dictionary);
    case 3:
      if (type != ParquetType::kBoolean) break;
      return std::make_unique<RleBooleanReader>(bytes);
    case 5:
      if (!is_whole) break;
      return std::make_unique<DeltaNumberReader>(bytes, type == ParquetType::kInt32);
    case 6:
      if (!is_bytes) break;
      return std::make_unique<DeltaLengthReader>(bytes);
    case 7:
      if (!is_bytes && type != ParquetType::kFixed) break;
      return std::make_unique<DeltaBytesReader>(bytes);
    case 9:
      return std::make_unique<SplitReader>(bytes, column);
    default:
      break;
  }
  throw std::runtime_error(fmt::format("a page has the encoding {}, which is not read for its type",
                                       encoding_name(encoding)));
}

}  // namespace atl::data
