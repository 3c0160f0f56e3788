// Filters on single values: texts, numbers, JSON. Those on sequences: sequence_filters.cpp.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/filter_tables.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

// The subject as a string, paid for; the mark of `safe` stays.
struct Subject {
  std::string bytes;
  bool markup;
};
Subject subject(Runtime& runtime, const Value& self) {
  Subject made{.bytes = runtime.str(self), .markup = self.is_markup()};
  runtime.charge(made.bytes.size() * 4);
  return made;
}

template <std::string (*change)(std::string_view)>
Value changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("this filter", arguments, {});
  const Subject from = subject(runtime, self);
  return runtime.text(change(from.bytes), from.markup);
}

Value trim(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("trim", arguments, {"chars"});
  const Subject from = subject(runtime, self);
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return runtime.text(std::string(strip(from.bytes, Ends::kBoth)), from.markup);
  }
  const std::string& set = runtime.want_string(*bound[0], "what trim takes away");
  runtime.charge(set.size() * 64);
  return runtime.text(std::string(strip(from.bytes, set, Ends::kBoth)), from.markup);
}

// Jinja2's own idea of words: white space, - ( { [ < end one.
std::string title_words(std::string_view text) {
  std::string out;
  std::string word;
  const auto end_word = [&] {
    const auto all = characters(word);
    if (!all.empty()) {
      out += upper(all[0]) + lower(std::string_view(word).substr(all[0].size()));
    }
    word.clear();
  };
  bool separating = false;
  for (const auto character : characters(text)) {
    const bool separator = is_space(code_point(character)) ||
                           std::string_view("-({[<").find(character) != std::string_view::npos;
    if (separator != separating) end_word();
    separating = separator;
    word += character;
  }
  end_word();
  return out;
}

Value string(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("string", arguments, {});
  return self.is_string() ? self : runtime.text(runtime.str(self));
}

Value safe(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("safe", arguments, {});
  return runtime.text(runtime.str(self), true);
}

Value escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("escape", arguments, {});
  if (self.is_markup()) return self;
  return runtime.text(escape_html(runtime.str(self)), true);
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("replace", arguments, {"old", "new", "count"}, 2);
  if (self.is_markup()) runtime.fail("replace on a string marked safe is not supported");
  Arguments passed;
  passed.positional = {runtime.text(runtime.str(*bound[0])), runtime.text(runtime.str(*bound[1]))};
  if (bound[2].has_value() && !bound[2]->is_none()) passed.positional.push_back(*bound[2]);
  const Value from = runtime.text(runtime.str(self));
  return find_method(Kind::kString, "replace").builtin(runtime, from, passed);
}

Value default_value(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("default", arguments, {"default_value", "boolean"});
  const bool also_false = bound[1].has_value() && truthy(*bound[1]);
  const bool missing = self.is_undefined() || (also_false && !truthy(self));
  if (!missing) return self;
  return bound[0].has_value() ? *bound[0] : runtime.text("");
}

// What Python's float(text) and int(text) take: white space round it, underscores between digits.
std::string plain_number(std::string_view text) {
  text = strip(text, Ends::kBoth);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out += text[i];
  }
  return out;
}

std::optional<double> parse_float(std::string_view text) {
  const std::string number = plain_number(text);
  // strtod also takes hexadecimal numbers and nan(...), which Python does not.
  const std::string small = lower(number);
  const std::string unsigned_name =
      !small.empty() && (small[0] == '+' || small[0] == '-') ? small.substr(1) : small;
  const bool is_name =
      unsigned_name == "nan" || unsigned_name == "inf" || unsigned_name == "infinity";
  if (!is_name && number.find_first_not_of("0123456789+-.eE") != std::string::npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0') return std::nullopt;
  return value;
}

std::int64_t whole(Runtime& runtime, double number) {
  if (!(std::abs(number) < 9.2e18)) runtime.fail("the number {} is too large for an int", number);
  return static_cast<std::int64_t>(number);
}

Value to_int(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("int", arguments, {"default", "base"});
  const Value absent = bound[0].has_value() ? *bound[0] : Value(std::int64_t{0});
  if (bound[1].has_value() && !runtime.equal(*bound[1], Value(std::int64_t{10}))) {
    runtime.fail("int with a base other than 10 is not supported");
  }
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (self.is_integral()) return Value(self.integer());
  if (self.is(Kind::kFloat)) {
    return std::isnan(self.number()) ? absent : Value(whole(runtime, self.number()));
  }
  if (!self.is_string()) return absent;
  runtime.charge(self.string().size());
  const std::string number = plain_number(self.string());
  const std::size_t sign = !number.empty() && (number[0] == '+' || number[0] == '-') ? 1 : 0;
  if (number.size() > sign && number.find_first_not_of("0123456789", sign) == std::string::npos) {
    errno = 0;
    const long long value = std::strtoll(number.c_str(), nullptr, 10);
    if (errno == ERANGE) runtime.fail("the number {} is too large for an int", number);
    return Value(static_cast<std::int64_t>(value));
  }
  const auto real = parse_float(self.string());
  if (!real.has_value() || !std::isfinite(*real)) return absent;
  return Value(whole(runtime, *real));
}

Value to_float(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("float", arguments, {"default"});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (self.is_number()) return Value(self.number());
  if (self.is_string()) {
    runtime.charge(self.string().size());
    if (const auto real = parse_float(self.string())) return Value(*real);
  }
  return bound[0].has_value() ? *bound[0] : Value(0.0);
}

Value absolute(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("abs", arguments, {});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_number()) runtime.fail("abs of a value of type {}", type_name(self));
  if (self.is(Kind::kFloat)) return Value(std::abs(self.number()));
  return self.integer() < 0 ? runtime.sign(Operation::kNegate, self) : Value(self.integer());
}

Value round(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("round", arguments, {"precision", "method"});
  const std::int64_t digits =
      bound[0].has_value() ? runtime.want_integer(*bound[0], "the precision of round") : 0;
  const std::string method =
      bound[1].has_value() ? runtime.want_string(*bound[1], "the method of round") : "common";
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_number()) runtime.fail("round of a value of type {}", type_name(self));
  if (digits < 0 || digits > 300) runtime.fail("round to {} digits is not supported", digits);
  if (method == "common") {
    if (self.is_integral()) return Value(self.integer());
    // printf rounds the exact value half to even, which is what Python's round does.
    return Value(std::strtod(fmt::format("{:.{}f}", self.number(), digits).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") runtime.fail("round has no method \"{}\"", method);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value indent(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("indent", arguments, {"width", "first", "blank"});
  std::string by(4, ' ');
  if (bound[0].has_value()) {
    by = bound[0]->is_string() ? bound[0]->string() : std::string();
    if (!bound[0]->is_string()) {
      const std::int64_t width = runtime.want_integer(*bound[0], "the width of indent");
      if (width > 10'000) runtime.fail("an indent of {} characters", width);
      by.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  const bool first = bound[1].has_value() && truthy(*bound[1]);
  const bool blank = bound[2].has_value() && truthy(*bound[2]);
  const Subject from = subject(runtime, self);
  const std::string ended = from.bytes + "\n";  // as Jinja2, so that there is always a line
  std::string out = first ? by : "";
  bool at_start = true;
  for (const std::string_view line : split_lines(ended)) {
    if (!at_start) {
      out += '\n';
      if (blank || !line.empty()) out += by;
    }
    at_start = false;
    out += line;
    runtime.charge(by.size());
    if (out.size() > (64U << 20)) runtime.fail("an indented text of more than 64 MB");
  }
  return runtime.text(std::move(out), from.markup);
}

Value to_json(Runtime& runtime, const Value& self, Arguments& arguments) {
  // The first is the value itself in transformers' filter, so that it has no place here.
  const auto bound =
      runtime.bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Runtime::JsonStyle style;
  style.ascii = bound[0].has_value() && truthy(*bound[0]);
  style.sort_keys = bound[3].has_value() && truthy(*bound[3]);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    if (bound[1]->is_string()) {
      style.indent = bound[1]->string();
    } else {
      const std::int64_t width = runtime.want_integer(*bound[1], "the indent of tojson");
      if (width > 1000) runtime.fail("an indent of {} characters", width);
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    const Values both = runtime.iterate(*bound[2]);
    if (both.size() != 2) runtime.fail("the separators of tojson are two, not {}", both.size());
    style.item_separator = runtime.want_string(both[0], "a separator of tojson");
    style.key_separator = runtime.want_string(both[1], "a separator of tojson");
  }
  return runtime.text(runtime.json(self, style));
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    runtime.fail("format takes values by place or by name, not both");
  }
  if (self.is_markup()) runtime.fail("format on a string marked safe is not supported");
  Dict by_name;
  for (const auto& [name, value] : arguments.named) runtime.set(by_name, Value(name), value);
  const Value values = arguments.named.empty() ? runtime.tuple(std::move(arguments.positional))
                                               : runtime.dict(std::move(by_name));
  return runtime.text(runtime.percent_format(runtime.str(self), values));
}

Value count_words(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("wordcount", arguments, {});
  std::int64_t words = 0;
  bool inside = false;
  const Subject from = subject(runtime, self);
  for (const auto character : characters(from.bytes)) {
    const char32_t c = code_point(character);
    const bool in_word = is_alpha(c) || is_numeric(c) || c == '_';
    words += in_word && !inside ? 1 : 0;
    inside = in_word;
  }
  return Value(words);
}

Value attribute(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("attr", arguments, {"name"}, 1);
  const std::string& name = runtime.want_string(*bound[0], "the name of attr");
  // Unlike "a.name", attr never looks at the entries of a dict.
  if (self.is_dict() && find_method(Kind::kDict, name).result == MethodLookup::Result::kAbsent) {
    return runtime.undefined("a dict object has no attribute \"{}\"", name);
  }
  return runtime.attribute(self, name);
}

}  // namespace

const std::map<std::string_view, Builtin>& value_filters() {
  static const std::map<std::string_view, Builtin> kFilters = {{"abs", absolute},
                                                               {"attr", attribute},
                                                               {"capitalize", changed<capitalize>},
                                                               {"d", default_value},
                                                               {"default", default_value},
                                                               {"e", escape},
                                                               {"escape", escape},
                                                               {"float", to_float},
                                                               {"format", format},
                                                               {"indent", indent},
                                                               {"int", to_int},
                                                               {"lower", changed<lower>},
                                                               {"replace", replace},
                                                               {"round", round},
                                                               {"safe", safe},
                                                               {"string", string},
                                                               {"title", changed<title_words>},
                                                               {"tojson", to_json},
                                                               {"trim", trim},
                                                               {"upper", changed<upper>},
                                                               {"wordcount", count_words}};
  return kFilters;
}

}  // namespace atl::text::jinja
