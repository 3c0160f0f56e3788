// What masks of tokens cost, and texts that are drawn by them.
//
//   grammar_bench masks --tokenizer tokenizer.json [--schema schema.json] [--texts 100]
//   grammar_bench draw --tokenizer tokenizer.json --schema schema.json --texts 100
//
// `masks` prints one line of JSON: microseconds of compiling, of each mask (with the check whether
// the text is over) and of taking a token, of the first text and of all. Without a schema: any JSON
// object. `draw` prints texts, one in a line, for tests/oracle/json_schemas.py.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/serve/grammar/constraint.h"

namespace atl {
namespace {

struct Options {
  std::string tokenizer;
  std::string schema;
  int texts = 100;
  std::uint64_t seed = 1;
};

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Microseconds, in the order in which they were taken.
struct Times {
  std::vector<double> masks, accepts;
};

/// Draws texts with tokens that are allowed, each as likely as the others. A text that gets long
/// goes on with the shortest ones.
class Drawing {
 public:
  Drawing(const Tokenizer& tokenizer, std::uint64_t seed)
      : tokenizer_(tokenizer),
        end_(tokenizer.end_of_text().value_or(-1)),
        bits_((static_cast<std::size_t>(tokenizer.vocab_size()) + 63) / 64),
        state_(seed) {}

  std::optional<std::string> draw(serve::TokenConstraint& constraint, Times& times) {
    constexpr int kMaxTokens = 3000;
    std::string text;
    for (int i = 0; i < kMaxTokens; ++i) {
      const Clock::time_point start = Clock::now();
      const bool is_over = constraint.is_over();
      std::fill(bits_.begin(), bits_.end(), ~std::uint64_t{0});
      constraint.mask(bits_);
      times.masks.push_back(microseconds_since(start));
      if (is_over) return text;
      const std::int32_t token = choose(i);
      if (token == end_) return text;
      text += tokenizer_.token_bytes(token);
      const Clock::time_point middle = Clock::now();
      constraint.accept(token);
      times.accepts.push_back(microseconds_since(middle));
    }
    return std::nullopt;
  }

  std::int32_t end() const { return end_; }

 private:
  std::uint64_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return state_ >> 33;
  }

  std::int32_t choose(int position) {
    constexpr int kCalmAfter = 60;
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < tokenizer_.vocab_size(); ++i) {
      if ((bits_[static_cast<std::size_t>(i) / 64] >> (i % 64) & 1) != 0) tokens.push_back(i);
    }
    if (tokens.empty()) throw user_error("nothing may follow, but the text is not over");
    if (position >= kCalmAfter) {
      for (const std::string_view closing : {"", "\"", "}", "]", "0"}) {
        for (const std::int32_t token : tokens) {
          const bool fits =
              closing.empty() ? token == end_ : tokenizer_.token_bytes(token) == closing;
          if (fits) return token;
        }
      }
    }
    return tokens[next() % tokens.size()];
  }

  const Tokenizer& tokenizer_;
  std::int32_t end_;
  std::vector<std::uint64_t> bits_;
  std::uint64_t state_;
};

std::string summary(std::vector<double> times) {
  if (times.empty()) return "{}";
  const double mean =
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  std::sort(times.begin(), times.end());
  return fmt::format(
      "{{\"count\": {}, \"mean\": {:.2f}, \"median\": {:.2f}, \"p99\": {:.2f}, \"max\": {:.2f}}}",
      times.size(), mean, times[times.size() / 2], times[times.size() * 99 / 100], times.back());
}

void run(const Options& options, bool prints_texts) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  serve::FormatRequest request;
  if (!options.schema.empty()) {
    request = {serve::FormatRequest::kJsonSchema, read_file(options.schema)};
  }
  const Clock::time_point begin = Clock::now();
  serve::GrammarCache cache(tokenizer);
  const double vocabulary = microseconds_since(begin);
  Drawing drawing(tokenizer, options.seed);
  const std::int32_t end = drawing.end();
  Times first, all;
  double compile = 0;
  int finished = 0;
  for (int i = 0; i < options.texts; ++i) {
    const Clock::time_point start = Clock::now();
    const auto constraint = serve::make_constraint(request, cache, {&end, 1});
    if (i == 0) compile = microseconds_since(start);
    const auto text = drawing.draw(*constraint, all);
    if (i == 0) first = all;
    finished += text ? 1 : 0;
    if (text && prints_texts) fmt::print("{}\n", *text);
  }
  if (prints_texts) return;
  fmt::print(
      "{{\"vocabulary\": {:.0f}, \"compile\": {:.0f}, \"texts\": {}, \"first_text\": {}, "
      "\"masks\": "
      "{}, \"accepts\": {}}}\n",
      vocabulary, compile, finished, summary(first.masks), summary(all.masks),
      summary(all.accepts));
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Options options;
  CLI::App app{"Masks of tokens for texts with a form, on one thread."};
  app.require_subcommand(1);
  CLI::App* masks = app.add_subcommand("masks", "What they cost.");
  CLI::App* draw = app.add_subcommand("draw", "Random texts.");
  for (CLI::App* command : {masks, draw}) {
    command->add_option("--tokenizer", options.tokenizer, "tokenizer.json")->required();
    command->add_option("--schema", options.schema, "a JSON schema");
    command->add_option("--texts", options.texts)->capture_default_str();
    command->add_option("--seed", options.seed)->capture_default_str();
  }
  CLI11_PARSE(app, argc, argv);
  try {
    atl::run(options, draw->parsed());
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
