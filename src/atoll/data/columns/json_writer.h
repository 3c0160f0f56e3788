#pragma once

// Values of tables as JSON.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace atl::data {

/// Appends a string with its quotes. Bytes that are not UTF-8 stay as they are, for the reader of
/// the row to refuse.
void append_json_string(std::string& out, std::string_view text);

/// Appends a number; of a value that JSON lacks what Python writes: NaN, Infinity, -Infinity. A
/// whole number has ".0", as in Python.
void append_json_number(std::string& out, double value);
/// The same of a float: the shortest decimal that is this float.
void append_json_number(std::string& out, float value);

/// What a point in time is counted in.
enum class TimeUnit { kSecond, kMilli, kMicro, kNano };

/// Appends "2024-01-31" with its quotes: days since 1970-01-01.
void append_json_date(std::string& out, std::int64_t days);
/// Appends "2024-01-31T12:00:00.250" with its quotes, and Z where it is of UTC: since 1970-01-01.
void append_json_timestamp(std::string& out, std::int64_t value, TimeUnit unit, bool is_utc);
/// Appends "12:00:00.250" with its quotes: since midnight.
void append_json_time(std::string& out, std::int64_t value, TimeUnit unit);
/// Appends a decimal number: the digits of `value` (two's complement, most significant byte first,
/// at most 32 bytes), of which `scale` stand behind the point.
void append_json_decimal(std::string& out, std::span<const std::uint8_t> value, int scale);

/// The value of 16 bits of IEEE 754.
float half_value(std::uint16_t bits);

}  // namespace atl::data
