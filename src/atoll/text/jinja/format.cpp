// Python's format % values: %s, %r, %d, %i, %x, %f, %e, %g with flags, width and precision.

#include <cmath>

#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

struct Conversion {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  std::size_t width = 0;
  std::optional<int> precision;
  char type = 's';
};

class Formatter {
 public:
  Formatter(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  std::string run() {
    while (at_ < format_.size()) {
      const std::size_t percent = format_.find('%', at_);
      out_ += format_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      conversion();
    }
    const bool all_taken = by_name_ || values_.is_dict() || taken_ == count();
    if (!all_taken) runtime_.fail("not all values of a \"%\" are used by its format");
    return std::move(out_);
  }

 private:
  std::size_t count() const { return values_.is(Kind::kTuple) ? values_.items().size() : 1; }

  char peek() const {
    if (at_ >= format_.size()) runtime_.fail("a \"%\" format that ends too early");
    return format_[at_];
  }

  int number() {
    int value = 0;
    for (; at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9'; ++at_) {
      value = value * 10 + (format_[at_] - '0');
      if (value > 10'000) runtime_.fail("a \"%\" format wider than 10,000 characters");
    }
    return value;
  }

  Conversion read() {
    Conversion made;
    for (; std::string_view("-+ 0#").find(peek()) != std::string_view::npos; ++at_) {
      made.left |= peek() == '-';
      made.plus |= peek() == '+';
      made.space |= peek() == ' ';
      made.zero |= peek() == '0';
      made.alternate |= peek() == '#';
    }
    made.width = static_cast<std::size_t>(number());
    if (peek() == '.') {
      ++at_;
      made.precision = number();
    }
    made.type = peek();
    ++at_;
    return made;
  }

  Value next() {
    if (taken_ >= count()) runtime_.fail("too few values for a \"%\" format");
    const std::size_t at = taken_++;
    return values_.is(Kind::kTuple) ? values_.items()[at] : values_;
  }

  void conversion() {
    if (peek() == '%') {
      out_ += '%';
      ++at_;
      return;
    }
    std::optional<Value> value;
    if (peek() == '(') {
      const std::size_t end = format_.find(')', at_);
      if (end == std::string_view::npos || !values_.is_dict()) {
        runtime_.fail("a \"%(name)\" format needs a dict");
      }
      const std::string name(format_.substr(at_ + 1, end - at_ - 1));
      const Value* found = values_.dict().find(name);
      if (found == nullptr) runtime_.fail("a \"%\" format without the value \"{}\"", name);
      value = *found;
      by_name_ = true;
      at_ = end + 1;
    }
    const Conversion how = read();
    if (!value.has_value()) value = next();
    pad(how, converted(how, *value));
    runtime_.charge(out_.size() / 64);
  }

  std::string converted(const Conversion& how, const Value& value) {
    if (how.alternate) runtime_.fail("the flag \"#\" of a \"%\" format is not supported");
    if (how.type == 's' || how.type == 'r') {
      const std::string text = how.type == 's' ? runtime_.str(value) : runtime_.repr(value);
      if (!how.precision.has_value()) return text;
      std::string cut;
      for (const auto letter : characters(text)) {
        if (count_characters(cut) >= static_cast<std::size_t>(*how.precision)) break;
        cut += letter;
      }
      return cut;
    }
    const bool integral = how.type == 'd' || how.type == 'i' || how.type == 'x';
    if (!integral && std::string_view("feg").find(how.type) == std::string_view::npos) {
      runtime_.fail("the \"%{}\" of a format is not supported", how.type);
    }
    if (value.is_undefined()) runtime_.fail_undefined(value);
    if (!value.is_number()) {
      runtime_.fail("\"%{}\" needs a number, not {}", how.type, type_name(value));
    }
    if (integral && how.precision.has_value()) {
      runtime_.fail("a precision of \"%{}\" is not supported", how.type);
    }
    if (!integral) return real(how, value.number());
    return whole(how, value);
  }

  std::string whole(const Conversion& how, const Value& value) {
    const double number = value.number();
    if (value.is(Kind::kFloat) && (how.type == 'x' || !(std::abs(number) < 9e18))) {
      runtime_.fail("\"%{}\" needs an int", how.type);
    }
    const std::int64_t integer =
        value.is(Kind::kFloat) ? static_cast<std::int64_t>(number) : value.integer();
    const std::uint64_t size =
        integer < 0 ? 0 - static_cast<std::uint64_t>(integer) : static_cast<std::uint64_t>(integer);
    const std::string digits = how.type == 'x' ? fmt::format("{:x}", size) : std::to_string(size);
    return sign(how, integer < 0) + digits;
  }

  std::string real(const Conversion& how, double number) {
    const int precision = how.precision.value_or(6);
    const double size = std::abs(number);
    std::string digits;
    if (how.type == 'f') digits = fmt::format("{:.{}f}", size, precision);
    if (how.type == 'e') digits = fmt::format("{:.{}e}", size, precision);
    if (how.type == 'g') digits = fmt::format("{:.{}g}", size, std::max(precision, 1));
    return sign(how, std::signbit(number) && !std::isnan(number)) + digits;
  }

  static std::string sign(const Conversion& how, bool negative) {
    return negative ? "-" : how.plus ? "+" : how.space ? " " : "";
  }

  void pad(const Conversion& how, const std::string& text) {
    const std::size_t size = count_characters(text);
    const std::size_t missing = how.width > size ? how.width - size : 0;
    if (how.left) {
      (out_ += text).append(missing, ' ');
    } else if (how.zero && how.type != 's' && how.type != 'r') {
      const std::size_t sign = text.find_first_not_of("+- ") == 1 ? 1 : 0;
      (out_ += text.substr(0, sign)).append(missing, '0') += text.substr(sign);
    } else {
      out_.append(missing, ' ') += text;
    }
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  std::size_t at_ = 0;
  std::size_t taken_ = 0;
  bool by_name_ = false;
  std::string out_;
};

}  // namespace

std::string Runtime::percent_format(const std::string& format, const Value& values) {
  return Formatter(*this, format, values).run();
}

}  // namespace atl::text::jinja
