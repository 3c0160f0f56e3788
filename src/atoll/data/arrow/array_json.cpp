#include "atoll/data/arrow/array_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "atoll/data/bytes/text_window.h"
#include "atoll/data/columns/json_writer.h"

namespace atl::data {

namespace {

template <typename Number>
Number number_at(std::string_view buffer, std::int64_t at) {
  const std::size_t place = static_cast<std::size_t>(at) * sizeof(Number);
  if (at < 0 || place > buffer.size() || buffer.size() - place < sizeof(Number)) {
    throw std::runtime_error("a buffer is shorter than its column");
  }
  Number value;
  std::memcpy(&value, buffer.data() + place, sizeof(value));
  return value;
}

std::int64_t integer_at(std::string_view buffer, std::int64_t at, int width, bool is_signed) {
  switch (width) {
    case 1:
      return is_signed ? std::int64_t{number_at<std::int8_t>(buffer, at)}
                       : std::int64_t{number_at<std::uint8_t>(buffer, at)};
    case 2:
      return is_signed ? std::int64_t{number_at<std::int16_t>(buffer, at)}
                       : std::int64_t{number_at<std::uint16_t>(buffer, at)};
    case 4:
      return is_signed ? std::int64_t{number_at<std::int32_t>(buffer, at)}
                       : std::int64_t{number_at<std::uint32_t>(buffer, at)};
    default:
      return number_at<std::int64_t>(buffer, at);
  }
}

// Where a value begins and ends, of offsets of so many bytes.
std::pair<std::int64_t, std::int64_t> range_at(const ArrowArray& array, std::int64_t at,
                                               int width) {
  const std::int64_t begin = integer_at(array.offsets, at, width, true);
  const std::int64_t end = integer_at(array.offsets, at + 1, width, true);
  if (begin < 0 || end < begin) throw std::runtime_error("a column has offsets that go back");
  return {begin, end - begin};
}

std::string_view slice(std::string_view bytes, std::int64_t begin, std::int64_t size) {
  if (begin < 0 || size < 0 || static_cast<std::uint64_t>(begin) > bytes.size() ||
      static_cast<std::uint64_t>(size) > bytes.size() - static_cast<std::uint64_t>(begin)) {
    throw std::runtime_error("a text is not in its buffer");
  }
  return bytes.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
}

// Of 16 bytes: a length, and a text of up to 12, or its first 4, a buffer and a place in it.
std::string_view view_at(const ArrowArray& array, std::int64_t at) {
  constexpr std::int32_t kInline = 12;
  constexpr std::int64_t kWords = 4;
  const auto size = number_at<std::int32_t>(array.values, at * kWords);
  if (size >= 0 && size <= kInline) return slice(array.values, at * 16 + 4, size);
  const auto buffer = number_at<std::int32_t>(array.values, at * kWords + 2);
  const auto place = number_at<std::int32_t>(array.values, at * kWords + 3);
  if (buffer < 0 || static_cast<std::size_t>(buffer) >= array.buffers.size()) {
    throw std::runtime_error("a text is in a buffer that is not there");
  }
  return slice(array.buffers[static_cast<std::size_t>(buffer)], place, size);
}

bool bit_at(std::string_view bits, std::int64_t at) {
  return ((number_at<std::uint8_t>(bits, at / 8) >> (at % 8)) & 1) != 0;
}

std::string_view text_at(const ArrowArray& array, std::int64_t at) {
  switch (array.field->type) {
    case ArrowType::kUtf8View:
    case ArrowType::kBinaryView:
      return view_at(array, at);
    case ArrowType::kFixedBinary:
      return slice(array.values, at * array.field->width, array.field->width);
    default:
      break;
  }
  const bool is_large =
      array.field->type == ArrowType::kLargeUtf8 || array.field->type == ArrowType::kLargeBinary;
  const auto [begin, size] = range_at(array, at, is_large ? 8 : 4);
  return slice(array.bytes, begin, size);
}

void append_decimal(std::string& out, const ArrowArray& array, std::int64_t at) {
  const int width = array.field->width;
  const std::string_view little = slice(array.values, at * width, width);
  std::array<std::uint8_t, 32> big = {};
  std::reverse_copy(little.begin(), little.end(), big.begin());
  append_json_decimal(out, std::span(big).first(little.size()), array.field->scale);
}

}  // namespace

bool ArrowJson::is_null(const ArrowArray& array, std::int64_t at) const {
  if (array.field->type == ArrowType::kNull && !array.field->dictionary) return true;
  return !array.validity.empty() && !bit_at(array.validity, at);
}

void ArrowJson::write(const ArrowArray& array, std::int64_t at) {
  if (out_.size() > kMaxRowBytes) throw std::runtime_error("a row has more than 256 MiB");
  if (at < 0 || at >= array.length) throw std::runtime_error("a column is shorter than its lists");
  if (is_null(array, at)) {
    out_ += "null";
    return;
  }
  if (array.field->dictionary) return write_place(array, at);
  switch (array.field->type) {
    case ArrowType::kUtf8:
    case ArrowType::kBinary:
    case ArrowType::kLargeUtf8:
    case ArrowType::kLargeBinary:
    case ArrowType::kUtf8View:
    case ArrowType::kBinaryView:
    case ArrowType::kFixedBinary:
      return append_json_string(out_, text_at(array, at));
    case ArrowType::kBool:
      out_ += bit_at(array.values, at) ? "true" : "false";
      return;
    case ArrowType::kStruct:
      return write_struct(array, at);
    case ArrowType::kList:
    case ArrowType::kLargeList: {
      const auto [begin, size] = range_at(array, at, array.field->type == ArrowType::kList ? 4 : 8);
      return write_list(array, begin, size);
    }
    case ArrowType::kListView:
    case ArrowType::kLargeListView: {
      const int width = array.field->type == ArrowType::kListView ? 4 : 8;
      return write_list(array, integer_at(array.offsets, at, width, true),
                        integer_at(array.sizes, at, width, true));
    }
    case ArrowType::kFixedList:
      if (array.field->width > 0 &&
          at > std::numeric_limits<std::int64_t>::max() / array.field->width)
        throw std::runtime_error("a list of it is too long");
      return write_list(array, at * array.field->width, array.field->width);
    case ArrowType::kMap: {
      const auto [begin, size] = range_at(array, at, 4);
      return write_map(array, begin, size);
    }
    default:
      return write_number(array, at);
  }
}

void ArrowJson::write_number(const ArrowArray& array, std::int64_t at) {
  const ArrowField& field = *array.field;
  const auto unit = static_cast<TimeUnit>(std::clamp(field.unit, 0, 3));
  const auto whole = [&] { return integer_at(array.values, at, field.width, true); };
  switch (field.type) {
    case ArrowType::kInt: {
      const std::int64_t value = integer_at(array.values, at, field.width, field.is_signed);
      if (field.is_signed) {
        fmt::format_to(std::back_inserter(out_), "{}", value);
      } else {
        fmt::format_to(std::back_inserter(out_), "{}", static_cast<std::uint64_t>(value));
      }
      return;
    }
    case ArrowType::kFloat:
      if (field.width == 2) {
        return append_json_number(out_, half_value(number_at<std::uint16_t>(array.values, at)));
      }
      if (field.width == 4) return append_json_number(out_, number_at<float>(array.values, at));
      return append_json_number(out_, number_at<double>(array.values, at));
    case ArrowType::kDecimal:
      return append_decimal(out_, array, at);
    case ArrowType::kDate: {
      constexpr std::int64_t kMilliseconds = 86'400'000;
      if (field.unit == 0) return append_json_date(out_, whole());
      const std::int64_t value = whole();
      // The day that it lies in, also before 1970.
      return append_json_date(out_, value / kMilliseconds - (value % kMilliseconds < 0 ? 1 : 0));
    }
    case ArrowType::kTime:
      return append_json_time(out_, whole(), unit);
    case ArrowType::kTimestamp:
      return append_json_timestamp(out_, whole(), unit, field.is_utc);
    case ArrowType::kDuration:
      fmt::format_to(std::back_inserter(out_), "{}", whole());
      return;
    default:
      throw std::runtime_error("a column has a type that is not read");
  }
}

void ArrowJson::write_place(const ArrowArray& array, std::int64_t at) {
  std::int64_t place =
      integer_at(array.values, at, array.field->index_width, array.field->is_index_signed);
  const auto found = dictionaries_.find(*array.field->dictionary);
  if (found == dictionaries_.end()) throw std::runtime_error("a dictionary did not come");
  constexpr int kDeepest = 64;
  if (++depth_ > kDeepest) throw std::runtime_error("its dictionaries hold each other");
  for (const ArrowBatch& batch : found->second) {
    const ArrowArray& values = batch.arrays.front();
    if (place >= 0 && place < values.length) {
      write(values, place);
      --depth_;
      return;
    }
    place -= values.length;
  }
  throw std::runtime_error("a value is not in its dictionary");
}

void ArrowJson::write_struct(const ArrowArray& array, std::int64_t at) {
  out_ += '{';
  bool is_first = true;
  for (const ArrowArray& child : array.children) {
    if (at >= child.length) throw std::runtime_error("a column is shorter than its struct");
    if (is_null(child, at)) continue;
    if (!is_first) out_ += ',';
    is_first = false;
    append_json_string(out_, child.field->name);
    out_ += ':';
    write(child, at);
  }
  out_ += '}';
}

void ArrowJson::write_list(const ArrowArray& array, std::int64_t begin, std::int64_t size) {
  const ArrowArray& element = array.children.front();
  if (begin < 0 || size < 0 || begin > element.length || size > element.length - begin) {
    throw std::runtime_error("a list is longer than its column");
  }
  out_ += '[';
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) out_ += ',';
    write(element, begin + i);
  }
  out_ += ']';
}

// Keys of JSON are texts; others become their JSON.
void ArrowJson::write_map(const ArrowArray& array, std::int64_t begin, std::int64_t size) {
  const ArrowArray& entry = array.children.front();
  if (begin < 0 || size < 0 || begin > entry.length || size > entry.length - begin) {
    throw std::runtime_error("a map is longer than its column");
  }
  out_ += '{';
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) out_ += ',';
    const std::size_t at = out_.size();
    write(entry.children[0], begin + i);
    if (out_[at] != '"') {
      const std::string key = out_.substr(at);
      out_.resize(at);
      append_json_string(out_, key);
    }
    out_ += ':';
    write(entry.children[1], begin + i);
  }
  out_ += '}';
}

}  // namespace atl::data
