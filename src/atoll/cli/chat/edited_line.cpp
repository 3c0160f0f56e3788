#include "atoll/cli/chat/edited_line.h"

#include <algorithm>

namespace atl::cli {

namespace {

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

std::size_t EditedLine::before(std::size_t at) const {
  while (at > 0 && continues_character(text_[--at])) {
  }
  return at;
}

std::size_t EditedLine::after(std::size_t at) const {
  if (at < text_.size()) ++at;
  while (at < text_.size() && continues_character(text_[at])) ++at;
  return at;
}

std::size_t EditedLine::word_before() const {
  std::size_t at = cursor_;
  while (at > 0 && text_[at - 1] == ' ') --at;
  while (at > 0 && text_[at - 1] != ' ') --at;
  return at;
}

std::size_t EditedLine::word_after() const {
  std::size_t at = cursor_;
  while (at < text_.size() && text_[at] == ' ') ++at;
  while (at < text_.size() && text_[at] != ' ') ++at;
  return at;
}

void EditedLine::remove(std::size_t begin, std::size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditedLine::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditedLine::show_entered(std::size_t number) {
  if (number > entered_.size()) return;
  if (shown_ == entered_.size()) new_line_ = text_;
  shown_ = number;
  text_ = number == entered_.size() ? new_line_ : entered_[number];
  cursor_ = text_.size();
}

void EditedLine::press(Key key) {
  switch (key) {
    case Key::kLeft:
      cursor_ = before(cursor_);
      return;
    case Key::kRight:
      cursor_ = after(cursor_);
      return;
    case Key::kWordLeft:
      cursor_ = word_before();
      return;
    case Key::kWordRight:
      cursor_ = word_after();
      return;
    case Key::kHome:
      cursor_ = 0;
      return;
    case Key::kEnd:
      cursor_ = text_.size();
      return;
    case Key::kBackspace:
      return remove(before(cursor_), cursor_);
    case Key::kDelete:
      return remove(cursor_, after(cursor_));
    case Key::kDeleteWord:
      return remove(word_before(), cursor_);
    case Key::kDeleteToEnd:
      return remove(cursor_, text_.size());
    case Key::kDeleteToBegin:
      return remove(0, cursor_);
    case Key::kEarlier:
      if (shown_ > 0) show_entered(shown_ - 1);
      return;
    case Key::kLater:
      return show_entered(shown_ + 1);
  }
}

void EditedLine::remember(const std::string& line) {
  if (!line.empty() && (entered_.empty() || entered_.back() != line)) entered_.push_back(line);
  shown_ = entered_.size();
}

std::string EditedLine::enter() {
  std::string line = std::move(text_);
  remember(line);
  clear();
  return line;
}

void EditedLine::clear() {
  text_.clear();
  new_line_.clear();
  cursor_ = 0;
  shown_ = entered_.size();
}

}  // namespace atl::cli
