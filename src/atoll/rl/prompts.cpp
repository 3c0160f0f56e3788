#include "atoll/rl/prompts.h"

#include <nlohmann/json.hpp>

#include <numeric>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/quantity.h"
#include "atoll/base/rng.h"

namespace atl::rl {

namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(const PromptOptions& options) : options_(options) {}

  Prompt read(const std::string& line, const std::string& origin) {
    const Json row = Json::parse(line, nullptr, false);
    if (row.is_discarded() || !row.is_object()) {
      throw user_error("{} is no JSON object; each line of rl.prompts is one", origin);
    }
    Prompt prompt = {.row = line, .origin = origin};
    if (row.contains("answer") && !row["answer"].is_null()) {
      const Json& answer = row["answer"];
      prompt.answer = answer.is_string() ? answer.get<std::string>() : answer.dump();
    }
    prompt.tokens = tokens_of(row, origin);
    const std::int64_t count = std::ssize(prompt.tokens);
    if (count == 0) throw user_error("{}: the prompt is empty", origin);
    if (count > options_.max_tokens) {
      throw user_error(
          "{}: the prompt has {}, and train.context leaves {} beside a completion; take it out, or "
          "raise train.context",
          origin, counted(count, "token"), options_.max_tokens);
    }
    return prompt;
  }

 private:
  std::vector<std::int32_t> tokens_of(const Json& row, const std::string& origin) {
    const char* const key = row.contains("prompt") ? "prompt" : "messages";
    if (!row.contains(key)) {
      throw user_error("{} has no \"prompt\": a text, or a list of messages", origin);
    }
    const Json& prompt = row[key];
    if (prompt.is_string() && key == std::string("prompt")) {
      // What the tokenizer puts behind a whole text would end it before the completion.
      std::vector<std::int32_t> tokens = options_.tokenizer->tokens_before();
      const std::vector<std::int32_t> text = options_.tokenizer->encode(prompt.get<std::string>());
      tokens.insert(tokens.end(), text.begin(), text.end());
      return tokens;
    }
    if (!prompt.is_array()) {
      throw user_error("{}: \"{}\" is neither a text nor a list of messages", origin, key);
    }
    if (!chat_) chat_ = options_.chat();
    const std::string text =
        chat_->render(parse_messages(prompt.dump(), origin), {.add_generation_prompt = true});
    return options_.tokenizer->encode(text);
  }

  const PromptOptions& options_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace

std::vector<Prompt> read_prompts(const std::vector<std::filesystem::path>& files,
                                 const PromptOptions& options) {
  Reader reader(options);
  std::vector<Prompt> prompts;
  for (const std::filesystem::path& file : files) {
    const std::string content = read_file(file);
    std::size_t line_number = 0;
    for (std::size_t begin = 0; begin < content.size();) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      std::string line = content.substr(begin, end - begin);
      begin = end + 1;
      ++line_number;
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      prompts.push_back(reader.read(line, fmt::format("{}, line {}", file.string(), line_number)));
    }
  }
  if (prompts.empty()) {
    throw user_error("rl.prompts: there is no row in {}", files.empty() ? "" : files[0].string());
  }
  return prompts;
}

PromptOrder::PromptOrder(std::uint64_t seed, std::int64_t num_prompts)
    : seed_(seed), order_(static_cast<std::size_t>(num_prompts)) {}

// Fisher and Yates, each swap by a draw of its own.
std::int64_t PromptOrder::at(std::int64_t place) {
  const auto size = static_cast<std::int64_t>(order_.size());
  if (const std::int64_t epoch = place / size; epoch != epoch_) {
    epoch_ = epoch;
    std::iota(order_.begin(), order_.end(), 0);
    const RngStream draws(seed_, RngPurpose::kShuffle, static_cast<std::uint64_t>(epoch));
    for (std::size_t i = order_.size(); i > 1; --i) {
      const std::array<std::uint32_t, 4> words = draws.block(i);
      const std::uint64_t word = (std::uint64_t{words[0]} << 32) | words[1];
      std::swap(order_[i - 1], order_[word % i]);
    }
  }
  return order_[static_cast<std::size_t>(place % size)];
}

}  // namespace atl::rl
