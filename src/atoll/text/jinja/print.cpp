// Values as text: str(), repr() and JSON.

#include <algorithm>
#include <cmath>

#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

std::string Runtime::str(const Value& value) {
  charge(0);
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return {};
  return repr(value);
}

std::string Runtime::repr(const Value& value) {
  std::string out;
  append_repr(value, out, 0);
  return out;
}

void Runtime::append_entries(const Dict& dict, std::string& out, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, entry] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    append_repr(key, out, depth);
    out += ": ";
    append_repr(entry, out, depth);
  }
  out += '}';
}

void Runtime::append_repr(const Value& value, std::string& out, int depth) {
  charge(0);
  check_size(out);
  if (depth > 2 * kMaxValueDepth) fail("a namespace that contains itself cannot be printed");
  const auto join = [&](const Values& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(items[i], out, depth + 1);
    }
  };
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as<bool>() ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.as<std::int64_t>());
      return;
    case Kind::kFloat:
      out += float_repr(value.as<double>());
      return;
    case Kind::kString:
      charge(value.string().size());
      if (value.is_markup()) out += "Markup(";
      jinja::append_repr(value.string(), out);
      if (value.is_markup()) out += ')';
      return;
    case Kind::kList:
      out += '[';
      join(value.items());
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      join(value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict:
      append_entries(value.dict(), out, depth + 1);
      return;
    case Kind::kRange: {
      const Range range = value.as<Range>();
      out += range.step == 1
                 ? fmt::format("range({}, {})", range.start, range.stop)
                 : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      return;
    }
    case Kind::kView:
      (out += type_name(value)) += "([";
      join(iterate(value));
      out += "])";
      return;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_entries(value.as<Namespace*>()->attributes, out, depth + 1);
      out += '>';
      return;
    case Kind::kIterator:
    case Kind::kFunction:
    case Kind::kLoop:
      fail("printing a value of type {} is not supported; \"| list\" prints a generator",
           type_name(value));
  }
}

/// Writes one value as JSON.
class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const Runtime::JsonStyle& style)
      : runtime_(runtime), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void new_line(int level) {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
    runtime_.check_size(out_);
  }

  void number(double value) {
    out_ += std::isnan(value)   ? "NaN"
            : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity")
                                : float_repr(value);
  }

  void key(const Value& value) {
    if (value.is_string()) {
      string(value);
      return;
    }
    if (!value.is_number() && !value.is_none()) {
      runtime_.fail("a value of type {} cannot be a key in JSON", type_name(value));
    }
    out_ += '"';
    write(value, 0);
    out_ += '"';
  }

  void string(const Value& value) {
    runtime_.charge(value.string().size());
    append_json(value.string(), style_.ascii, out_);
  }

  void object(const Dict& dict, int level) {
    auto entries = dict.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return runtime_.less(a.first, b.first);
      });
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      key(entries[i].first);
      out_ += style_.key_separator;
      write(entries[i].second, level + 1);
    }
    if (!entries.empty()) new_line(level);
  }

  void write(const Value& value, int level) {
    runtime_.charge(0);
    runtime_.check_size(out_);
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.as<bool>() ? "true" : "false";
        return;
      case Kind::kInt:
        out_ += std::to_string(value.as<std::int64_t>());
        return;
      case Kind::kFloat:
        number(value.as<double>());
        return;
      case Kind::kString:
        string(value);
        return;
      case Kind::kList:
      case Kind::kTuple:
        out_ += '[';
        for (std::size_t i = 0; i < value.items().size(); ++i) {
          if (i > 0) out_ += style_.item_separator;
          new_line(level + 1);
          write(value.items()[i], level + 1);
        }
        if (!value.items().empty()) new_line(level);
        out_ += ']';
        return;
      case Kind::kDict:
        out_ += '{';
        object(value.dict(), level);
        out_ += '}';
        return;
      default:
        if (value.is_undefined() && value.as<Undefined>().why != nullptr) {
          runtime_.fail("{}, so it cannot become JSON", *value.as<Undefined>().why);
        }
        runtime_.fail("a value of type {} cannot become JSON", type_name(value));
    }
  }

  Runtime& runtime_;
  const Runtime::JsonStyle& style_;
  std::string out_;
};

std::string Runtime::json(const Value& value, const JsonStyle& style) {
  return JsonWriter(*this, style).run(value);
}

}  // namespace atl::text::jinja
