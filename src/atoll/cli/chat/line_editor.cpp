#include "atoll/cli/chat/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <utility>

#include "atoll/base/terminal.h"
#include "atoll/text/display_width.h"

namespace atl::cli {

namespace {

using Key = EditedLine::Key;

// Keys come byte by byte, and the terminal shows none of them, while this lives.
class RawTerminal {
 public:
  RawTerminal() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fmt::print("\x1b[?2004h");  // a paste is announced
    std::fflush(stdout);
  }
  ~RawTerminal() {
    fmt::print("\x1b[?2004l");
    std::fflush(stdout);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
};

// The next byte; -1: there is none any more.
int next_byte() {
  unsigned char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

// Whether the next byte is there already.
bool has_more_input() {
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  return ::poll(&input, 1, 0) == 1;
}

// As shells have them.
constexpr std::pair<int, Key> kControls[] = {
    {'A' & 31, Key::kHome},        {'B' & 31, Key::kLeft},          {'E' & 31, Key::kEnd},
    {'F' & 31, Key::kRight},       {'H' & 31, Key::kBackspace},     {127, Key::kBackspace},
    {'K' & 31, Key::kDeleteToEnd}, {'U' & 31, Key::kDeleteToBegin}, {'W' & 31, Key::kDeleteWord},
    {'P' & 31, Key::kEarlier},     {'N' & 31, Key::kLater}};

// Behind ESC.
constexpr std::pair<std::string_view, Key> kSequences[] = {
    {"[A", Key::kEarlier},     {"[B", Key::kLater},        {"[C", Key::kRight},
    {"[D", Key::kLeft},        {"[H", Key::kHome},         {"[F", Key::kEnd},
    {"OH", Key::kHome},        {"OF", Key::kEnd},          {"[1~", Key::kHome},
    {"[4~", Key::kEnd},        {"[3~", Key::kDelete},      {"[1;5C", Key::kWordRight},
    {"[1;5D", Key::kWordLeft}, {"[1;3C", Key::kWordRight}, {"[1;3D", Key::kWordLeft},
    {"b", Key::kWordLeft},     {"f", Key::kWordRight},     {"\x7f", Key::kDeleteWord}};

// A line feed is shown as a sign: the line that is edited is one line of the terminal.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n')
      result += "⏎";
    else if (c == '\t')
      result += ' ';
    else if (static_cast<unsigned char>(c) >= 32)
      result += c;
  }
  return result;
}

// The whole characters at the end of `text` that fit into so many columns.
std::string_view last_columns(std::string_view text, std::size_t columns) {
  while (!text.empty() && text::display_width(text) > columns) {
    text.remove_prefix(1);
    while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xC0) == 0x80) {
      text.remove_prefix(1);
    }
  }
  return text;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  while (!text.empty() && text::display_width(text) > columns) {
    while ((static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

bool LineEditor::is_terminal() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

LineEditor::Line LineEditor::read(const std::string& prompt, bool is_bold) {
  if (is_terminal()) return edit(prompt, is_bold);
  Line line;
  if (!std::getline(std::cin, line.text)) line.end = Line::End::kClosed;
  return line;
}

void LineEditor::draw(const std::string& prompt, bool is_bold) const {
  const auto width = static_cast<std::size_t>(std::max(terminal_columns(STDOUT_FILENO), 10));
  const std::size_t room = width - std::min(width - 2, text::display_width(prompt)) - 1;
  const std::string before = shown(std::string_view(line_.text()).substr(0, line_.cursor()));
  const std::string after = shown(std::string_view(line_.text()).substr(line_.cursor()));
  const std::string_view left = last_columns(before, room);
  const std::string_view right = first_columns(after, room - text::display_width(left));
  fmt::print("\r{}{}{}{}{}\x1b[K", is_bold ? "\x1b[1m" : "", prompt, is_bold ? "\x1b[0m" : "", left,
             right);
  const std::size_t back = text::display_width(right);
  if (back > 0) fmt::print("\x1b[{}D", back);
  std::fflush(stdout);
}

void LineEditor::paste() {
  constexpr std::string_view kEnd = "\x1b[201~";
  std::string text;
  while (!text.ends_with(kEnd)) {
    const int byte = next_byte();
    if (byte < 0) break;
    text += byte == '\r' ? '\n' : static_cast<char>(byte);
  }
  if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
  line_.insert(text);
}

void LineEditor::escape() {
  constexpr std::size_t kLongest = 8;
  std::string sequence;
  while (sequence.size() < kLongest) {
    const int byte = next_byte();
    if (byte < 0) return;
    sequence += static_cast<char>(byte);
    const bool is_opened = sequence == "[" || sequence == "O";
    const bool has_parameters =
        sequence.size() > 1 && (byte == ';' || (byte >= '0' && byte <= '9'));
    if (!is_opened && !has_parameters) break;
  }
  if (sequence == "[200~") return paste();
  for (const auto& [name, key] : kSequences) {
    if (sequence == name) line_.press(key);
  }
}

LineEditor::Line LineEditor::edit(const std::string& prompt, bool is_bold) {
  using End = Line::End;
  const RawTerminal raw;
  line_.clear();
  for (;;) {
    if (!has_more_input()) draw(prompt, is_bold);
    const int byte = next_byte();
    const bool is_end = byte < 0 || (byte == ('D' & 31) && line_.text().empty());
    if (is_end || byte == '\r' || byte == '\n' || byte == ('C' & 31)) {
      draw(prompt, is_bold);
      fmt::print("\n");
      std::fflush(stdout);
      if (is_end) return {End::kClosed, {}};
      if (byte == ('C' & 31)) return {End::kInterrupted, {}};
      return {End::kEntered, line_.enter()};
    }
    const auto control = std::ranges::find(kControls, byte, &std::pair<int, Key>::first);
    if (byte == 27)
      escape();
    else if (byte == ('D' & 31))
      line_.press(Key::kDelete);
    else if (byte == ('L' & 31))
      fmt::print("\x1b[H\x1b[2J");
    else if (control != std::end(kControls))
      line_.press(control->second);
    else if (byte >= 32 || byte == '\t')
      line_.insert(std::string(1, static_cast<char>(byte)));
  }
}

}  // namespace atl::cli
