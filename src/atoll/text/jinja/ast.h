#pragma once

// What the parser makes of a template and the interpreter walks.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// Levels that a tree may have; what walks it recurses.
inline constexpr int kMaxTreeDepth = 200;

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// What an Expression does with its parts.
enum class Operation : std::uint8_t {
  kConstant,   ///< value
  kName,       ///< the variable in slot `name_slot`
  kList,       ///< [parts...]
  kTuple,      ///< (parts...)
  kDict,       ///< {parts[0]: parts[1], ...}
  kCondition,  ///< parts[0] if parts[1] else parts[2] (may be absent)
  kOr,
  kAnd,
  kNot,
  kNegate,
  kPlus,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,     ///< parts joined as strings
  kCompare,    ///< parts[0] comparisons[0] parts[1] comparisons[1] ...
  kAttribute,  ///< parts[0].name
  kItem,       ///< parts[0][parts[1]]
  kSlice,      ///< parts[0][parts[1]:parts[2]:parts[3]], each of the three may be absent
  kCall,       ///< parts[0](parts[1...], named)
  kFilter,     ///< parts[0] | name(parts[1...], named)
  kTest,       ///< parts[0] is name(parts[1...], named)
};

/// One link of a chain of comparisons.
enum class Comparison : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

/// An expression and its operands.
struct Expression {
  Operation operation;
  int line;
  int depth = 1;
  Value value;
  std::string name;
  std::size_t name_slot = 0;
  Builtin builtin = nullptr;  ///< Of a filter or test.
  std::vector<ExpressionPtr> parts;
  std::vector<Comparison> comparisons;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_parts;  ///< Of a call: `*more_parts`.
  ExpressionPtr more_named;  ///< Of a call: `**more_named`.
};

/// Where an assignment goes: a variable, an attribute of a namespace, or a tuple of targets.
struct Target {
  int line = 0;
  std::size_t name_slot = 0;
  std::string attribute;  ///< Empty for a plain variable.
  bool is_tuple = false;
  std::vector<Target> parts;  ///< Of a tuple.
};

struct Statement;
using Body = std::vector<Statement>;

/// What a Statement does.
enum class Action : std::uint8_t {
  kText,        ///< writes `text`
  kPrint,       ///< writes expressions[0]
  kIf,          ///< bodies[i] for the first true expressions[i], else the last body
  kFor,         ///< target in expressions[0], if expressions[1]; bodies[0], else bodies[1]
  kSet,         ///< targets[0] = expressions[0]
  kSetBlock,    ///< targets[0] = what bodies[0] writes, through filter expressions[0]
  kMacro,       ///< macro
  kCall,        ///< writes the call expressions[0], which is given `macro` as its caller
  kFilter,      ///< what bodies[0] writes, through filter expressions[0]
  kWith,        ///< targets[i] = expressions[i], then bodies[0]
  kGeneration,  ///< bodies[0], whose output the assistant says
  kBreak,
  kContinue,
};

/// A macro of the template.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<std::size_t> slots;       ///< Of the parameters.
  std::vector<ExpressionPtr> defaults;  ///< Of the last parameters.
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
  std::size_t varargs_slot = 0;
  std::size_t kwargs_slot = 0;
  std::size_t caller_slot = 0;
  Body body;
};

/// A statement, or a piece of text.
struct Statement {
  Action action;
  int line;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Body> bodies;
  std::shared_ptr<const Macro> macro;  ///< Shared with the values that were made of it.
  bool is_recursive = false;           ///< Of a loop: calling `loop` runs it again.
};

/// A template as a tree. Variables are numbered; `names` has what they are called.
struct Tree {
  Body body;
  std::vector<std::string> names;
  bool has_generation = false;
};

/// The slot, in what a filter block's filters are applied to, of what the block wrote.
inline constexpr std::size_t kBlockOutputSlot = 0;

}  // namespace atl::text::jinja
