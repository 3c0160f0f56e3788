#include "atoll/serve/grammar/grammar_check.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::serve::grammar {

namespace {

std::size_t as_size(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

// The smallest set of rules such that a rule is a member once all items of one of its alternatives
// hold. An item of bytes holds by `bytes_hold`; one of a rule when that rule is a member.
class LeastRules {
 public:
  LeastRules(const Grammar& grammar, bool (*bytes_hold)(const ByteSet&))
      : grammar_(grammar), bytes_hold_(bytes_hold), members_(grammar.rules.size()) {}

  std::vector<bool> find() {
    waits_of_.resize(grammar_.rules.size());
    for (std::size_t rule = 0; rule < grammar_.rules.size(); ++rule) {
      for (const std::int32_t begin : grammar_.rules[rule]) add_alternative(rule, begin);
    }
    while (!news_.empty()) {
      const std::size_t rule = news_.back();
      news_.pop_back();
      for (const std::size_t alternative : waits_of_[rule]) {
        if (--alternatives_[alternative].missing == 0) add(alternatives_[alternative].rule);
      }
    }
    return members_;
  }

 private:
  struct Alternative {
    std::size_t rule = 0;
    int missing = 0;  // items that do not hold yet
  };

  void add_alternative(std::size_t rule, std::int32_t begin) {
    const std::size_t number = alternatives_.size();
    alternatives_.push_back({rule, 0});
    for (std::size_t at = as_size(begin); grammar_.items[at].kind != ItemKind::kEnd; ++at) {
      const Item& item = grammar_.items[at];
      if (item.kind == ItemKind::kBytes) {
        // One that never holds is missing for ever.
        if (!bytes_hold_(grammar_.byte_sets[as_size(item.target)])) ++alternatives_[number].missing;
      } else if (item.kind == ItemKind::kRule || item.min > 0) {
        ++alternatives_[number].missing;
        waits_of_[as_size(item.target)].push_back(number);
      }
    }
    if (alternatives_[number].missing == 0) add(rule);
  }

  void add(std::size_t rule) {
    if (members_[rule]) return;
    members_[rule] = true;
    news_.push_back(rule);
  }

  const Grammar& grammar_;
  bool (*bytes_hold_)(const ByteSet&);
  std::vector<bool> members_;
  std::vector<Alternative> alternatives_;
  std::vector<std::vector<std::size_t>> waits_of_;  // by rule: alternatives that need it
  std::vector<std::size_t> news_;
};

bool derives_text(const Grammar& grammar, const std::vector<bool>& productive, std::int32_t begin) {
  for (std::size_t at = as_size(begin); grammar.items[at].kind != ItemKind::kEnd; ++at) {
    const Item& item = grammar.items[at];
    const bool holds =
        item.kind == ItemKind::kBytes
            ? grammar.byte_sets[as_size(item.target)].any()
            : productive[as_size(item.target)] || (item.kind == ItemKind::kRepeat && item.min == 0);
    if (!holds) return false;
  }
  return true;
}

void drop_what_derives_nothing(Grammar& grammar) {
  const std::vector<bool> productive =
      LeastRules(grammar, [](const ByteSet& set) { return set.any(); }).find();
  for (auto& alternatives : grammar.rules) {
    std::erase_if(alternatives,
                  [&](std::int32_t begin) { return !derives_text(grammar, productive, begin); });
  }
  for (Item& item : grammar.items) {
    if (item.kind == ItemKind::kRepeat && !productive[as_size(item.target)]) item.max = 0;
  }
}

// Which rules a rule may enter before any byte.
std::vector<std::int32_t> first_rules(const Grammar& grammar, std::size_t rule) {
  std::vector<std::int32_t> result;
  for (const std::int32_t begin : grammar.rules[rule]) {
    for (std::size_t at = as_size(begin);; ++at) {
      const Item& item = grammar.items[at];
      if (item.kind == ItemKind::kEnd || item.kind == ItemKind::kBytes) break;
      if (item.kind == ItemKind::kRepeat && item.max == 0) continue;
      result.push_back(item.target);
      const bool may_be_empty = item.kind == ItemKind::kRepeat && item.min == 0;
      if (!may_be_empty && !grammar.nullable[as_size(item.target)]) break;
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

// Depth first, with a stack of its own: a chain of rules may be long.
void refuse_left_recursion(const Grammar& grammar, const std::vector<std::string>& names,
                           const std::string& origin) {
  enum class State : std::uint8_t { kNew, kOpen, kDone };
  struct Visit {
    std::size_t rule;
    std::vector<std::int32_t> next;
  };
  std::vector<State> states(grammar.rules.size(), State::kNew);
  for (std::size_t start = 0; start < grammar.rules.size(); ++start) {
    if (states[start] != State::kNew) continue;
    std::vector<Visit> open = {{start, first_rules(grammar, start)}};
    states[start] = State::kOpen;
    while (!open.empty()) {
      if (open.back().next.empty()) {
        states[open.back().rule] = State::kDone;
        open.pop_back();
        continue;
      }
      const std::size_t rule = as_size(open.back().next.back());
      open.back().next.pop_back();
      if (states[rule] == State::kOpen) {
        throw user_error(
            "{}: the rule '{}' begins with itself (left recursion); write it as a repetition",
            origin, names[rule]);
      }
      if (states[rule] == State::kDone) continue;
      states[rule] = State::kOpen;
      open.push_back({rule, first_rules(grammar, rule)});
    }
  }
}

}  // namespace

void check_grammar(Grammar& grammar, const std::vector<std::string>& rule_names,
                   const std::string& origin) {
  drop_what_derives_nothing(grammar);
  if (grammar.rules[as_size(grammar.root)].empty()) {
    throw user_error("{}: no text has this form; look for rules that never end, or that contradict",
                     origin);
  }
  grammar.nullable = LeastRules(grammar, [](const ByteSet&) { return false; }).find();
  for (Item& item : grammar.items) {
    // As many times as wanted may be empty ones.
    if (item.kind == ItemKind::kRepeat && grammar.nullable[as_size(item.target)]) item.min = 0;
  }
  refuse_left_recursion(grammar, rule_names, origin);
}

}  // namespace atl::serve::grammar
