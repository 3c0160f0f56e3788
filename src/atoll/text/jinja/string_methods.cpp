// Methods of strings.

#include <algorithm>
#include <limits>
#include <map>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/method_tables.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The bytes of the string that a method is called on, paid for.
const std::string& subject(Runtime& runtime, const Value& self) {
  if (self.is_markup()) runtime.fail("methods of a string marked safe are not supported");
  runtime.charge(self.string().size() * 4);
  return self.string();
}

Value texts(Runtime& runtime, const std::vector<std::string_view>& pieces) {
  Values out;
  for (const auto piece : pieces) out.push_back(runtime.text(std::string(piece)));
  return runtime.list(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("this method", arguments, {});
  return runtime.text(change(subject(runtime, self)));
}

template <Ends ends>
Value strip_ends(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("strip", arguments, {"chars"});
  const std::string& text = subject(runtime, self);
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return runtime.text(std::string(strip(text, ends)));
  }
  const std::string& set = runtime.want_string(*bound[0], "what strip takes away");
  // Every character of the text may be compared with every one of the set.
  runtime.charge(std::min<std::size_t>(text.size() * (set.size() / 16 + 1), 1U << 30));
  return runtime.text(std::string(strip(text, set, ends)));
}

// White space separates; what is left after `limit` splits stays as it is.
std::vector<std::string_view> split_space(std::string_view text, std::int64_t limit,
                                          bool from_right) {
  std::vector<std::string_view> pieces;
  const Ends near = from_right ? Ends::kRight : Ends::kLeft;
  text = strip(text, near);
  while (!text.empty()) {
    if (static_cast<std::int64_t>(pieces.size()) == limit) {
      pieces.push_back(text);
      break;
    }
    std::size_t size = 0;
    while (size < text.size()) {
      const std::string_view rest =
          from_right ? text.substr(0, text.size() - size) : text.substr(size);
      const std::string_view stripped = strip(rest, near);
      if (stripped.size() != rest.size()) break;
      ++size;
    }
    pieces.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    text = from_right ? text.substr(0, text.size() - size) : text.substr(size);
    text = strip(text, near);
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t limit) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  while (static_cast<std::int64_t>(pieces.size()) < limit) {
    const std::size_t end = find(text, separator, begin);
    if (end == std::string_view::npos) break;
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> split_at_right(std::string_view text, std::string_view separator,
                                             std::int64_t limit) {
  std::vector<std::string_view> pieces;
  while (static_cast<std::int64_t>(pieces.size()) < limit) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// Searching from the right may compare the whole needle at every place.
void charge_right(Runtime& runtime, std::size_t text, std::size_t needle) {
  runtime.charge(std::min<std::size_t>(text * (needle / 16 + 1), 1U << 30));
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("split", arguments, {"sep", "maxsplit"});
  const std::string& text = subject(runtime, self);
  std::int64_t limit =
      bound[1].has_value() ? runtime.want_integer(*bound[1], "the limit of split") : -1;
  if (limit < 0) limit = kNoLimit;
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return texts(runtime, split_space(text, limit, from_right));
  }
  const std::string& separator = runtime.want_string(*bound[0], "the separator of split");
  if (separator.empty()) runtime.fail("split needs a separator that is not empty");
  if (!from_right) return texts(runtime, split_at(text, separator, limit));
  charge_right(runtime, text.size(), separator.size());
  return texts(runtime, split_at_right(text, separator, limit));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("splitlines", arguments, {});
  return texts(runtime, split_lines(subject(runtime, self)));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("partition", arguments, {"sep"}, 1);
  const std::string_view text = subject(runtime, self);
  const std::string& separator = runtime.want_string(*bound[0], "the separator of partition");
  if (separator.empty()) runtime.fail("partition needs a separator that is not empty");
  if (from_right) charge_right(runtime, text.size(), separator.size());
  const std::size_t at = from_right ? text.rfind(separator) : find(text, separator);
  const auto piece = [&](std::string_view part) { return runtime.text(std::string(part)); };
  if (at == std::string_view::npos) {
    return from_right ? runtime.tuple({piece(""), piece(""), piece(text)})
                      : runtime.tuple({piece(text), piece(""), piece("")});
  }
  return runtime.tuple(
      {piece(text.substr(0, at)), piece(separator), piece(text.substr(at + separator.size()))});
}

template <bool at_start>
Value has_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("startswith and endswith", arguments, {"affix"}, 1);
  const std::string_view text = subject(runtime, self);
  const auto matches = [&](const Value& value) {
    const std::string& affix = runtime.want_string(value, "what startswith looks for");
    return at_start ? text.starts_with(affix) : text.ends_with(affix);
  };
  if (!bound[0]->is(Kind::kTuple)) return Value(matches(*bound[0]));
  const Values& items = bound[0]->items();
  return Value(std::any_of(items.begin(), items.end(), matches));
}

template <bool at_start>
Value remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("removeprefix and removesuffix", arguments, {"affix"}, 1);
  std::string_view text = subject(runtime, self);
  const std::string& affix = runtime.want_string(*bound[0], "what is removed");
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return runtime.text(std::string(text));
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("replace", arguments, {"old", "new", "count"}, 2);
  const std::string_view text = subject(runtime, self);
  const std::string& old = runtime.want_string(*bound[0], "what is replaced");
  const std::string& by = runtime.want_string(*bound[1], "what it is replaced by");
  std::int64_t left =
      bound[2].has_value() ? runtime.want_integer(*bound[2], "the count of replace") : -1;
  if (left < 0) left = kNoLimit;
  std::string out;
  const auto put = [&](std::string_view piece) {
    out += piece;
    runtime.charge(piece.size());
    if (out.size() > (64U << 20)) runtime.fail("a replaced text of more than 64 MB");
  };
  if (old.empty()) {
    for (const auto character : characters(text)) {
      if (left-- > 0) put(by);
      put(character);
    }
    if (left > 0) put(by);
    return runtime.text(std::move(out));
  }
  std::size_t begin = 0;
  while (left-- > 0) {
    const std::size_t at = find(text, old, begin);
    if (at == std::string_view::npos) break;
    put(text.substr(begin, at - begin));
    put(by);
    begin = at + old.size();
  }
  put(text.substr(begin));
  return runtime.text(std::move(out));
}

// find, rfind, index and rindex: the character at which the needle stands.
template <bool from_right, bool must_be_there>
Value locate(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("find", arguments, {"sub"}, 1);
  const std::string_view text = subject(runtime, self);
  const std::string& needle = runtime.want_string(*bound[0], "what is looked for");
  if (from_right) charge_right(runtime, text.size(), needle.size());
  const std::size_t at = from_right ? text.rfind(needle) : find(text, needle);
  if (at == std::string_view::npos) {
    if (must_be_there) runtime.fail("\"{}\" is not in the string", needle);
    return Value(std::int64_t{-1});
  }
  return Value(static_cast<std::int64_t>(count_characters(text.substr(0, at))));
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("count", arguments, {"sub"}, 1);
  const std::string_view text = subject(runtime, self);
  const std::string& needle = runtime.want_string(*bound[0], "what is counted");
  if (needle.empty()) return Value(static_cast<std::int64_t>(count_characters(text) + 1));
  return Value(static_cast<std::int64_t>(split_at(text, needle, kNoLimit).size()) - 1);
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("join", arguments, {"iterable"}, 1);
  const std::string& between = subject(runtime, self);
  std::string out;
  bool at_start = true;
  for (const Value& item : runtime.iterate(*bound[0])) {
    if (!at_start) out += between;
    at_start = false;
    out += runtime.want_string(item, "what is joined");
    runtime.charge(between.size());
    if (out.size() > (64U << 20)) runtime.fail("a joined text of more than 64 MB");
  }
  return runtime.text(std::move(out));
}

template <bool (*holds)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("this method", arguments, {});
  const auto all = characters(subject(runtime, self));
  return Value(!all.empty() &&
               std::all_of(all.begin(), all.end(), [](auto c) { return holds(code_point(c)); }));
}

bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

template <int wanted>
Value is_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  Arguments none;
  runtime.bind("this method", arguments, {});
  return find_test(wanted > 0 ? "upper" : "lower")(runtime, self, none);
}

// ljust, rjust and center: -1, 1 and 0 say where the text goes.
template <int where>
Value justify(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("this method", arguments, {"width", "fillchar"}, 1);
  const std::string& text = subject(runtime, self);
  const std::string fill =
      bound[1].has_value() ? runtime.want_string(*bound[1], "what fills up") : " ";
  if (count_characters(fill) != 1) runtime.fail("what fills up must be one character");
  const std::int64_t width = runtime.want_integer(*bound[0], "a width");
  if (width > (1 << 20)) runtime.fail("a width of {} characters", width);
  const std::int64_t missing =
      std::max<std::int64_t>(width - static_cast<std::int64_t>(count_characters(text)), 0);
  // Python's str.center puts the odd one to the left only where the width is odd.
  const std::int64_t before = where < 0   ? 0
                              : where > 0 ? missing
                                          : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (std::int64_t i = before; i < missing; ++i) out += fill;
  return runtime.text(std::move(out));
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("zfill", arguments, {"width"}, 1);
  const std::string& text = subject(runtime, self);
  const std::int64_t width = runtime.want_integer(*bound[0], "a width");
  if (width > (1 << 20)) runtime.fail("a width of {} characters", width);
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const std::size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const auto zeros = static_cast<std::size_t>(std::max<std::int64_t>(width - size, 0));
  return runtime.text(text.substr(0, sign) + std::string(zeros, '0') + text.substr(sign));
}

// str.format with {}, {0}, {name}, {{ and }}; attributes, conversions and widths are refused.
Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = subject(runtime, self);
  std::string out;
  std::size_t next = 0;
  const auto field = [&](const std::string& name) -> const Value& {
    if (name.find_first_of(".[:!{") != std::string::npos) {
      runtime.fail("the field \"{}\" of format is not supported", name);
    }
    const bool numbered = name.find_first_not_of("0123456789") == std::string::npos;
    if (numbered && name.size() < 10) {
      const std::size_t at = name.empty() ? next++ : std::stoul(name);
      if (at < arguments.positional.size()) return arguments.positional[at];
    }
    for (const auto& [other, value] : arguments.named) {
      if (other == name) return value;
    }
    runtime.fail("format is not given the field \"{}\"", name);
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      out += c;
    } else if (at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
    } else {
      const std::size_t end = c == '{' ? text.find('}', at) : std::string::npos;
      if (end == std::string::npos) runtime.fail("a \"{}\" without its partner in format", c);
      out += runtime.str(field(text.substr(at + 1, end - at - 1)));
      runtime.charge(end - at);
      if (out.size() > (64U << 20)) runtime.fail("a formatted text of more than 64 MB");
      at = end;
    }
  }
  return runtime.text(std::move(out));
}

}  // namespace

const std::map<std::string_view, Builtin>& string_methods() {
  static const std::map<std::string_view, Builtin> kMethods = {
      {"capitalize", changed<capitalize>},
      {"center", justify<0>},
      {"count", count},
      {"endswith", has_affix<false>},
      {"find", locate<false, false>},
      {"format", format},
      {"index", locate<false, true>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_alpha>},
      {"isdigit", all_are<is_digit>},
      {"islower", is_case<-1>},
      {"isnumeric", all_are<is_numeric>},
      {"isspace", all_are<is_space>},
      {"isupper", is_case<1>},
      {"join", join},
      {"ljust", justify<-1>},
      {"lower", changed<lower>},
      {"lstrip", strip_ends<Ends::kLeft>},
      {"partition", partition<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace},
      {"rfind", locate<true, false>},
      {"rindex", locate<true, true>},
      {"rjust", justify<1>},
      {"rpartition", partition<true>},
      {"rsplit", split<true>},
      {"rstrip", strip_ends<Ends::kRight>},
      {"split", split<false>},
      {"splitlines", splitlines},
      {"startswith", has_affix<true>},
      {"strip", strip_ends<Ends::kBoth>},
      {"swapcase", changed<swapcase>},
      {"title", changed<title>},
      {"upper", changed<upper>},
      {"zfill", zfill}};
  return kMethods;
}

}  // namespace atl::text::jinja
