// What every operation needs: the budget, making values, comparing and going through them.

#include "atoll/text/jinja/runtime.h"

#include <algorithm>
#include <cmath>

#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

void Runtime::fail_with(const std::string& message) const {
  throw user_error("{}: line {}: {}", origin_, line, message);
}

void Runtime::charge(std::size_t bytes) {
  steps_ += 1 + bytes / 64;
  if (steps_ > limits_.steps) {
    fail("the template takes more than {} steps; it looks as if it would not end", limits_.steps);
  }
}

void Runtime::charge_bytes(std::size_t bytes) {
  charge(bytes);
  bytes_ += bytes;
  if (bytes_ > limits_.bytes) {
    fail("the template makes more than {} MB of text and lists", limits_.bytes >> 20);
  }
}

Runtime::Nested::Nested(Runtime& runtime) : runtime_(runtime) {
  if (runtime.depth_ >= runtime.limits_.depth) {
    runtime.fail("more than {} expressions and macros in each other; a macro that calls itself?",
                 runtime.limits_.depth);
  }
  ++runtime.depth_;
}

void Runtime::check_size(const std::string& text) const {
  if (text.size() > limits_.output_bytes) {
    fail("a text of more than {} MB", limits_.output_bytes >> 20);
  }
}

Runtime::Mark Runtime::mark() const {
  Mark mark{.steps = steps_, .bytes = bytes_, .namespaces = {}};
  for (const Namespace& each : namespaces_) mark.namespaces.push_back(each.attributes);
  return mark;
}

void Runtime::restore(Mark mark) {
  steps_ = mark.steps;
  bytes_ = mark.bytes;
  namespaces_.resize(mark.namespaces.size());
  for (std::size_t i = 0; i < namespaces_.size(); ++i) {
    namespaces_[i].attributes = std::move(mark.namespaces[i]);
  }
}

Value Runtime::text(std::string bytes, bool markup) {
  check_size(bytes);
  charge_bytes(bytes.size());
  return Value(std::move(bytes), markup);
}

Value Runtime::sequence(Values items, bool is_tuple) {
  charge_bytes(items.size() * sizeof(Value));
  Sequence made{.items = std::move(items)};
  for (const Value& item : made.items) made.depth = std::max(made.depth, depth_of(item) + 1);
  if (made.depth > kMaxValueDepth) fail("lists in each other {} levels deep", made.depth);
  auto shared = std::make_shared<const Sequence>(std::move(made));
  return is_tuple ? Value(Tuple{std::move(shared)}) : Value(List{std::move(shared)});
}

Value Runtime::list(Values items) {
  return sequence(std::move(items), false);
}
Value Runtime::tuple(Values items) {
  return sequence(std::move(items), true);
}

Value Runtime::dict(Dict entries) {
  charge_bytes(entries.entries.size() * (2 * sizeof(Value) + 64));
  if (entries.depth > kMaxValueDepth) fail("dicts in each other {} levels deep", entries.depth);
  return Value(std::make_shared<const Dict>(std::move(entries)));
}

Value Runtime::iterator(std::string type, Values items) {
  charge_bytes(items.size() * sizeof(Value) + 64);
  has_made_iterator_ = true;
  auto made = std::make_shared<Iterator>();
  made->type = std::move(type);
  made->items = std::move(items);
  Value value(std::move(made));
  if (depth_of(value) > kMaxValueDepth) fail("generators in each other, too deep");
  return value;
}

Value Runtime::make_namespace(Dict attributes) {
  charge_bytes(512);
  namespaces_.push_back({std::move(attributes)});
  return Value(&namespaces_.back());
}

void Runtime::fail_undefined(const Value& undefined) const {
  const auto& why = undefined.as<Undefined>().why;
  fail_with(why == nullptr ? "an undefined value is used" : *why);
}

void Runtime::set(Dict& dict, const Value& key, Value value) const {
  std::string hashed;
  if (!hash_key(key, hashed)) fail("a value of type {} cannot be a key", type_name(key));
  dict.set(key, std::move(hashed), std::move(value));
}

bool Runtime::equal(const Value& a, const Value& b) {
  charge(0);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      charge(std::min(a.string().size(), b.string().size()));
      return a.string() == b.string();
    case Kind::kList:
    case Kind::kTuple: {
      if (&a.sequence() == &b.sequence()) return true;
      const Values& left = a.items();
      const Values& right = b.items();
      if (left.size() != right.size()) return false;
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!equal(left[i], right[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (&a.dict() == &b.dict()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [hashed, at] : a.dict().index) {
        const Value* other = b.dict().find(hashed);
        if (other == nullptr || !equal(a.dict().entries[at].second, *other)) return false;
      }
      return true;
    }
    case Kind::kNamespace:
      return a.as<Namespace*>() == b.as<Namespace*>();
    case Kind::kFunction:
      return a.as<std::shared_ptr<const Function>>() == b.as<std::shared_ptr<const Function>>();
    case Kind::kLoop:
      return a.as<std::shared_ptr<Loop>>() == b.as<std::shared_ptr<Loop>>();
    case Kind::kIterator:
      return a.as<std::shared_ptr<Iterator>>() == b.as<std::shared_ptr<Iterator>>();
    default:
      fail("comparing values of type {} is not supported", type_name(a));
  }
}

bool Runtime::less(const Value& a, const Value& b) {
  charge(0);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
    return a.number() < b.number();
  }
  if (a.is_string() && b.is_string()) {
    charge(std::min(a.string().size(), b.string().size()));
    return a.string() < b.string();  // UTF-8 sorts as its code points do
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Values& left = a.items();
    const Values& right = b.items();
    const std::size_t shared = std::min(left.size(), right.size());
    for (std::size_t i = 0; i < shared; ++i) {
      if (!equal(left[i], right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  fail("{} and {} cannot be ordered", type_name(a), type_name(b));
}

bool Runtime::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) fail_undefined(item);
      fail("\"in\" a string needs a string on its left, not {}", type_name(item));
    }
    charge(container.string().size());
    return find(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    std::string hashed;
    if (item.is_undefined()) return false;
    if (!hash_key(item, hashed)) fail("a value of type {} cannot be a key", type_name(item));
    return container.dict().find(hashed) != nullptr;
  }
  if (container.is_sequence()) {
    const Values& items = container.items();
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& each) { return equal(each, item); });
  }
  const Values items = iterate(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& each) { return equal(each, item); });
}

std::size_t Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      charge(value.string().size());
      return count_characters(value.string());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().entries.size();
    case Kind::kRange:
      return value.as<Range>().size();
    case Kind::kView:
      return value.as<View>().dict->entries.size();
    default:
      fail("a value of type {} has no length", type_name(value));
  }
}

Values Runtime::iterate(const Value& value) {
  Values items;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString:
      for (const auto character : characters(value.string())) {
        items.push_back(Value(std::string(character)));
      }
      break;
    case Kind::kList:
    case Kind::kTuple:
      items = value.items();
      break;
    case Kind::kDict:
      for (const auto& [key, unused] : value.dict().entries) items.push_back(key);
      break;
    case Kind::kRange: {
      const Range range = value.as<Range>();
      for (std::size_t i = 0; i < range.size(); ++i) {
        items.push_back(Value(range.start + static_cast<std::int64_t>(i) * range.step));
      }
      break;
    }
    case Kind::kView: {
      const View& view = value.as<View>();
      for (const auto& [key, entry] : view.dict->entries) {
        items.push_back(view.of == View::Of::kKeys     ? key
                        : view.of == View::Of::kValues ? entry
                                                       : tuple({key, entry}));
      }
      break;
    }
    case Kind::kIterator: {
      Iterator& iterator = *value.as<std::shared_ptr<Iterator>>();
      items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                   iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      fail("a value of type {} cannot be iterated over", type_name(value));
  }
  charge_bytes(items.size() * sizeof(Value));
  return items;
}

std::int64_t Runtime::want_integer(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral()) fail("{} must be an int, not {}", what, type_name(value));
  return value.integer();
}

const std::string& Runtime::want_string(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) fail("{} must be a string, not {}", what, type_name(value));
  return value.string();
}

std::vector<std::optional<Value>> Runtime::bind(std::string_view function, Arguments& arguments,
                                                std::initializer_list<std::string_view> parameters,
                                                std::size_t required) const {
  std::vector<std::optional<Value>> bound(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    fail("{} takes {} arguments at most, not {}", function, parameters.size(),
         arguments.positional.size());
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end()) fail("{} has no argument \"{}\"", function, name);
    auto& place = bound[static_cast<std::size_t>(at - parameters.begin())];
    if (place.has_value()) fail("{} is given \"{}\" twice", function, name);
    place = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      fail("{} needs the argument \"{}\"", function, *(parameters.begin() + i));
    }
  }
  return bound;
}

bool Loop::look_ahead() {
  while (next < source.size()) {
    Value value = source[next++];
    if (!test || test(value)) {
      ahead.push_back(std::move(value));
      return true;
    }
  }
  return false;
}

bool Loop::advance() {
  if (ahead.empty() && !look_ahead()) return false;
  if (index0 >= 0) previous = std::move(current);
  current = std::move(ahead.front());
  ahead.pop_front();
  ++index0;
  return true;
}

void Loop::finish() {
  next = source.size();
  test = nullptr;
  recursive = nullptr;
  around.reset();
  ahead.clear();
  last_changed.reset();
}

}  // namespace atl::text::jinja
