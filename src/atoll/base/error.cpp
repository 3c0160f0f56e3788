#include "atoll/base/error.h"

namespace atl {

namespace {

// Names, keys and values in messages come from files of strangers. Shown raw, a line break in one
// would forge a second line of output, and an escape sequence would drive the terminal.
std::string one_line(std::string_view message) {
  std::string line;
  line.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else {
      line += fmt::format("\\x{:02x}", byte);
    }
  }
  return line;
}

}  // namespace

Error::Error(ErrorKind kind, std::string_view message)
    : std::runtime_error(one_line(message)), kind_(kind) {}

}  // namespace atl
