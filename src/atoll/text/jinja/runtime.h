#pragma once

// What operators, filters, tests and methods share: Python's operations on values, with every one
// of them paid for from a budget, so that a hostile template ends.

#include <cstdint>
#include <ctime>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// What a rendering may use before it ends in an Error.
struct Limits {
  std::uint64_t steps = 20'000'000;      ///< Operations; a long operand counts as several.
  std::size_t output_bytes = 64U << 20;  ///< Of the output, and of any one string.
  std::size_t bytes = 1U << 30;          ///< Of all values made, those already dropped included.
  int depth = 600;                       ///< Of evaluations in each other.
};

/// One rendering's operations on values. All errors are Error(kUser) naming origin and line.
class Runtime {
 public:
  Runtime(std::string_view origin, const Limits& limits, std::time_t now)
      : origin_(origin), limits_(limits), now_(now) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Ends the rendering with the origin, the line being evaluated and a message.
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_with(const std::string& message) const;
  /// Pays for an operation that touches this many bytes or 64 times as few elements.
  void charge(std::size_t bytes);
  std::time_t now() const { return now_; }

  /// A string; pays for its bytes.
  Value text(std::string bytes, bool markup = false);
  Value list(Values items);
  Value tuple(Values items);
  Value dict(Dict entries);
  /// A generator over `items`; `type` is what Python calls it.
  Value iterator(std::string type, Values items);
  /// An empty namespace, which lives as long as the rendering.
  Value make_namespace(Dict attributes);
  /// The value that stands for something missing, with the message for when it is used.
  template <typename... Args>
  Value undefined(fmt::format_string<Args...> format, Args&&... args) const {
    return Value(Undefined{
        std::make_shared<const std::string>(fmt::format(format, std::forward<Args>(args)...))});
  }
  /// Fails with the message of an undefined value.
  [[noreturn]] void fail_undefined(const Value& undefined) const;
  /// Adds an entry to a dict that is being made; fails for a key that cannot be one.
  void set(Dict& dict, const Value& key, Value value) const;

  /// Python's str(value).
  std::string str(const Value& value);
  /// Python's repr(value).
  std::string repr(const Value& value);
  /// The JSON of a value, as Python's json.dumps has it.
  struct JsonStyle {
    bool ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
  };
  std::string json(const Value& value, const JsonStyle& style);

  /// Python's a == b.
  bool equal(const Value& a, const Value& b);
  /// Python's a < b.
  bool less(const Value& a, const Value& b);
  /// Python's item in container.
  bool contains(const Value& container, const Value& item);
  /// Python's len(value).
  std::size_t length(const Value& value);
  /// What a loop over the value goes through; takes all from a generator.
  Values iterate(const Value& value);
  /// The value as it is in a call that wants an int.
  std::int64_t want_integer(const Value& value, std::string_view what);
  /// The value as it is in a call that wants a string.
  const std::string& want_string(const Value& value, std::string_view what);

  /// `object.name`.
  Value attribute(const Value& object, const std::string& name);
  /// `object[key]`.
  Value item(const Value& object, const Value& key);
  /// `object[start:stop:step]`; None for what is absent.
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  /// `a + b`, `a - b` and so on.
  Value arithmetic(Operation operation, const Value& a, const Value& b);
  /// `-a` and `+a`.
  Value sign(Operation operation, const Value& a);
  /// Python's format % values.
  std::string percent_format(const std::string& format, const Value& values);
  /// Calls a function, macro or method.
  Value call(const Value& callee, Arguments& arguments);

  /// Binds a call to parameters; the first `required` must be there. Fails for unknown, double,
  /// missing or too many arguments.
  std::vector<std::optional<Value>> bind(std::string_view function, Arguments& arguments,
                                         std::initializer_list<std::string_view> parameters,
                                         std::size_t required = 0) const;

  /// The line being evaluated.
  int line = 0;

 protected:
  virtual Value call_macro(const Macro& macro, const Function& function, Arguments& arguments) = 0;
  virtual Value call_loop(const std::shared_ptr<Loop>& loop, Arguments& arguments) = 0;
  /// Throws when evaluations nest too deep; counts one more while it lives.
  class Nested {
   public:
    explicit Nested(Runtime& runtime);
    ~Nested() { --runtime_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Runtime& runtime_;
  };
  const Limits& limits() const { return limits_; }
  void charge_bytes(std::size_t bytes);

  /// All that a template can change but variables and macros: what it has used, and its namespaces.
  struct Mark {
    std::uint64_t steps = 0;
    std::size_t bytes = 0;
    std::vector<Dict> namespaces;
  };
  Mark mark() const;
  /// Takes back everything since `mark`.
  void restore(Mark mark);
  std::size_t num_namespaces() const { return namespaces_.size(); }
  /// Whether there is a generator, of which a template can take elements without a trace.
  bool has_made_iterator() const { return has_made_iterator_; }

 private:
  friend class JsonWriter;
  void append_repr(const Value& value, std::string& out, int depth);
  void append_entries(const Dict& dict, std::string& out, int depth);
  void check_size(const std::string& text) const;
  Value sequence(Values items, bool is_tuple);
  Value rest_of_watched(const Sequence& list, std::size_t start);
  Value integer_arithmetic(Operation operation, std::int64_t a, std::int64_t b);
  Value float_arithmetic(Operation operation, double a, double b);
  Value repeat(const Value& value, std::int64_t times);
  Value add(const Value& a, const Value& b);
  std::optional<Value> entry(const Value& object, const Value& key);
  std::optional<Value> method(const Value& object, const std::string& name);

  std::string_view origin_;
  Limits limits_;
  std::time_t now_;
  std::uint64_t steps_ = 0;
  std::size_t bytes_ = 0;
  int depth_ = 0;
  bool has_made_iterator_ = false;
  std::deque<Namespace> namespaces_;  // values point into it; owned here, so that cycles are freed
};

struct Scope;

/// What `loop` is in a loop's body.
struct Loop {
  Values source;
  std::size_t next = 0;     ///< In `source`.
  std::deque<Value> ahead;  ///< Elements that passed the test before their turn.
  std::function<bool(const Value&)> test;
  std::int64_t index0 = -1;
  std::optional<Value> previous;
  Value current;
  std::optional<Values> last_changed;
  Watch* watch = nullptr;   ///< Told what the template asks about elements that are still to come.
  std::size_t offset = 0;   ///< The first element's place in the list that is watched.
  std::int64_t depth0 = 0;  ///< Loops of the same statement around this one.
  const Statement* recursive = nullptr;  ///< The statement, where calling the loop runs it again
  std::shared_ptr<Scope> around;         ///< and the scope in which it does; shared with turns.

  /// Moves one more element that passes the test to `ahead`; false if there is none.
  bool look_ahead();
  /// Goes to the next element; false at the end.
  bool advance();
  /// Drops everything, so that a loop kept beyond its end holds nothing alive.
  void finish();
  /// An attribute of `loop`, or nothing.
  std::optional<Value> attribute(Runtime& runtime, const Value& self, const std::string& name);
};

}  // namespace atl::text::jinja
