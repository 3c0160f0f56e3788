#include "atoll/serve/grammar/lowering.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/serve/grammar/grammar_check.h"

namespace atl::serve::grammar {

namespace {

// Lays out one grammar.
class Lowering {
 public:
  explicit Lowering(const GrammarBuilder& builder) : builder_(builder) {}
  Grammar run(Node root);

 private:
  const GrammarPart& part(Node node) const { return builder_.part(node); }
  // The number of the rule that derives what `node` does; its items are laid out later.
  std::int32_t rule_of(Node node, const std::string& owner);
  void lay_out_rule(Node node, std::int32_t rule);
  void append_alternatives(Node node, std::vector<Node>& out) const;
  void append_items(Node node, const std::string& owner);
  void append_item(const Item& item);
  std::int32_t set_number(const ByteSet& set);

  const GrammarBuilder& builder_;
  Grammar grammar_;
  std::vector<std::string> names_;  // of each rule, for messages
  std::unordered_map<Node, std::int32_t> rule_numbers_;
  std::unordered_map<ByteSet, std::int32_t> set_numbers_;
  std::vector<std::pair<Node, std::int32_t>> waiting_;  // rules without items
};

// Starts with one class and cuts classes by each set in turn.
void classify_bytes(Grammar& grammar) {
  std::array<int, 256> classes{};
  int num_classes = 1;
  for (const ByteSet& set : grammar.byte_sets) {
    std::map<std::pair<int, bool>, int> numbers;
    for (std::size_t byte = 0; byte < classes.size(); ++byte) {
      const auto key = std::pair(classes[byte], set.test(byte));
      classes[byte] = numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
    }
    num_classes = static_cast<int>(numbers.size());
  }
  grammar.num_classes = num_classes;
  grammar.class_byte.resize(static_cast<std::size_t>(num_classes));
  for (std::size_t byte = 0; byte < classes.size(); ++byte) {
    grammar.byte_class[byte] = static_cast<std::uint8_t>(classes[byte]);
    grammar.class_byte[static_cast<std::size_t>(classes[byte])] = static_cast<std::uint8_t>(byte);
  }
}

Grammar Lowering::run(Node root) {
  grammar_.root = rule_of(root, "root");
  while (!waiting_.empty()) {
    const auto [node, rule] = waiting_.back();
    waiting_.pop_back();
    lay_out_rule(node, rule);
  }
  check_grammar(grammar_, names_, builder_.origin());
  classify_bytes(grammar_);
  return std::move(grammar_);
}

std::int32_t Lowering::rule_of(Node node, const std::string& owner) {
  const auto [found, is_new] =
      rule_numbers_.emplace(node, static_cast<std::int32_t>(names_.size()));
  if (is_new) {
    names_.push_back(part(node).name.empty() ? owner : part(node).name);
    grammar_.rules.emplace_back();
    waiting_.emplace_back(node, found->second);
  }
  return found->second;
}

void Lowering::lay_out_rule(Node node, std::int32_t rule) {
  const auto number = static_cast<std::size_t>(rule);
  const std::string name = names_[number];
  std::vector<Node> alternatives;
  if (part(node).kind == GrammarPart::kRule) {
    if (part(node).parts.empty()) {
      throw user_error("{}: there is no rule '{}'; define it", builder_.origin(), name);
    }
    append_alternatives(part(node).parts.front(), alternatives);
  } else {
    append_alternatives(node, alternatives);
  }
  for (const Node alternative : alternatives) {
    grammar_.rules[number].push_back(static_cast<std::int32_t>(grammar_.items.size()));
    append_items(alternative, name);
    append_item({});
  }
}

// A choice within a choice is one choice.
void Lowering::append_alternatives(Node node, std::vector<Node>& out) const {
  if (part(node).kind != GrammarPart::kChoice) {
    out.push_back(node);
    return;
  }
  for (const Node alternative : part(node).parts) append_alternatives(alternative, out);
}

void Lowering::append_items(Node node, const std::string& owner) {
  const GrammarPart& from = part(node);
  switch (from.kind) {
    case GrammarPart::kBytes:
      append_item({.kind = ItemKind::kBytes, .target = set_number(from.set)});
      break;
    case GrammarPart::kSequence:
      for (const Node inner : from.parts) append_items(inner, owner);
      break;
    case GrammarPart::kChoice:
    case GrammarPart::kRule:
      append_item({.kind = ItemKind::kRule, .target = rule_of(node, owner)});
      break;
    case GrammarPart::kRepeat:
      if (from.max == 0) break;
      append_item({.kind = ItemKind::kRepeat,
                   .target = rule_of(from.parts.front(), owner),
                   .min = from.min,
                   .max = from.max});
      break;
  }
}

void Lowering::append_item(const Item& item) {
  if (static_cast<std::int64_t>(grammar_.items.size()) >= builder_.limits().max_items) {
    throw user_error("{}: a grammar of more than {} items; ask for a simpler one",
                     builder_.origin(), builder_.limits().max_items);
  }
  grammar_.items.push_back(item);
}

std::int32_t Lowering::set_number(const ByteSet& set) {
  const auto [found, is_new] =
      set_numbers_.emplace(set, static_cast<std::int32_t>(grammar_.byte_sets.size()));
  if (is_new) grammar_.byte_sets.push_back(set);
  return found->second;
}

}  // namespace

Grammar build_grammar(const GrammarBuilder& builder, Node root) {
  return Lowering(builder).run(root);
}

}  // namespace atl::serve::grammar
