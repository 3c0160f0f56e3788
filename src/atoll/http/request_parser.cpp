#include "atoll/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace atl::http {

namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::size_t kMaxMethod = 16;
constexpr std::size_t kMaxLengthDigits = 15;

bool is_token(char c) {
  if (std::isalnum(static_cast<unsigned char>(c)) != 0) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return is_token(c); });
}

// Of a field's value: no control character but a tab.
bool is_value(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return lower(c); });
  return result;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whether a comma-separated list has `word`, in any case.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (lower(trim(list.substr(0, end))) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

RequestParser::State RequestParser::refuse(int status, std::string why) {
  refusal_ = {status, std::move(why)};
  buffer_.clear();
  return state_ = State::kRefused;
}

RequestParser::State RequestParser::feed(std::string_view bytes) {
  if (state_ == State::kRefused) return state_;
  buffer_ += bytes;
  return state_ == State::kMore ? advance() : state_;
}

RequestParser::State RequestParser::next() {
  if (state_ != State::kWhole) return state_;
  request_ = {};
  has_head_ = expects_continue_ = false;
  searched_ = body_bytes_ = 0;
  state_ = State::kMore;
  return advance();
}

bool RequestParser::take_expectation() {
  return std::exchange(expects_continue_, false);
}

RequestParser::State RequestParser::advance() {
  if (!has_head_) {
    const std::size_t end = buffer_.find(kHeadEnd, searched_);
    const std::size_t size = end == buffer_.npos ? buffer_.size() : end + kHeadEnd.size();
    if (size > limits_.head_bytes) {
      const bool in_first_line = buffer_.find(kLineEnd) > limits_.target_bytes + kMaxMethod;
      return refuse(in_first_line ? 414 : 431,
                    fmt::format("the request's head has more than {} bytes", limits_.head_bytes));
    }
    if (end == buffer_.npos) {
      searched_ = buffer_.size() - std::min(buffer_.size(), kHeadEnd.size() - 1);
      return state_;
    }
    const std::string head = buffer_.substr(0, end + kLineEnd.size());
    buffer_.erase(0, size);
    if (!parse_head(head)) return state_;
    has_head_ = true;
  }
  if (buffer_.size() < body_bytes_) return state_;
  request_.body = buffer_.substr(0, body_bytes_);
  buffer_.erase(0, body_bytes_);
  expects_continue_ = false;
  return state_ = State::kWhole;
}

bool RequestParser::parse_head(std::string_view head) {
  bool is_first = true;
  while (!head.empty()) {
    const std::size_t end = head.find(kLineEnd);
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + kLineEnd.size());
    if (is_first ? !parse_request_line(line) : !parse_field(line)) return false;
    is_first = false;
  }
  return check_fields() && check_length();
}

bool RequestParser::parse_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || last == first) {
    refuse(400, "the first line is not METHOD TARGET HTTP/1.1");
    return false;
  }
  request_.method = line.substr(0, first);
  request_.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(request_.method) || request_.method.size() > kMaxMethod) {
    refuse(400, "the method is not a word");
  } else if (version.size() != 8 || !version.starts_with("HTTP/")) {
    refuse(400, "the first line does not end with HTTP/1.1");
  } else if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    refuse(505, "HTTP/1.1 and HTTP/1.0 are served here");
  } else if (request_.target.size() > limits_.target_bytes) {
    refuse(414, fmt::format("the target has more than {} bytes", limits_.target_bytes));
  } else {
    request_.minor_version = version.back() - '0';
    return parse_target();
  }
  return false;
}

bool RequestParser::parse_target() {
  const std::string& target = request_.target;
  const auto is_visible = [](char c) { return c > ' ' && c < '\x7f' && c != '#'; };
  if (!target.starts_with('/') || !std::ranges::all_of(target, is_visible)) {
    refuse(400, "the target is not a path that begins with /");
    return false;
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  const auto path = unescape(std::string_view(target).substr(0, mark), /*is_form=*/false);
  if (!path) {
    refuse(400, "the path has a % that is no escape");
    return false;
  }
  request_.path = *path;
  std::string_view query = std::string_view(target).substr(std::min(mark + 1, target.size()));
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const auto name = unescape(pair.substr(0, equals), /*is_form=*/true);
    const auto value = unescape(pair.substr(std::min(equals + 1, pair.size())), /*is_form=*/true);
    if (!name || !value) {
      refuse(400, "the query has a % that is no escape");
      return false;
    }
    request_.parameters.emplace_back(*name, *value);
  }
  return true;
}

bool RequestParser::parse_field(std::string_view line) {
  if (request_.fields.size() == limits_.num_fields) {
    refuse(431, fmt::format("the request has more than {} header fields", limits_.num_fields));
    return false;
  }
  const std::size_t colon = line.find(':');
  // This also refuses a line that goes on from the one before, which begins with a space.
  if (colon == line.npos || !is_token(line.substr(0, colon))) {
    refuse(400, "a header line is not NAME: VALUE");
    return false;
  }
  const std::string_view value = trim(line.substr(colon + 1));
  if (!std::ranges::all_of(value, is_value)) {
    refuse(400, "a header field has a control character");
    return false;
  }
  request_.fields.emplace_back(lower(line.substr(0, colon)), value);
  return true;
}

bool RequestParser::check_fields() {
  std::size_t hosts = 0;
  request_.keeps_alive = request_.minor_version >= 1;
  for (const auto& [name, value] : request_.fields) {
    if (name == "host") ++hosts;
    if (name == "connection" && has_word(value, "close")) request_.keeps_alive = false;
    if (name == "expect") {
      if (lower(value) != "100-continue" || request_.minor_version == 0) {
        refuse(417, "no expectation but 100-continue is met here");
        return false;
      }
      expects_continue_ = true;
    }
  }
  if (hosts > 1 || (hosts == 0 && request_.minor_version >= 1)) {
    refuse(400, "the request must have one Host");
    return false;
  }
  return true;
}

bool RequestParser::check_length() {
  const std::string* length = nullptr;
  for (const auto& [name, value] : request_.fields) {
    if (name == "transfer-encoding") {
      refuse(411, "a body must come with its Content-Length, without Transfer-Encoding");
      return false;
    }
    if (name != "content-length") continue;
    if (length != nullptr) {
      refuse(400, "the request has two Content-Length");
      return false;
    }
    length = &value;
  }
  if (length == nullptr) return true;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (length->empty() || !std::ranges::all_of(*length, is_digit)) {
    refuse(400, "the Content-Length is not a number");
    return false;
  }
  if (length->size() > kMaxLengthDigits) {
    refuse(413, fmt::format("the body has more than {} bytes", limits_.body_bytes));
    return false;
  }
  for (const char c : *length) body_bytes_ = 10 * body_bytes_ + static_cast<std::size_t>(c - '0');
  if (body_bytes_ <= limits_.body_bytes) return true;
  refuse(413, fmt::format("the body has more than {} bytes", limits_.body_bytes));
  return false;
}

}  // namespace atl::http
