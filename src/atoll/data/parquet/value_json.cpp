#include "atoll/data/parquet/value_json.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "atoll/data/columns/json_writer.h"

namespace atl::data {

namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TimeUnit unit_of(int unit) {
  return unit == 0 ? TimeUnit::kMilli : unit == 1 ? TimeUnit::kMicro : TimeUnit::kNano;
}

// Nanoseconds of a day and a Julian day, as Impala wrote times.
void append_int96(std::string& out, std::string_view bytes) {
  constexpr std::int64_t kEpoch = 2440588;  // the Julian day of 1970-01-01
  constexpr std::int64_t kDay = 86'400'000'000'000;
  std::int64_t nanoseconds = 0;
  std::int32_t day = 0;
  std::memcpy(&nanoseconds, bytes.data(), sizeof(nanoseconds));
  std::memcpy(&day, bytes.data() + sizeof(nanoseconds), sizeof(day));
  const std::int64_t days = day - kEpoch;
  constexpr std::int64_t kMaxDays = 106'000;  // of which 64 bits have the nanoseconds
  if (nanoseconds < 0 || nanoseconds >= kDay || days > kMaxDays || days < -kMaxDays) {
    throw std::runtime_error("a time of INT96 is none");
  }
  append_json_timestamp(out, days * kDay + nanoseconds, TimeUnit::kNano, false);
}

void append_uuid(std::string& out, std::string_view bytes) {
  out += '"';
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    fmt::format_to(std::back_inserter(out), "{:02x}", static_cast<unsigned char>(bytes[i]));
  }
  out += '"';
}

void append_decimal(std::string& out, const ParquetElement& column, const ParquetValue& value) {
  constexpr int kMaxScale = 1000;
  if (column.scale > kMaxScale || column.scale < -kMaxScale) {
    throw std::runtime_error("a decimal has a scale of more than 1000");
  }
  if (!value.text.empty() || column.type == ParquetType::kByteArray) {
    constexpr std::size_t kMaxBytes = 64;
    if (value.text.size() > kMaxBytes) throw std::runtime_error("a decimal has more than 512 bits");
    return append_json_decimal(out, bytes_of(value.text), column.scale);
  }
  std::array<std::uint8_t, 8> bytes = {};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(value.number >> (56 - 8 * i));
  }
  append_json_decimal(out, bytes, column.scale);
}

void append_plain(std::string& out, const ParquetElement& column, const ParquetValue& value) {
  switch (column.type) {
    case ParquetType::kBoolean:
      out += value.number != 0 ? "true" : "false";
      return;
    case ParquetType::kInt32:
    case ParquetType::kInt64:
      fmt::format_to(std::back_inserter(out), "{}", value.number);
      return;
    case ParquetType::kInt96:
      return append_int96(out, value.text);
    case ParquetType::kFloat:
      return append_json_number(out, std::bit_cast<float>(static_cast<std::int32_t>(value.number)));
    case ParquetType::kDouble:
      return append_json_number(out, std::bit_cast<double>(value.number));
    case ParquetType::kByteArray:
    case ParquetType::kFixed:
      return append_json_string(out, value.text);
  }
}

}  // namespace

void append_parquet_value(std::string& out, const ParquetElement& column,
                          const ParquetValue& value) {
  const bool is_whole = column.type == ParquetType::kInt32 || column.type == ParquetType::kInt64;
  const bool is_fixed = column.type == ParquetType::kFixed;
  using Meaning = ParquetMeaning;
  switch (column.meaning) {
    case Meaning::kUnsigned:
      if (!is_whole) break;
      fmt::format_to(std::back_inserter(out), "{}",
                     column.type == ParquetType::kInt32 ? static_cast<std::uint32_t>(value.number)
                                                        : static_cast<std::uint64_t>(value.number));
      return;
    case Meaning::kDecimal:
      if (!is_whole && !is_fixed && column.type != ParquetType::kByteArray) break;
      return append_decimal(out, column, value);
    case Meaning::kDate:
      if (column.type != ParquetType::kInt32) break;
      return append_json_date(out, value.number);
    case Meaning::kTime:
      if (!is_whole) break;
      return append_json_time(out, value.number, unit_of(column.unit));
    case Meaning::kTimestamp:
      if (!is_whole) break;
      return append_json_timestamp(out, value.number, unit_of(column.unit), column.is_utc);
    case Meaning::kHalf: {
      if (!is_fixed || value.text.size() != 2) break;
      std::uint16_t bits = 0;
      std::memcpy(&bits, value.text.data(), sizeof(bits));
      return append_json_number(out, half_value(bits));
    }
    case Meaning::kUuid:
      if (!is_fixed || value.text.size() != 16) break;
      return append_uuid(out, value.text);
    case Meaning::kInterval:
      throw std::runtime_error("it has intervals, which are not read; leave the column out");
    case Meaning::kPlain:
    case Meaning::kList:
    case Meaning::kMap:
      return append_plain(out, column, value);
  }
  throw std::runtime_error("its logical type does not go with its physical one");
}

}  // namespace atl::data
