#include "atoll/serve/api/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/http/access.h"
#include "atoll/serve/api/reasoning/reasoning.h"
#include "atoll/serve/api/reasoning/reasoning_constraint.h"

namespace atl::serve::api {

namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kDefaultNewTokens = 16;  // of a completion, as OpenAI has it

std::string fingerprint_of(const ServedModel& model, const std::string& adapter) {
  const std::string version = model.generator->version(adapter);
  if (version.empty() || model.fingerprint.empty()) return model.fingerprint;
  return model.fingerprint + "-" + version;
}

std::string adapter_of(const Parameters& request, const ServedModel& model) {
  return request.model == model.name ? "" : request.model;
}

AnswerHead head_of(const Parameters& request, const ServedModel& model, bool is_chat) {
  return {.is_chat = is_chat,
          .streams = request.streams,
          .includes_usage = request.includes_usage,
          .returns_tokens = request.returns_tokens,
          .top_logprobs = request.top_logprobs,
          .id = (is_chat ? "chatcmpl-" : "cmpl-") + http::new_token(),
          .model = request.model.empty() ? model.name : request.model,
          .created_s = static_cast<std::int64_t>(std::time(nullptr)),
          .fingerprint = fingerprint_of(model, adapter_of(request, model)),
          .more = {}};
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

const char* name_of(FormatRequest::Kind kind) {
  switch (kind) {
    case FormatRequest::Kind::kGrammar:
      return "grammar";
    case FormatRequest::Kind::kRegex:
      return "regex";
    case FormatRequest::Kind::kToolCall:
      return "tools";
    default:
      return "response_format";
  }
}

std::unique_ptr<TokenConstraint> constraint_of(const FormatRequest& format,
                                               const ServedModel& model,
                                               const Tokens& stop_tokens) {
  const char* name = name_of(format.kind);
  if (!model.make_constraint) {
    throw field_error(name, fmt::format("{} is not supported by this server", name),
                      "unsupported_parameter");
  }
  try {
    return model.make_constraint(format, stop_tokens);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser) throw;
    throw field_error(name, error.what());
  }
}

// The model's own and the request's, ascending.
Tokens stop_tokens_of(const Parameters& request, const ServedModel& model, bool is_chat) {
  Tokens stops = request.stop_tokens;
  if (!request.ignores_end) {
    stops.insert(stops.end(), model.stop_tokens.begin(), model.stop_tokens.end());
    if (is_chat) {
      stops.insert(stops.end(), model.chat_stop_tokens.begin(), model.chat_stop_tokens.end());
    }
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

void check_tokens(const Parameters& request, const Generator& generator) {
  const std::int64_t size = generator.vocab_size();
  const auto check = [size](std::int32_t token, const char* name) {
    if (token < size) return;
    throw field_error(name, fmt::format("{} names the token {}, and the model has ids below {}",
                                        name, token, size));
  };
  for (const std::int32_t token : request.stop_tokens) check(token, "stop_token_ids");
  for (const auto& [token, bias] : request.changes.bias) check(token, "logit_bias");
}

// New tokens that there is room for behind a prompt, of those that are asked for.
std::int64_t room_for(std::int64_t prompt, std::optional<std::int64_t> asked, std::int64_t most,
                      const char* name) {
  if (prompt > most || (prompt == most && asked != 0)) {
    throw field_error(name,
                      fmt::format("the prompt has {} tokens, and prompt and answer together may "
                                  "have {}; shorten it",
                                  prompt, most),
                      "context_length_exceeded");
  }
  return std::min(asked.value_or(most), most - prompt);
}

// All that is the same in the sequences of a request.
struct Plan {
  const Parameters& request;
  const ServedModel& model;
  bool is_chat = false;
  bool echoes = false;
  std::vector<std::string> tool_names;
  bool has_one_call = false;
  std::optional<FormatRequest> format;
  bool begins_in_reasoning = false;  // the prompt has the mark
  bool splits_reasoning = false;
  std::optional<std::int64_t> new_tokens;
  std::vector<Tokens> prompts;

  const char* prompt_name() const { return is_chat ? "messages" : "prompt"; }
};

GenerationRequest sequence_of(const Plan& plan, const Tokens& prompt, std::int64_t number,
                              std::uint64_t seed, const std::string& asker) {
  const Parameters& request = plan.request;
  const ServedModel& model = plan.model;
  GenerationRequest made;
  made.prompt = prompt;
  made.max_new_tokens = room_for(std::ssize(prompt), plan.new_tokens, model.generator->max_tokens(),
                                 plan.prompt_name());
  made.sampling = request.sampling;
  made.sampling.seed = seed;
  made.sequence = number;
  made.changes = request.changes;
  made.stop_tokens = stop_tokens_of(request, model, plan.is_chat);
  made.top_logprobs = request.top_logprobs;
  made.prompt_logprobs = plan.echoes && request.top_logprobs >= 0;
  made.cache_key = asker + "\n" + request.cache_salt;
  if (plan.format) {
    made.constraint = constraint_of(*plan.format, model, made.stop_tokens);
    if (plan.begins_in_reasoning) {
      made.constraint = std::make_unique<ReasoningConstraint>(model.tokenizer, made.stop_tokens,
                                                              std::move(made.constraint));
    }
  }
  made.adapter = adapter_of(request, model);
  return made;
}

Plan plan_of(const CompletionRequest& request, const ServedModel& model) {
  Plan plan{.request = request,
            .model = model,
            .echoes = request.echoes,
            .format = request.format,
            .new_tokens = request.max_tokens.value_or(kDefaultNewTokens)};
  for (const Prompt& prompt : request.prompts) {
    plan.prompts.push_back(tokens_of_prompt(model, prompt));
  }
  return plan;
}

// The form of an answer that has to call a tool.
FormatRequest forced_calls(const ChatRequest& request, const ServedModel& model) {
  constexpr int kMaxCalls = 128;
  const ToolCallForm& form = model.tool_calls;
  const int most = form.is_tagged && !request.has_one_call ? kMaxCalls : 1;
  return {.kind = FormatRequest::kToolCall,
          .text = fmt::format(R"({{"tagged":{},"arguments":"{}","max_calls":{},"tools":{}}})",
                              form.is_tagged, form.arguments, most, request.forced_tools)};
}

Plan plan_of(const ChatRequest& request, const ServedModel& model) {
  Plan plan{.request = request,
            .model = model,
            .is_chat = true,
            .tool_names = request.tool_names,
            .has_one_call = request.has_one_call,
            .format = request.forced_tools.empty() ? request.format : forced_calls(request, model),
            .splits_reasoning = request.splits_reasoning && model.has_reasoning,
            .new_tokens = request.max_tokens};
  ChatPrompt prompt = chat_prompt(model, request.messages, request.variables);
  plan.begins_in_reasoning = prompt.ends_in_reasoning && model.has_reasoning;
  plan.prompts.push_back(std::move(prompt.tokens));
  return plan;
}

ChoiceOptions choice_of(const Plan& plan, std::size_t prompt, std::int64_t number) {
  return {.index = prompt * static_cast<std::size_t>(plan.request.num_choices) +
                   static_cast<std::size_t>(number),
          .stops = plan.request.stop,
          .tool_names = plan.tool_names,
          .has_one_call = plan.has_one_call,
          .splits_reasoning = plan.splits_reasoning,
          .begins_in_reasoning = plan.begins_in_reasoning,
          .echoes = plan.echoes,
          .counts_prompt = number == 0,
          .prompt = plan.prompts[prompt]};
}

// A sequence that is ready for the generator.
struct Sequence {
  GenerationRequest request;
  std::shared_ptr<Choice> choice;
};

std::vector<GenerationRequest> requests_of(const Plan& plan, const std::string& asker) {
  const std::uint64_t seed = plan.request.has_seed ? plan.request.sampling.seed : random_seed();
  std::vector<GenerationRequest> made;
  for (const Tokens& prompt : plan.prompts) {
    for (std::int64_t number = 0; number < plan.request.num_choices; ++number) {
      made.push_back(sequence_of(plan, prompt, number, seed, asker));
    }
  }
  return made;
}

std::vector<Sequence> sequences_of(std::vector<GenerationRequest> requests, const Plan& plan,
                                   Serving& serving, const Asker& asker,
                                   const std::shared_ptr<Answer>& answer) {
  const auto of_prompt = static_cast<std::size_t>(plan.request.num_choices);
  std::vector<Sequence> made;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i % of_prompt);
    auto choice = std::make_shared<Choice>(choice_of(plan, i / of_prompt, number), answer, serving,
                                           asker.came);
    choice->open();
    made.push_back({std::move(requests[i]), std::move(choice)});
  }
  return made;
}

// False: the generator's queue is full.
bool submit(Sequence sequence, Serving& serving, Answer& answer) {
  ++serving.num_sequences;
  std::optional<std::uint64_t> number;
  try {
    number = serving.model.generator->submit(std::move(sequence.request), sequence.choice);
  } catch (...) {
    --serving.num_sequences;
    throw;
  }
  if (number) {
    answer.add_sequence(*number);
  } else {
    --serving.num_sequences;
  }
  return number.has_value();
}

void submit_all(std::vector<Sequence> sequences, Serving& serving, Answer& answer) {
  try {
    for (Sequence& sequence : sequences) {
      if (!answer.is_wanted()) return;
      if (submit(std::move(sequence), serving, answer)) continue;
      answer.refuse(ApiError(429, "the queue is full; try again", "", "rate_limit_exceeded"));
      return;
    }
    answer.start();
  } catch (const Error& error) {
    answer.refuse(ApiError(error.kind() == ErrorKind::kUser ? 400 : 500, error.what()));
  }
}

std::shared_ptr<Answer> run(const Plan& plan, Serving& serving, const Asker& asker) {
  const ServedModel& model = plan.model;
  check_model(model, plan.request.model);
  check_tokens(plan.request, *model.generator);
  const std::size_t num_choices =
      plan.prompts.size() * static_cast<std::size_t>(plan.request.num_choices);
  if (static_cast<std::int64_t>(num_choices) > model.generator->max_waiting()) {
    throw field_error(plan.request.num_choices > 1 ? "n" : "prompt",
                      fmt::format("the request has {} answers, and {} may wait; ask for fewer",
                                  num_choices, model.generator->max_waiting()));
  }
  std::vector<GenerationRequest> requests = requests_of(plan, asker.key);
  // Until all are submitted: one version answers, and is named.
  const auto held = model.generator->hold_version();
  check_model(model, plan.request.model);  // an adapter may have gone meanwhile
  AnswerHead head = head_of(plan.request, model, plan.is_chat);
  if (plan.is_chat && head.returns_tokens) {
    head.more = fmt::format(",\"prompt_token_ids\":[{}]", fmt::join(plan.prompts.front(), ","));
  }
  // Shared: by its choices, and by what the server calls when the client goes.
  auto answer =
      std::make_shared<Answer>(std::move(head), num_choices, asker.reply, *model.generator);
  std::vector<Sequence> sequences = sequences_of(std::move(requests), plan, serving, asker, answer);
  asker.reply.on_gone([answer] { answer->cancel(); });
  submit_all(std::move(sequences), serving, *answer);
  return answer;
}

GenerationRequest only_sequence_of(const Plan& plan, std::uint64_t seed) {
  check_model(plan.model, plan.request.model);
  check_tokens(plan.request, *plan.model.generator);
  if (plan.request.num_choices != 1) throw field_error("n", "n must be 1 here");
  if (plan.prompts.size() != 1) throw field_error("prompt", "there must be one prompt here");
  if (plan.echoes) throw field_error("echo", "echo is not done here");
  const bool has_seed = plan.request.has_seed;
  return sequence_of(plan, plan.prompts.front(), 0, has_seed ? plan.request.sampling.seed : seed,
                     "");
}

}  // namespace

void check_model(const ServedModel& model, const std::string& name) {
  if (name.empty() || name == model.name) return;
  const std::vector<std::string> adapters = model.generator->adapters();
  if (std::find(adapters.begin(), adapters.end(), name) != adapters.end()) return;
  throw ApiError(
      404, fmt::format("there is no model {}; GET /v1/models lists them", name.substr(0, 200)),
      "model", "model_not_found");
}

std::vector<std::int32_t> tokens_of_prompt(const ServedModel& model, const Prompt& prompt,
                                           const char* name) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return prompt_tokens(model, *text);
  const Tokens& tokens = std::get<Tokens>(prompt);
  if (tokens.empty()) throw field_error(name, fmt::format("{} has no token; give one", name));
  const std::int64_t size =
      std::min<std::int64_t>(model.generator->vocab_size(), model.tokenizer.vocab_size());
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < size) continue;
    throw field_error(name, fmt::format("{} has the token {}, and the model has ids below {}", name,
                                        token, size));
  }
  return tokens;
}

std::vector<std::int32_t> prompt_tokens(const ServedModel& model, const std::string& text) {
  Tokens tokens;
  try {
    tokens = model.tokenizer.encode(text, {.add_special = true});
  } catch (const Error& error) {
    throw field_error("prompt", error.what());
  }
  if (!tokens.empty()) return tokens;
  // What follows the end of a document is the beginning of another.
  if (const auto start = model.tokenizer.end_of_text()) return {*start};
  throw field_error("prompt", "prompt is empty, and the model has no token that begins a text");
}

ChatPrompt chat_prompt(const ServedModel& model, const std::vector<ChatMessage>& messages,
                       const std::string& variables) {
  if (!model.chat) {
    throw ApiError(400, "the model has no chat template; use /v1/completions", "messages",
                   "unsupported_model");
  }
  try {
    const std::string text =
        model.chat->render(messages, {.add_generation_prompt = true, .variables = variables});
    ChatPrompt prompt = {.tokens = model.tokenizer.encode(text),
                         .ends_in_reasoning = ends_in_reasoning(text)};
    if (prompt.tokens.empty()) throw user_error("the conversation gives no token");
    return prompt;
  } catch (const Error& error) {
    throw field_error("messages", error.what());
  }
}

std::shared_ptr<Answer> generate(const CompletionRequest& request, Serving& serving,
                                 const Asker& asker) {
  return run(plan_of(request, serving.model), serving, asker);
}

std::shared_ptr<Answer> generate(const ChatRequest& request, Serving& serving, const Asker& asker) {
  return run(plan_of(request, serving.model), serving, asker);
}

GenerationRequest only_sequence(const CompletionRequest& request, const ServedModel& model,
                                std::uint64_t seed) {
  return only_sequence_of(plan_of(request, model), seed);
}

GenerationRequest only_sequence(const ChatRequest& request, const ServedModel& model,
                                std::uint64_t seed) {
  return only_sequence_of(plan_of(request, model), seed);
}

}  // namespace atl::serve::api
