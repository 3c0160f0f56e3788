#include "atoll/data/rows/json_array.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"

namespace atl::data {

namespace {

constexpr std::string_view kWhite = " \t\r\n";

class JsonLines final : public RowSource {
 public:
  explicit JsonLines(TextWindow window) : window_(std::move(window)) {}

  std::optional<RowText> next() override {
    while (auto line = window_.next_line()) {
      if (++number_ == 1) line = without_byte_order_mark(*line);
      if (line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
      return RowText{*line, number_, window_.position()};
    }
    return std::nullopt;
  }
  std::uint64_t content_bytes() const override { return window_.position(); }
  const char* unit() const override { return "line"; }

 private:
  TextWindow window_;
  std::int64_t number_ = 0;
};

class JsonArray final : public RowSource {
 public:
  std::uint64_t content_bytes() const override { return window_.position(); }

  explicit JsonArray(TextWindow window) : window_(std::move(window)) {
    window_.skip_byte_order_mark();
    expect('[', "it does not begin with [");
  }

  std::optional<RowText> next() override {
    window_.consume(std::exchange(given_, 0));
    if (!is_open_) return std::nullopt;
    const char letter = skip_white();
    if (letter == ']' && number_ == 0) return close();
    if (number_ > 0) {
      if (letter == ']') return close();
      expect(',', "a comma or ] is missing");
      skip_white();
    }
    ++number_;
    given_ = element_size();
    return RowText{window_.view().substr(0, given_), number_, window_.position() + given_};
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw user_error("{} is no JSON array: {} (behind row {}, byte {}); mend it, or copy it again",
                     window_.path().string(), problem, number_, window_.position());
  }

  // The first letter that is no white space, which stays; 0 at the end.
  char skip_white() {
    while (window_.fill(1)) {
      const std::string_view view = window_.view();
      const std::size_t at = view.find_first_not_of(kWhite);
      window_.consume(at == std::string_view::npos ? view.size() : at);
      if (at != std::string_view::npos) return window_.view().front();
    }
    return '\0';
  }

  void expect(char letter, std::string_view problem) {
    const char here = skip_white();
    if (here == '\0') fail("it ends too soon");
    if (here != letter) fail(problem);
    window_.consume(1);
  }

  std::optional<RowText> close() {
    window_.consume(1);
    is_open_ = false;
    if (skip_white() != '\0') fail("something follows behind its ]");
    return std::nullopt;
  }

  // Up to the comma or bracket behind the element that the view begins with.
  std::size_t element_size() {
    std::size_t depth = 0;
    bool is_string = false;
    for (std::size_t at = 0;; ++at) {
      if (at >= window_.view().size() && !window_.fill(at + 1)) fail("it ends within a row");
      if (window_.compression() != Compression::kNone && at > kMaxRowBytes) {
        fail("a row has more than 256 MiB");
      }
      const char letter = window_.view()[at];
      if (is_string) {
        if (letter == '\\') {
          ++at;
        } else if (letter == '"') {
          is_string = false;
        }
        continue;
      }
      if (letter == '"') {
        is_string = true;
      } else if (letter == '{' || letter == '[') {
        ++depth;
      } else if (depth == 0 && (letter == ',' || letter == ']')) {
        if (at == 0) fail("a row is missing");
        return at;
      } else if (letter == '}' || letter == ']') {
        if (depth == 0) fail("a } has no {");
        --depth;
      }
    }
  }

  TextWindow window_;
  bool is_open_ = true;
  std::int64_t number_ = 0;
  std::size_t given_ = 0;  // bytes of the row that was handed out
};

}  // namespace

std::unique_ptr<RowSource> open_json_lines(TextWindow window) {
  return std::make_unique<JsonLines>(std::move(window));
}

std::unique_ptr<RowSource> open_json_array(TextWindow window) {
  return std::make_unique<JsonArray>(std::move(window));
}

}  // namespace atl::data
