#pragma once

// Makes a Grammar from nodes: what the readers of GBNF, regular expressions and JSON schemas share.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/grammar/characters.h"
#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// A part of a grammar: a number that a GrammarBuilder has given.
using Node = std::int32_t;

/// How large a grammar may get, so that a small text cannot ask for a large one.
struct GrammarLimits {
  std::int64_t max_nodes = 200000;       ///< nodes of a builder
  std::int64_t max_items = 500000;       ///< items of the grammar
  std::int32_t max_repeat = 1000000;     ///< a repetition's bound
  std::int32_t max_message_bytes = 100;  ///< of a stranger's text in a message
};

/// What a node is.
struct GrammarPart {
  /// Which members count.
  enum Kind : std::uint8_t {
    kBytes,     ///< one byte of `set`
    kSequence,  ///< `parts` one after another
    kChoice,    ///< one of `parts`
    kRepeat,    ///< parts.front(), `min` to `max` times
    kRule,      ///< parts.front(), once the rule is defined
  };
  Kind kind = kSequence;
  std::int32_t min = 0, max = 0;
  std::vector<Node> parts = {};
  ByteSet set = {};
  std::string name = {};  ///< of kRule
};

/// Collects the nodes of one grammar; build_grammar() makes the grammar of them. All functions that
/// make a node throw Error(kUser) once there are too many.
class GrammarBuilder {
 public:
  /// `origin` begins each message.
  explicit GrammarBuilder(std::string origin, const GrammarLimits& limits = {});

  /// The empty text.
  Node empty();
  /// No text at all.
  Node nothing() { return choice({}); }
  /// One byte of a set.
  Node bytes(const ByteSet& set);
  /// These bytes.
  Node literal(std::string_view bytes);
  /// One character of a set, as UTF-8.
  Node character(const CharacterSet& set);
  /// One node after another.
  Node sequence(std::vector<Node> parts);
  /// One of the nodes.
  Node choice(std::vector<Node> alternatives);
  /// One of several texts; texts that begin alike share what they begin with.
  Node one_of(std::vector<std::string> texts);
  /// `min` to `max` times; kUnbounded: no limit.
  Node repeat(Node part, std::int64_t min, std::int64_t max);
  /// Once or not at all.
  Node optional(Node part) { return repeat(part, 0, 1); }
  /// A rule without a content yet, so that rules may refer to each other. `name`: for messages.
  Node declare(std::string name);
  /// Gives a declared rule its content.
  void define(Node rule, Node content);
  bool is_defined(Node rule) const;

  const std::string& origin() const { return origin_; }
  const GrammarLimits& limits() const { return limits_; }

  /// What a node is.
  const GrammarPart& part(Node node) const { return parts_[static_cast<std::size_t>(node)]; }

 private:
  Node add(GrammarPart part);
  Node text_tree(const std::vector<std::string>& texts, std::size_t begin, std::size_t end,
                 std::size_t depth);

  std::string origin_;
  GrammarLimits limits_;
  std::vector<GrammarPart> parts_;
};

}  // namespace atl::serve::grammar
