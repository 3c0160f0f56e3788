#include "atoll/text/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace atl::text::jinja {

std::size_t Range::size() const {
  if (step > 0 && start < stop) {
    return static_cast<std::size_t>(
        (static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start) - 1) /
            static_cast<std::uint64_t>(step) +
        1);
  }
  if (step < 0 && start > stop) {
    const std::uint64_t stride = 0 - static_cast<std::uint64_t>(step);
    return static_cast<std::size_t>(
        (static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop) - 1) / stride + 1);
  }
  return 0;
}

const Value* Dict::find(const std::string& hashed) const {
  const auto found = index.find(hashed);
  return found == index.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(Value key, std::string hashed, Value value) {
  depth = std::max({depth, depth_of(key) + 1, depth_of(value) + 1});
  const auto [at, added] = index.emplace(std::move(hashed), entries.size());
  if (added) {
    entries.emplace_back(std::move(key), std::move(value));
  } else {
    entries[at->second].second = std::move(value);
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView: {
      static constexpr std::array<std::string_view, 3> kNames = {"dict_keys", "dict_values",
                                                                 "dict_items"};
      return kNames[static_cast<std::size_t>(value.as<View>().of)];
    }
    case Kind::kIterator:
      return value.as<std::shared_ptr<Iterator>>()->type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.unwatched().depth;
  if (value.is_dict()) return value.dict().depth;
  if (value.is(Kind::kView)) return value.as<View>().dict->depth + 1;
  if (value.is(Kind::kIterator)) {
    int depth = 0;
    for (const Value& item : value.as<std::shared_ptr<Iterator>>()->items) {
      depth = std::max(depth, depth_of(item));
    }
    return depth + 1;
  }
  if (value.is(Kind::kFunction)) {
    return depth_of(value.as<std::shared_ptr<const Function>>()->self) + 1;
  }
  return 0;
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.as<double>() != 0;
    case Kind::kString:
      return !value.string().empty();
    case Kind::kList:
    case Kind::kTuple: {
      const Sequence& sequence = value.unwatched();
      if (sequence.items.empty()) return !value.items().empty();  // others may follow
      if (sequence.watch != nullptr) sequence.watch->needs(sequence.offset + 1);
      return true;
    }
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.as<Range>().size() != 0;
    case Kind::kView:
      return !value.as<View>().dict->entries.empty();
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kLoop:
      return true;
  }
  return false;
}

bool hash_key(const Value& value, std::string& out) {
  // 0xFF starts no UTF-8, so that no string has the key of another kind of value.
  constexpr char kMark = '\xFF';
  constexpr std::size_t kMaxBytes = 1U << 20;
  switch (value.kind()) {
    case Kind::kString:
      out += value.string();
      return true;
    case Kind::kNone:
      (out += kMark) += 'N';
      return true;
    case Kind::kBool:
    case Kind::kInt:
      ((out += kMark) += 'i') += std::to_string(value.integer());
      return true;
    case Kind::kFloat: {
      const double number = value.as<double>();
      if (std::trunc(number) == number && std::abs(number) < 9.2e18) {
        ((out += kMark) += 'i') += std::to_string(static_cast<std::int64_t>(number));
      } else {
        ((out += kMark) += 'f') += float_repr(number);
      }
      return true;
    }
    case Kind::kTuple:
      (out += kMark) += '(';
      for (const Value& item : value.items()) {
        std::string part;
        if (out.size() > kMaxBytes || !hash_key(item, part)) return false;
        ((out += std::to_string(part.size())) += ':') += part;
      }
      return true;
    default:
      return false;
  }
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string shortest(buffer.data(), end);
  const std::size_t e = shortest.find('e');
  const int exponent = std::stoi(shortest.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return shortest;  // as Python: two digits of exponent at least, and its sign
  }
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed)
          .ptr;
  std::string text(buffer.data(), fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace atl::text::jinja
