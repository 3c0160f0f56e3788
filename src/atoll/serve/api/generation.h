#pragma once

// From a parsed request to sequences of the generator.

#include <memory>
#include <string>

#include "atoll/http/reply.h"
#include "atoll/serve/api/answer.h"
#include "atoll/serve/api/chat_request.h"
#include "atoll/serve/api/choice.h"
#include "atoll/serve/api/completion_request.h"
#include "atoll/serve/api/serving.h"

namespace atl::serve::api {

/// Where a request comes from.
struct Asker {
  http::Reply reply;
  std::string key;  ///< who asks; requests of others share no cache
  Choice::Clock::time_point came;
};

/// Hands the sequences of a request to the generator, whose answers go to the asker's reply; so
/// does a refusal of the generator's queue, as status 429. Returns the answer, which is under way.
/// Throws ApiError for a request that cannot be served, and then has answered nothing.
std::shared_ptr<Answer> generate(const CompletionRequest& request, Serving& serving,
                                 const Asker& asker);
std::shared_ptr<Answer> generate(const ChatRequest& request, Serving& serving, const Asker& asker);

/// The one sequence of a request that is answered as a whole, by whoever asks for it; `seed`: of
/// one that has none itself. Throws ApiError for a request that cannot be served, or that has
/// several sequences.
GenerationRequest only_sequence(const CompletionRequest& request, const ServedModel& model,
                                std::uint64_t seed);
GenerationRequest only_sequence(const ChatRequest& request, const ServedModel& model,
                                std::uint64_t seed);

/// The tokens of a prompt. Throws ApiError naming the field `name` where it has none, or one that
/// the model does not have.
std::vector<std::int32_t> tokens_of_prompt(const ServedModel& model, const Prompt& prompt,
                                           const char* name = "prompt");
/// The tokens of a text prompt, with what the tokenizer puts before a text. Throws ApiError.
std::vector<std::int32_t> prompt_tokens(const ServedModel& model, const std::string& text);
/// A conversation, ready for an answer.
struct ChatPrompt {
  std::vector<std::int32_t> tokens;
  bool ends_in_reasoning = false;  ///< the template has begun what the model thinks
};
/// Renders a conversation. Throws ApiError naming "messages".
ChatPrompt chat_prompt(const ServedModel& model, const std::vector<ChatMessage>& messages,
                       const std::string& variables);
/// Throws ApiError(404) for a name that is neither empty, the model's nor an adapter's.
void check_model(const ServedModel& model, const std::string& name);

}  // namespace atl::serve::api
