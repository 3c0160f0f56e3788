#include "atoll/serve/task_encoding.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::serve {

namespace {

std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

TaskEncoder::TaskEncoder(const Tokenizer& tokenizer, std::optional<ChatTemplate> chat,
                         bool wrap_prompts, std::string path)
    : tokenizer_(tokenizer),
      encoder_(tokenizer),
      chat_(std::move(chat)),
      wrap_prompts_(wrap_prompts),
      path_(std::move(path)) {}

EncodedItem TaskEncoder::encode(const TaskItem& item) {
  try {
    return encode_item(item);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} line {}: {}", path_, item.line, error.what()));
  }
}

EncodedItem TaskEncoder::encode_item(const TaskItem& item) {
  EncodedItem encoded;
  encoded.is_chat = wrap_prompts_ || !item.messages.empty();
  if (encoded.is_chat) {
    ATOLL_CHECK(chat_.has_value());
    std::vector<ChatMessage> messages = item.messages;
    if (messages.empty()) messages.push_back({"user", item.prompt, ""});
    encoded.prompt = chat_->render(
        messages, {.add_generation_prompt = true, .variables = item.variables, .now = {}});
  } else {
    encoded.prompt = item.prompt;
  }
  if (item.is_multiple_choice()) {
    encode_choices(item, encoded);
  } else {
    encoded.context = tokens_of(encoded.prompt, encoded.is_chat);
  }
  if (!encoded.context.empty()) return encoded;
  const auto start = tokenizer_.end_of_text();
  if (!start) {
    throw user_error(
        "no token stands before the answer, and the tokenizer has none that begins a text; give a "
        "longer prompt");
  }
  encoded.context = {*start};
  return encoded;
}

void TaskEncoder::encode_choices(const TaskItem& item, EncodedItem& encoded) {
  const std::string& prompt = encoded.prompt;
  const std::size_t end = text::trailing_white_space(prompt, 0);
  const std::vector<std::int32_t> alone = tokens_of(prompt.substr(0, end), encoded.is_chat);
  std::size_t shared = alone.size();
  for (const std::string& choice : item.choices) {
    encoded.continuations.push_back(tokens_of(prompt + choice, encoded.is_chat));
    shared = std::min(shared, common_prefix(alone, encoded.continuations.back()));
  }
  encoded.context.assign(alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(shared));
  for (std::size_t i = 0; i < encoded.continuations.size(); ++i) {
    std::vector<std::int32_t>& tokens = encoded.continuations[i];
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(shared));
    if (tokens.empty()) {
      throw user_error("\"choices\"[{}] has no token of its own: the tokenizer drops its text", i);
    }
  }
}

std::vector<std::int32_t> TaskEncoder::tokens_of(const std::string& text, bool is_chat) {
  std::vector<std::int32_t> tokens;
  // A template writes the tokens that begin a text itself.
  encoder_.encode(text, tokens, {.add_special = !is_chat});
  return tokens;
}

std::int64_t positions_needed(const EncodedItem& item, std::int64_t max_new_tokens) {
  std::size_t longest = static_cast<std::size_t>(max_new_tokens);
  if (!item.continuations.empty()) longest = 0;
  for (const auto& tokens : item.continuations) longest = std::max(longest, tokens.size());
  return static_cast<std::int64_t>(item.context.size() + longest) - 1;
}

bool drop_left(EncodedItem& item, std::int64_t count) {
  if (count >= static_cast<std::int64_t>(item.context.size())) return false;
  item.context.erase(item.context.begin(), item.context.begin() + count);
  item.dropped += count;
  return true;
}

}  // namespace atl::serve
