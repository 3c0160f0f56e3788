#include "atoll/data/columns/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

namespace atl::data {

namespace {

bool is_plain(char c) {
  return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
}

// Bytes before the first one that is escaped. Eight at a time: with one alone this took longer than
// the parser that reads the row.
std::size_t plain_prefix(std::string_view text) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHighs = 0x8080808080808080;
  // The high bit of each byte below `limit`, at most 128: S. E. Anderson, "Bit Twiddling Hacks".
  // Bits of bytes behind the first such one may be wrong.
  const auto below = [](std::uint64_t word, std::uint64_t limit) {
    return (word - kOnes * limit) & ~word & kHighs;
  };
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof(word));
    const std::uint64_t found =
        below(word, 0x20) | below(word ^ (kOnes * '"'), 1) | below(word ^ (kOnes * '\\'), 1);
    if (found != 0) break;
  }
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

std::int64_t per_second(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kSecond:
      return 1;
    case TimeUnit::kMilli:
      return 1'000;
    case TimeUnit::kMicro:
      return 1'000'000;
    case TimeUnit::kNano:
      return 1'000'000'000;
  }
  return 1;
}

std::int64_t floor_mod(std::int64_t value, std::int64_t by) {
  const std::int64_t rest = value % by;
  return rest < 0 ? rest + by : rest;
}

std::int64_t floor_div(std::int64_t value, std::int64_t by) {
  return value / by - (value % by < 0 ? 1 : 0);
}

void append_date(std::string& out, std::int64_t days) {
  // Of other years <chrono> has no dates.
  constexpr std::int64_t kLimit = 10'000'000;
  if (days < -kLimit || days > kLimit) {
    out += fmt::format("{} days since 1970-01-01", days);
    return;
  }
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  out += fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

void append_time(std::string& out, std::int64_t seconds, std::int64_t fraction, TimeUnit unit) {
  out += fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (fraction == 0) return;
  const int digits = unit == TimeUnit::kMilli ? 3 : unit == TimeUnit::kMicro ? 6 : 9;
  out += fmt::format(".{:0{}}", fraction, digits);
}

template <typename Float>
void append_number(std::string& out, Float value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-Infinity" : "Infinity";
  } else {
    const std::size_t begin = out.size();
    fmt::format_to(std::back_inserter(out), "{}", value);
    if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const std::size_t plain = plain_prefix(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const char c = text.front();
    text.remove_prefix(1);
    out += '\\';
    if (c == '"' || c == '\\') {
      out += c;
    } else if (c == '\n') {
      out += 'n';
    } else if (c == '\t') {
      out += 't';
    } else if (c == '\r') {
      out += 'r';
    } else {
      out += "u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  append_number(out, value);
}

void append_json_number(std::string& out, float value) {
  append_number(out, value);
}

void append_json_date(std::string& out, std::int64_t days) {
  out += '"';
  append_date(out, days);
  out += '"';
}

void append_json_timestamp(std::string& out, std::int64_t value, TimeUnit unit, bool is_utc) {
  constexpr std::int64_t kDay = 86400;
  const std::int64_t seconds = floor_div(value, per_second(unit));
  const std::int64_t fraction = floor_mod(value, per_second(unit));
  const std::int64_t days = floor_div(seconds, kDay);
  out += '"';
  append_date(out, days);
  out += 'T';
  append_time(out, floor_mod(seconds, kDay), fraction, unit);
  out += is_utc ? "Z\"" : "\"";
}

void append_json_time(std::string& out, std::int64_t value, TimeUnit unit) {
  const std::int64_t seconds = floor_div(value, per_second(unit));
  out += '"';
  append_time(out, seconds, floor_mod(value, per_second(unit)), unit);
  out += '"';
}

void append_json_decimal(std::string& out, std::span<const std::uint8_t> value, int scale) {
  std::vector<std::uint8_t> left(value.begin(), value.end());
  const bool is_negative = !left.empty() && (left.front() & 0x80) != 0;
  if (is_negative) {
    unsigned carry = 1;
    for (auto byte = left.rbegin(); byte != left.rend(); ++byte) {
      const unsigned sum = static_cast<std::uint8_t>(~*byte) + carry;
      *byte = static_cast<std::uint8_t>(sum);
      carry = sum >> 8;
    }
  }
  std::string digits;  // the last one first
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  while (!std::all_of(left.begin(), left.end(), is_zero)) {
    unsigned rest = 0;
    for (std::uint8_t& byte : left) {
      const unsigned here = rest * 256 + byte;
      byte = static_cast<std::uint8_t>(here / 10);
      rest = here % 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  const auto behind = static_cast<std::size_t>(std::max(scale, 0));
  if (digits.size() <= behind) digits.append(behind + 1 - digits.size(), '0');
  if (is_negative) out += '-';
  for (std::size_t i = digits.size(); i-- > 0;) {
    out += digits[i];
    if (i == behind && behind > 0) out += '.';
  }
  if (scale < 0 && digits != "0") out.append(static_cast<std::size_t>(-scale), '0');
}

float half_value(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = (bits >> 10) & 31U;
  const std::uint32_t fraction = bits & 1023U;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

}  // namespace atl::data
