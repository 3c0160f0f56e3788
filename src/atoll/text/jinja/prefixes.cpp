#include "atoll/text/jinja/prefixes.h"

#include <utility>

#include "atoll/text/jinja/interpreter.h"

// A rendering of the first messages does what a rendering of all of them does, until the loop over
// them would take one more: so after so many turns, what follows the loop is run on the side, and
// its traces are removed. That holds as long as nothing has asked about messages still to come; a
// Watch knows.

namespace atl::text::jinja {

namespace {

// Copying more of them after each turn would take longer than it saves.
constexpr std::size_t kMaxNamespaces = 16;

// Thrown when there is nothing more to find out.
struct Done {};

class PrefixInterpreter final : public Interpreter {
 public:
  PrefixInterpreter(const Tree& tree, std::string_view origin, std::time_t now,
                    std::span<const std::size_t> counts)
      : Interpreter(tree, origin, Limits{}, now), left_(counts) {}

  std::optional<PrefixTexts> texts(const Dict& variables) {
    const std::string key = "messages";
    const Sequence& messages = variables.find(key)->sequence();
    Sequence list{.items = messages.items, .depth = messages.depth, .watch = &watch_};
    Dict watched = variables;
    watched.set(Value(key), key, Value(List{std::make_shared<const Sequence>(std::move(list))}));
    try {
      run(watched);
    } catch (const Done&) {
      if (left_.empty()) return PrefixTexts{std::move(output_.text), std::move(texts_)};
    } catch (const Error&) {
      return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  bool follows(const Statement& loop, const ScopePtr& scope, const Value& iterated,
               Loop& state) override {
    const Statement* first = tree_.body.data();
    const bool is_outermost =
        scope->parent == nullptr && &loop >= first && &loop < first + tree_.body.size();
    const bool is_plain = loop.expressions.size() == 1 && loop.bodies.size() == 1;
    if (has_followed_ || !is_outermost || !is_plain || !iterated.is(Kind::kList)) return false;
    const Sequence& list = iterated.unwatched();
    if (list.watch != &watch_) return false;
    has_followed_ = true;
    charge_bytes(list.items.size() * sizeof(Value));
    state.source = list.items;
    state.watch = &watch_;
    state.offset = list.offset;
    return true;
  }

  void after_turns(const Statement& loop, const ScopePtr& scope, const std::shared_ptr<Loop>& state,
                   std::size_t count) override {
    while (!left_.empty() && left_.front() <= state->offset + count) {
      const std::size_t length = left_.front();
      // The loop itself must not be kept, since it still goes on here.
      const bool is_as_alone =
          state.use_count() == 1 && num_namespaces() <= kMaxNamespaces && is_unaware_beyond(length);
      if (!is_as_alone || !finish_on_the_side(loop, scope, length)) throw Done();
      left_ = left_.subspan(1);
    }
    if (left_.empty()) throw Done();
  }

  bool is_unaware_beyond(std::size_t length) const {
    return !watch_.whole && watch_.least <= length && !has_made_iterator();
  }

  // Runs what follows the loop. False when that asks about messages behind the first `length`.
  bool finish_on_the_side(const Statement& loop, const ScopePtr& scope, std::size_t length) {
    PrefixTexts::Text text{.shared = output_.text.size(), .rest = {}};
    const Watch watch = watch_;
    const auto variables = scope->variables;
    const std::size_t num_macros = macros_.size();
    Mark before = mark();
    const Statement* end = tree_.body.data() + tree_.body.size();
    for (const Statement* next = &loop + 1; next < end; ++next) execute(*next, scope, text.rest);
    const bool holds = is_unaware_beyond(length);
    scope->variables = variables;
    macros_.erase(macros_.begin() + static_cast<std::ptrdiff_t>(num_macros), macros_.end());
    restore(std::move(before));
    watch_ = watch;
    texts_.push_back(std::move(text));
    return holds;
  }

  std::span<const std::size_t> left_;
  std::vector<PrefixTexts::Text> texts_;
  Watch watch_;
  bool has_followed_ = false;
};

}  // namespace

std::optional<PrefixTexts> render_prefixes(const Tree& tree, std::string_view origin,
                                           const Dict& variables, std::time_t now,
                                           std::span<const std::size_t> counts) {
  return PrefixInterpreter(tree, origin, now, counts).texts(variables);
}

}  // namespace atl::text::jinja
