#include "atoll/serve/api/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace atl::serve::api {

namespace {

using Type = FieldType;

constexpr std::size_t kMaxPrompts = 512;
constexpr std::size_t kMaxSequences = 1024;
constexpr double kMaxLogprobs = 20;
constexpr double kMaxNewTokens = 1 << 30;

template <typename Test>
bool all_are(const Json& list, Test&& test) {
  return std::all_of(list.begin(), list.end(), test);
}

void refuse_unless(bool is_neutral, const char* name, const char* what) {
  if (is_neutral) return;
  throw field_error(name, fmt::format("{} is not supported: {}", name, what),
                    "unsupported_parameter");
}

const std::vector<Field<CompletionRequest>>& completion_fields() {
  static const std::vector<Field<CompletionRequest>> fields = {
      {{.name = "prompt",
        .type = Type::kOther,
        .help = "A text, ids of tokens, or a list of these, each of which is continued.",
        .schema = kPromptSchema,
        .is_required = true},
       [](const Json& value, CompletionRequest& into) {
         into.prompts = prompts_of(value, "prompt");
       }},
      {{"max_tokens", Type::kInteger, "New tokens at most (16); 0: the prompt is read only.", 0,
        kMaxNewTokens},
       [](const Json& value, CompletionRequest& into) { into.max_tokens = integer_of(value); }},
      {{"logprobs", Type::kInteger, "Log-probabilities of tokens and of this many likeliest.", 0,
        kMaxLogprobs},
       [](const Json& value, CompletionRequest& into) {
         into.top_logprobs = static_cast<int>(integer_of(value));
       }},
      {{"echo", Type::kBoolean, "Whether the answer begins with the prompt."},
       [](const Json& value, CompletionRequest& into) { into.echoes = value.get<bool>(); }},
      {{"best_of", Type::kInteger, "The same number as n.", 1, kMaxSequences},
       [](const Json& value, CompletionRequest& into) {
         refuse_unless(integer_of(value) == into.num_choices, "best_of",
                       "leave it out, and choose among n answers");
       }},
      {{"suffix", Type::kString, "An empty text."},
       [](const Json& value, CompletionRequest& /*into*/) {
         refuse_unless(value.get<std::string>().empty(), "suffix",
                       "write what comes before and after into the prompt, as the model wants it");
       }},
  };
  return fields;
}

}  // namespace

const char* const kPromptSchema =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"anyOf":[)"
    R"({"type":"string"},{"type":"integer"},)"
    R"({"type":"array","items":{"type":"integer"}}]}}]})";

std::vector<Prompt> prompts_of(const Json& value, const std::string& name) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.empty()) {
    throw field_error(name, name + " must be a string, ids of tokens, or a list of these",
                      "invalid_type");
  }
  if (all_are(value, [](const Json& v) { return v.is_number(); })) {
    return {tokens_of(value, name)};
  }
  if (value.size() > kMaxPrompts) {
    throw field_error(
        name, fmt::format("{} has {} texts; give at most {}", name, value.size(), kMaxPrompts));
  }
  std::vector<Prompt> prompts;
  for (const Json& each : value) {
    if (each.is_string()) {
      prompts.emplace_back(each.get<std::string>());
    } else if (each.is_array()) {
      prompts.emplace_back(tokens_of(each, name));
    } else {
      throw field_error(name, name + " must be a string, ids of tokens, or a list of these",
                        "invalid_type");
    }
  }
  return prompts;
}

std::vector<FieldRule> completion_rules() {
  std::vector<FieldRule> rules = rules_of(parameter_fields());
  for (const FieldRule& rule : rules_of(completion_fields())) rules.push_back(rule);
  return rules;
}

CompletionRequest parse_completion(const Json& body) {
  refuse_unknown(body, completion_rules());
  CompletionRequest request;
  read_fields(body, parameter_fields(), static_cast<Parameters&>(request));
  read_fields(body, completion_fields(), request);
  const std::size_t sequences =
      request.prompts.size() * static_cast<std::size_t>(request.num_choices);
  if (sequences > kMaxSequences) {
    throw field_error("n", fmt::format("{} answers are asked for at once; ask for at most {}",
                                       sequences, kMaxSequences));
  }
  return request;
}

}  // namespace atl::serve::api
