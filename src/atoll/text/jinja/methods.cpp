// Methods of lists, tuples and dicts, and which methods there are at all.

#include <algorithm>
#include <array>
#include <map>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/method_tables.h"
#include "atoll/text/jinja/runtime.h"

namespace atl::text::jinja {

namespace {

Value list_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("count", arguments, {"value"}, 1);
  std::int64_t times = 0;
  for (const Value& item : self.items()) times += runtime.equal(item, *bound[0]) ? 1 : 0;
  return Value(times);
}

Value list_index(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("index", arguments, {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (runtime.equal(self.items()[i], *bound[0])) return Value(static_cast<std::int64_t>(i));
  }
  runtime.fail("{} is not in the list", runtime.repr(*bound[0]));
}

Value itself(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("copy", arguments, {});
  return self;
}

Value dict_get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("get", arguments, {"key", "default"}, 1);
  std::string hashed;
  const Value absent = bound[1].has_value() ? *bound[1] : Value(None{});
  if (bound[0]->is_undefined()) return absent;
  if (!hash_key(*bound[0], hashed)) {
    runtime.fail("a value of type {} cannot be a key", type_name(*bound[0]));
  }
  const Value* found = self.dict().find(hashed);
  return found == nullptr ? absent : *found;
}

template <View::Of of>
Value dict_view(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("this method", arguments, {});
  return Value(View{self.as<std::shared_ptr<const Dict>>(), of});
}

using Table = std::map<std::string_view, Builtin>;

const Table& other_methods(Kind kind) {
  static const Table kList = {{"copy", itself}, {"count", list_count}, {"index", list_index}};
  static const Table kTuple = {{"count", list_count}, {"index", list_index}};
  static const Table kDict = {{"copy", itself},
                              {"get", dict_get},
                              {"items", dict_view<View::Of::kItems>},
                              {"keys", dict_view<View::Of::kKeys>},
                              {"values", dict_view<View::Of::kValues>}};
  static const Table kNothing;
  if (kind == Kind::kList) return kList;
  if (kind == Kind::kTuple) return kTuple;
  return kind == Kind::kDict ? kDict : kNothing;
}

template <std::size_t size>
bool among(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_forbidden(Kind kind, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOfLists = {
      "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kOfDicts = {"clear", "pop", "popitem",
                                                               "setdefault", "update"};
  return kind == Kind::kList ? among(kOfLists, name) : kind == Kind::kDict && among(kOfDicts, name);
}

bool is_unsupported(Kind kind, std::string_view name) {
  static constexpr std::array<std::string_view, 11> kOfStrings = {
      "casefold",     "encode",      "expandtabs", "format_map", "isascii",  "isdecimal",
      "isidentifier", "isprintable", "istitle",    "maketrans",  "translate"};
  static constexpr std::array<std::string_view, 12> kOfNumbers = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate",  "denominator", "from_bytes",
      "fromhex",          "hex",       "imag",       "is_integer", "numerator",   "real"};
  if (kind == Kind::kString) return among(kOfStrings, name);
  if (kind == Kind::kDict) return name == "fromkeys";
  if (kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat) {
    return among(kOfNumbers, name) || name == "to_bytes";
  }
  // Those of generators, views and ranges, and what a macro tells about itself.
  static constexpr std::array<std::string_view, 15> kOfOthers = {
      "send",       "throw",        "close",     "gi_code",      "gi_frame",
      "gi_running", "gi_yieldfrom", "mapping",   "isdisjoint",   "start",
      "stop",       "step",         "arguments", "catch_kwargs", "catch_varargs"};
  const bool other = kind == Kind::kRange || kind == Kind::kView || kind == Kind::kIterator ||
                     kind == Kind::kFunction;
  return other && (among(kOfOthers, name) ||
                   (kind == Kind::kRange && (name == "index" || name == "count")) ||
                   (kind == Kind::kFunction && name == "name"));
}

}  // namespace

MethodLookup find_method(Kind kind, std::string_view name) {
  using Result = MethodLookup::Result;
  const Table& table = kind == Kind::kString ? string_methods() : other_methods(kind);
  if (const auto found = table.find(name); found != table.end()) {
    return {.result = Result::kFound, .builtin = found->second};
  }
  if (is_forbidden(kind, name)) return {.result = Result::kForbidden};
  return {.result = is_unsupported(kind, name) ? Result::kUnsupported : Result::kAbsent};
}

}  // namespace atl::text::jinja
