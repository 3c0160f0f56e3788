#include <nlohmann/json.hpp>

#include <memory>
#include <mutex>

#include "atoll/base/error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/rl/rewards.h"
#include "atoll/serve/grammar/automaton.h"
#include "atoll/serve/grammar/schema.h"

namespace atl::rl {

namespace {

namespace grammar = serve::grammar;

// Grammars of deep texts may have many states; then it is time for new ones.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

class SchemaReward final : public Reward {
 public:
  explicit SchemaReward(const std::string& file) {
    try {
      grammar_ = std::make_shared<const grammar::Grammar>(grammar::schema_grammar(read_file(file)));
    } catch (const Error& error) {
      throw user_error("rl.schema: {}: {}", file, error.what());
    }
    automaton_ = std::make_unique<grammar::Automaton>(grammar_);
  }
  std::string_view name() const override { return "schema"; }
  double of(const Rewarded& completion) const override {
    // In the one spelling of white space and numbers that the grammar knows.
    const auto json = nlohmann::ordered_json::parse(completion.text, nullptr, false);
    if (json.is_discarded()) return 0;
    std::string text;
    try {
      text = json.dump();
    } catch (const nlohmann::json::exception&) {
      return 0;  // not UTF-8
    }
    const std::lock_guard lock(mutex_);
    if (automaton_->bytes() > kMostBytes) {
      automaton_ = std::make_unique<grammar::Automaton>(grammar_);
    }
    grammar::StateId state = automaton_->start();
    for (const char c : text) {
      state = automaton_->step(state, static_cast<std::uint8_t>(c));
      if (state == grammar::kDeadState) return 0;
    }
    return automaton_->may_end(state) ? 1 : 0;
  }

 private:
  std::shared_ptr<const grammar::Grammar> grammar_;  // as Automaton wants it
  mutable std::mutex mutex_;
  mutable std::unique_ptr<grammar::Automaton> automaton_;
};

}  // namespace

std::unique_ptr<Reward> schema_reward(const std::string& file) {
  return std::make_unique<SchemaReward>(file);
}

}  // namespace atl::rl
