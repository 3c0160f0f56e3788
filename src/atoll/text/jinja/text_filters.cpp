// Filters that lay out or encode a text: center, forceescape, truncate, urlencode.

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/filter_tables.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

Value center(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("center", arguments, {"width"});
  Arguments passed;
  passed.positional = {bound[0].has_value() ? *bound[0] : Value(std::int64_t{80})};
  const Value from = runtime.text(runtime.str(self));
  return find_method(Kind::kString, "center").builtin(runtime, from, passed);
}

Value force_escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("forceescape", arguments, {});
  return runtime.text(escape_html(runtime.str(self)), true);
}

// The first `count` characters.
std::string_view beginning(std::string_view text, std::size_t count) {
  std::size_t bytes = 0;
  for (const auto character : characters(text)) {
    if (count-- == 0) break;
    bytes += character.size();
  }
  return text.substr(0, bytes);
}

Value truncate(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const auto number = [&](std::size_t i, std::int64_t absent, std::string_view what) {
    return bound[i].has_value() && !bound[i]->is_none() ? runtime.want_integer(*bound[i], what)
                                                        : absent;
  };
  const std::int64_t length = number(0, 255, "the length of truncate");
  const std::int64_t leeway = number(3, 5, "the leeway of truncate");
  const std::string end =
      bound[2].has_value() ? runtime.want_string(*bound[2], "the end of truncate") : "...";
  const std::string& from = runtime.want_string(self, "what truncate cuts");
  runtime.charge(from.size());
  const auto end_length = static_cast<std::int64_t>(count_characters(end));
  if (length < end_length) runtime.fail("truncate to {} characters: \"{}\" is longer", length, end);
  if (leeway < 0) runtime.fail("the leeway of truncate is {}; 0 is the least", leeway);
  // Compared in this order, because a sum may be too large.
  if (static_cast<std::int64_t>(count_characters(from)) - length <= leeway) return self;
  std::string_view kept = beginning(from, static_cast<std::size_t>(length - end_length));
  const bool splits_words = bound[1].has_value() && truthy(*bound[1]);
  if (!splits_words) kept = kept.substr(0, kept.rfind(' '));
  return runtime.text(std::string(kept) + end);
}

std::string quoted(Runtime& runtime, const Value& value, bool in_query) {
  constexpr std::string_view kPlain = "_.-~";
  const std::string text = runtime.str(value);
  runtime.charge(text.size() * 3);
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                          (c >= 'a' && c <= 'z') || kPlain.find(c) != std::string_view::npos;
    if (is_plain || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// A string, or the pairs of a query.
Value url_encode(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("urlencode", arguments, {});
  const bool is_query = self.is_dict() || self.is_sequence() || self.is(Kind::kView);
  if (!is_query) return runtime.text(quoted(runtime, self, false));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    out +=
        (out.empty() ? "" : "&") + quoted(runtime, key, true) + "=" + quoted(runtime, value, true);
  };
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().entries) add(key, value);
    return runtime.text(std::move(out));
  }
  for (const Value& pair : runtime.iterate(self)) {
    const Values both = runtime.iterate(pair);
    if (both.size() != 2) runtime.fail("urlencode needs pairs of name and value");
    add(both[0], both[1]);
  }
  return runtime.text(std::move(out));
}

}  // namespace

const std::map<std::string_view, Builtin>& text_filters() {
  static const std::map<std::string_view, Builtin> kFilters = {{"center", center},
                                                               {"forceescape", force_escape},
                                                               {"truncate", truncate},
                                                               {"urlencode", url_encode}};
  return kFilters;
}

}  // namespace atl::text::jinja
