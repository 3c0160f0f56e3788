#include "atoll/text/byte_level.h"

#include <fmt/format.h>

#include <array>

#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

constexpr int kNumChars = 0x144;  // one past the highest character that spells a byte

struct Tables {
  std::array<char32_t, 256> to_char{};
  std::array<int, kNumChars> to_byte{};  // -1: spells no byte
};

constexpr bool spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Tables make_tables() {
  Tables tables;
  for (int& byte : tables.to_byte) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = spells_itself(byte) ? static_cast<char32_t>(byte) : next++;
    tables.to_char[byte] = c;
    tables.to_byte[c] = byte;
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_char(unsigned char byte) {
  return kTables.to_char[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes)
    append_utf8(byte_to_char(static_cast<unsigned char>(byte)), spelled);
  return spelled;
}

std::optional<std::string> from_byte_level(std::string_view spelled) {
  std::string bytes;
  while (!spelled.empty()) {
    const Utf8Step step = utf8_step(spelled);
    if (step.kind != Utf8Kind::kValid) return std::nullopt;
    const char32_t c = decode_utf8(spelled.substr(0, step.size));
    if (c >= kNumChars || kTables.to_byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.to_byte[c]));
    spelled.remove_prefix(step.size);
  }
  return bytes;
}

std::string byte_token(unsigned char byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::optional<unsigned char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const std::size_t high = kDigits.find(token[3]);
  const std::size_t low = kDigits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned char>(16 * high + low);
}

}  // namespace atl::text
