#pragma once

// What a template's expressions have as values: Python's, as far as Jinja templates see them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace atl::text::jinja {

class Runtime;
class Value;
struct Arguments;
struct Loop;
struct Macro;
struct Namespace;

using Values = std::vector<Value>;

/// What is behind a Value; the order is that of Value's alternatives.
enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,
  kIterator,
  kNamespace,
  kFunction,
  kLoop,
};

/// A name or element that is not there; `why` is the message when it is used all the same.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
/// Python's None.
struct None {};
/// A string; shared, because values are copied freely and never change.
struct Text {
  std::string bytes;    ///< UTF-8.
  bool markup = false;  ///< Went through `safe` or `escape`: what is added to it gets escaped.
};
/// What has been looked at of a list whose elements after the first few may yet be others.
struct Watch {
  bool whole = false;     ///< Something that depends on all of them.
  std::size_t least = 0;  ///< Only the first so many, and that there are at least so many.

  void needs(std::size_t count) { least = std::max(least, count); }
};
/// The elements of a list or a tuple, which templates cannot change.
struct Sequence {
  Values items;
  int depth = 1;           ///< Levels of nesting, bounded so that recursions over a value are.
  Watch* watch = nullptr;  ///< Told of every look, where somebody wants to know.
  std::size_t offset = 0;  ///< The first element's place in the list that is watched.
  bool is_group = false;   ///< A pair of groupby, whose parts also have names.
};
/// A list; a type of its own, so that it differs from a tuple.
struct List {
  std::shared_ptr<const Sequence> of;
};
/// A tuple.
struct Tuple {
  std::shared_ptr<const Sequence> of;
};
struct Dict;
/// Python's range(start, stop, step), at most 100,000 long.
struct Range {
  std::int64_t start, stop, step;
  std::size_t size() const;
};
/// What d.keys(), d.values() and d.items() give.
struct View {
  enum class Of : std::uint8_t { kKeys, kValues, kItems };
  std::shared_ptr<const Dict> dict;
  Of of;
};
/// A Python generator: its elements can be taken once.
struct Iterator {
  std::string type;
  Values items;
  std::size_t next = 0;
};
/// The C++ behind a filter, test, method or global: self is the subject where there is one.
using Builtin = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);
struct Function;

/// One value; cheap to copy.
class Value {
 public:
  Value() = default;
  Value(None none) : data_(none) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(std::int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string bytes, bool markup = false)
      : data_(std::make_shared<const Text>(Text{std::move(bytes), markup})) {}
  explicit Value(List list) : data_(std::move(list)) {}
  explicit Value(Tuple tuple) : data_(std::move(tuple)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(Range range) : data_(range) {}
  explicit Value(View view) : data_(std::move(view)) {}
  explicit Value(std::shared_ptr<Iterator> iterator) : data_(std::move(iterator)) {}
  explicit Value(Namespace* attributes) : data_(attributes) {}
  explicit Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}
  explicit Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_string() const { return is(Kind::kString); }
  bool is_dict() const { return is(Kind::kDict); }
  /// True for ints and bools, which Python counts among them.
  bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }
  bool is_number() const { return is_integral() || is(Kind::kFloat); }
  /// True for lists and tuples.
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  /// The alternative T, which must be the one that is there.
  template <typename T>
  const T& as() const {
    return std::get<T>(data_);
  }
  /// The bytes of a string.
  const std::string& string() const { return as<std::shared_ptr<const Text>>()->bytes; }
  /// True for a string that went through `safe` or `escape`.
  bool is_markup() const { return is_string() && as<std::shared_ptr<const Text>>()->markup; }
  /// An int, or a bool as one.
  std::int64_t integer() const { return is(Kind::kBool) ? as<bool>() : as<std::int64_t>(); }
  /// Any number.
  double number() const { return is(Kind::kFloat) ? as<double>() : static_cast<double>(integer()); }
  /// The elements of a list or tuple.
  const Values& items() const { return sequence().items; }
  const Sequence& sequence() const {
    const Sequence& found = unwatched();
    if (found.watch != nullptr) found.watch->whole = true;
    return found;
  }
  /// The same for who tells the watch itself, more closely.
  const Sequence& unwatched() const { return is(Kind::kList) ? *as<List>().of : *as<Tuple>().of; }
  const Dict& dict() const { return *as<std::shared_ptr<const Dict>>(); }

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, List,
               Tuple, std::shared_ptr<const Dict>, Range, View, std::shared_ptr<Iterator>,
               Namespace*, std::shared_ptr<const Function>, std::shared_ptr<Loop>>
      data_;
};

/// A dict in the order of insertion. Keys are looked up by hash_key().
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, std::size_t> index;
  int depth = 1;

  /// The value of a key as hash_key() spells it, or nullptr.
  const Value* find(const std::string& hashed) const;
  /// Adds an entry, or replaces the value of the one that is there.
  void set(Value key, std::string hashed, Value value);
};

/// The only value that a template can change: `{% set ns.x = 1 %}`.
struct Namespace {
  Dict attributes;
};

/// What can be called: C++ (`builtin` with its `self`), or a macro of the template.
struct Function {
  std::string name;
  Builtin builtin = nullptr;
  Value self;
  const Macro* macro = nullptr;
};

/// What a call passes.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Levels that lists and dicts may nest in each other.
inline constexpr int kMaxValueDepth = 100;

/// Python's name of the type: "str", "dict", "NoneType".
std::string_view type_name(const Value& value);
/// Levels of nesting of a value, 0 for one without elements.
int depth_of(const Value& value);
/// Python's bool(value).
bool truthy(const Value& value);
/// The key under which equal values (1, 1.0 and True are equal) find each other in a dict; the
/// bytes themselves for a string, so that strings need no copy. False if not hashable.
bool hash_key(const Value& value, std::string& out);
/// Python's repr of a float, which is also how JSON has it.
std::string float_repr(double value);
/// Reads JSON, keeping the order of keys. Throws Error(kUser) naming `origin`.
Value parse_json(std::string_view json, std::string_view origin);

}  // namespace atl::text::jinja
