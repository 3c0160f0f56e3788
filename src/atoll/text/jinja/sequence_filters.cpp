// Filters that go through a sequence.

#include <algorithm>
#include <array>
#include <set>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/filter_tables.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

Value value_at_path(Runtime& runtime, Value item, const Value& path,
                    const std::optional<Value>& absent) {
  if (path.is_none()) return item;
  if (path.is_integral()) return runtime.item(item, path);
  const std::string& parts = runtime.want_string(path, "an attribute");
  for (std::size_t begin = 0; begin <= parts.size();) {
    const std::size_t end = std::min(parts.find('.', begin), parts.size());
    const std::string part = parts.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    item = runtime.item(
        item, number ? Value(static_cast<std::int64_t>(std::stol(part))) : runtime.text(part));
    if (item.is_undefined() && absent.has_value()) item = *absent;
    begin = end + 1;
  }
  return item;
}

namespace {

Value lowered(Runtime& runtime, const Value& value) {
  return value.is_string() ? runtime.text(lower(value.string())) : value;
}

Value or_none(const std::optional<Value>& value) {
  return value.has_value() ? *value : None{};
}
bool is_on(const std::optional<Value>& value) {
  return value.has_value() && truthy(*value);
}

Value length(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("length", arguments, {});
  return Value(static_cast<std::int64_t>(runtime.length(self)));
}

Value list(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("list", arguments, {});
  return runtime.list(runtime.iterate(self));
}

Value first(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("first", arguments, {});
  if (self.is(Kind::kIterator)) {
    Iterator& iterator = *self.as<std::shared_ptr<Iterator>>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  } else if (const Values items = runtime.iterate(self); !items.empty()) {
    return items.front();
  }
  return runtime.undefined("there is no first item in what is empty");
}

Value last(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("last", arguments, {});
  if (self.is(Kind::kIterator)) runtime.fail("a generator has no last item; use \"| list | last\"");
  const Values items = runtime.iterate(self);
  return items.empty() ? runtime.undefined("there is no last item in what is empty") : items.back();
}

Value items_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("items", arguments, {});
  Values pairs;
  if (!self.is_undefined()) {
    if (!self.is_dict()) runtime.fail("items needs a dict, not {}", type_name(self));
    for (const auto& [key, value] : self.dict().entries) {
      pairs.push_back(runtime.tuple({key, value}));
    }
  }
  return runtime.iterator("generator", std::move(pairs));
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("join", arguments, {"d", "attribute"});
  const std::string between = bound[0].has_value() ? runtime.str(*bound[0]) : "";
  std::string out;
  bool at_start = true;
  for (const Value& item : runtime.iterate(self)) {
    if (!at_start) out += between;
    at_start = false;
    out += runtime.str(value_at_path(runtime, item, or_none(bound[1]), std::nullopt));
    runtime.charge(between.size());
    if (out.size() > (64U << 20)) runtime.fail("a joined text of more than 64 MB");
  }
  return runtime.text(std::move(out));
}

Value reverse(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("reverse", arguments, {});
  if (self.is_string()) {
    const Value step(std::int64_t{-1});
    return runtime.slice(self, None{}, None{}, step);
  }
  if (self.is_undefined()) runtime.fail_undefined(self);
  Values items = runtime.iterate(self);
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kIterator)) return runtime.list(std::move(items));
  return runtime.iterator("reversed iterator", std::move(items));
}

Value map(Runtime& runtime, const Value& self, Arguments& arguments) {
  Values out;
  // As in Jinja2, None and whatever else counts as false is taken for an empty sequence.
  if (!truthy(self)) return runtime.iterator("generator", {});
  if (arguments.positional.empty()) {
    const auto bound = runtime.bind("map", arguments, {"attribute", "default"}, 1);
    const auto absent = bound[1].has_value() && !bound[1]->is_none() ? bound[1] : std::nullopt;
    for (const Value& item : runtime.iterate(self)) {
      out.push_back(value_at_path(runtime, item, *bound[0], absent));
    }
    return runtime.iterator("generator", std::move(out));
  }
  const std::string name = runtime.want_string(arguments.positional[0], "the filter of map");
  const Builtin filter = find_filter(name);
  if (filter == nullptr) runtime.fail("the filter \"{}\" {}", name, why_not_filter(name));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : runtime.iterate(self)) {
    Arguments passed = arguments;
    out.push_back(filter(runtime, item, passed));
  }
  return runtime.iterator("generator", std::move(out));
}

// select, reject, selectattr and rejectattr: those whose test comes out as `wanted`.
template <bool by_attribute, bool wanted>
Value choose(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!truthy(self)) return runtime.iterator("generator", {});  // see map
  Value path = None{};
  auto& given = arguments.positional;
  if (by_attribute) {
    if (given.empty()) runtime.fail("selectattr and rejectattr need the name of an attribute");
    path = given[0];
    given.erase(given.begin());
  }
  Builtin test = nullptr;
  if (!given.empty()) {
    const std::string name = runtime.want_string(given[0], "the test of a selection");
    test = find_test(name);
    if (test == nullptr) runtime.fail("the test \"{}\" {}", name, why_not_test(name));
    given.erase(given.begin());
  } else if (!arguments.named.empty()) {
    runtime.fail("a selection without a test has no argument \"{}\"", arguments.named[0].first);
  }
  Values out;
  for (const Value& item : runtime.iterate(self)) {
    const Value subject = value_at_path(runtime, item, path, std::nullopt);
    Arguments passed = arguments;
    const bool holds = truthy(test == nullptr ? subject : test(runtime, subject, passed));
    if (holds == wanted) out.push_back(item);
  }
  return runtime.iterator("generator", std::move(out));
}

Values sorted(Runtime& runtime, const std::vector<std::pair<Value, Value>>& keyed, bool reversed) {
  auto order = keyed;
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return reversed ? runtime.less(b.first, a.first) : runtime.less(a.first, b.first);
  });
  Values out;
  for (auto& [key, item] : order) out.push_back(std::move(item));
  return out;
}

Values split_path(Runtime& runtime, const Value& path) {
  if (!path.is_string() || path.string().find(',') == std::string::npos) return {path};
  Arguments comma;
  comma.positional = {runtime.text(",")};
  return find_method(Kind::kString, "split").builtin(runtime, path, comma).items();
}

Value sort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Value path = or_none(bound[2]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : runtime.iterate(self)) {
    Values keys;  // of several attributes with commas between them
    for (const Value& each : split_path(runtime, path)) {
      const Value key = value_at_path(runtime, item, each, std::nullopt);
      keys.push_back(is_on(bound[1]) ? key : lowered(runtime, key));
    }
    keyed.emplace_back(keys.size() == 1 ? keys.front() : runtime.list(std::move(keys)), item);
  }
  return runtime.list(sorted(runtime, keyed, is_on(bound[0])));
}

Value dict_sort(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by =
      bound[1].has_value() ? runtime.want_string(*bound[1], "the \"by\" of dictsort") : "key";
  if (by != "key" && by != "value") runtime.fail("dictsort goes by \"key\" or \"value\"");
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_dict()) runtime.fail("dictsort needs a dict, not {}", type_name(self));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : self.dict().entries) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.emplace_back(is_on(bound[0]) ? sorted_by : lowered(runtime, sorted_by),
                       runtime.tuple({key, value}));
  }
  return runtime.list(sorted(runtime, keyed, is_on(bound[2])));
}

Value unique(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("unique", arguments, {"case_sensitive", "attribute"});
  std::set<std::string> seen;
  Values out;
  for (const Value& item : runtime.iterate(self)) {
    const Value key = value_at_path(runtime, item, or_none(bound[1]), std::nullopt);
    std::string hashed;
    if (!hash_key(is_on(bound[0]) ? key : lowered(runtime, key), hashed)) {
      runtime.fail("unique does not work on values of type {}", type_name(key));
    }
    if (seen.insert(std::move(hashed)).second) out.push_back(item);
  }
  return runtime.iterator("generator", std::move(out));
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("min or max", arguments, {"case_sensitive", "attribute"});
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : runtime.iterate(self)) {
    const Value path_key = value_at_path(runtime, item, or_none(bound[1]), std::nullopt);
    const Value key = is_on(bound[0]) ? path_key : lowered(runtime, path_key);
    if (!best.has_value() ||
        (largest ? runtime.less(best->first, key) : runtime.less(key, best->first))) {
      best = {key, item};
    }
  }
  return best.has_value() ? best->second : runtime.undefined("the min or max of nothing");
}

Value sum(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("sum", arguments, {"attribute", "start"});
  Value total = bound[1].has_value() ? *bound[1] : Value(std::int64_t{0});
  if (total.is_string()) runtime.fail("sum does not add strings; use join");
  for (const Value& item : runtime.iterate(self)) {
    total = runtime.arithmetic(Operation::kAdd, total,
                               value_at_path(runtime, item, or_none(bound[0]), std::nullopt));
  }
  return total;
}

}  // namespace

const std::map<std::string_view, Builtin>& sequence_filters() {
  static const std::map<std::string_view, Builtin> kFilters = {{"count", length},
                                                               {"dictsort", dict_sort},
                                                               {"first", first},
                                                               {"items", items_of},
                                                               {"join", join},
                                                               {"last", last},
                                                               {"length", length},
                                                               {"list", list},
                                                               {"map", map},
                                                               {"max", extreme<true>},
                                                               {"min", extreme<false>},
                                                               {"reject", choose<false, false>},
                                                               {"rejectattr", choose<true, false>},
                                                               {"reverse", reverse},
                                                               {"select", choose<false, true>},
                                                               {"selectattr", choose<true, true>},
                                                               {"sort", sort},
                                                               {"sum", sum},
                                                               {"unique", unique}};
  return kFilters;
}

Builtin find_filter(std::string_view name) {
  for (const auto* table :
       {&value_filters(), &sequence_filters(), &grouping_filters(), &text_filters()}) {
    if (const auto found = table->find(name); found != table->end()) return found->second;
  }
  return nullptr;
}

std::string_view why_not_filter(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kOthers = {
      "filesizeformat", "pprint", "random", "striptags", "wordwrap", "urlize", "xmlattr"};
  const bool known = std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
  return known ? "is not supported" : "does not exist";
}

}  // namespace atl::text::jinja
