#include "atoll/serve/api/token_routes.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/serve/api/chat_request.h"
#include "atoll/serve/api/generation.h"

namespace atl::serve::api {

namespace {

using Type = FieldType;

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  std::vector<ChatMessage> messages;
  bool adds_special = true;
  bool returns_texts = false;
  std::vector<std::int32_t> tokens;
};

const Field<TokenizeRequest>& model_field() {
  static const Field<TokenizeRequest> field = {
      {"model", Type::kString, "A name that GET /v1/models lists."},
      [](const Json& value, TokenizeRequest& into) { into.model = value.get<std::string>(); }};
  return field;
}

const std::vector<Field<TokenizeRequest>>& tokenize_fields() {
  static const std::vector<Field<TokenizeRequest>> fields = {
      model_field(),
      {{"prompt", Type::kString, "A text; or give messages."},
       [](const Json& value, TokenizeRequest& into) { into.prompt = value.get<std::string>(); }},
      {{"messages", Type::kArray, "A conversation, as the chat template writes it.", 0, 0,
        R"({"type":"object"})"},
       [](const Json& value, TokenizeRequest& into) {
         into.messages = parse_chat_messages(value);
       }},
      {{"add_special_tokens", Type::kBoolean, "Whether a text gets what begins one (true)."},
       [](const Json& value, TokenizeRequest& into) { into.adds_special = value.get<bool>(); }},
      {{"return_token_strs", Type::kBoolean, "Whether the texts of the tokens are told, too."},
       [](const Json& value, TokenizeRequest& into) { into.returns_texts = value.get<bool>(); }},
  };
  return fields;
}

const std::vector<Field<TokenizeRequest>>& detokenize_fields() {
  static const std::vector<Field<TokenizeRequest>> fields = {
      model_field(),
      {{.name = "tokens",
        .type = Type::kArray,
        .help = "Ids of tokens.",
        .schema = R"({"type":"integer"})",
        .is_required = true},
       [](const Json& value, TokenizeRequest& into) { into.tokens = tokens_of(value, "tokens"); }},
  };
  return fields;
}

TokenizeRequest parse(const Json& body, const std::vector<Field<TokenizeRequest>>& fields,
                      const ServedModel& model) {
  refuse_unknown(body, rules_of(fields));
  TokenizeRequest request;
  read_fields(body, fields, request);
  check_model(model, request.model);
  return request;
}

}  // namespace

std::vector<FieldRule> tokenize_rules() {
  return rules_of(tokenize_fields());
}

std::vector<FieldRule> detokenize_rules() {
  return rules_of(detokenize_fields());
}

std::string tokenize(const Json& body, const ServedModel& model) {
  const TokenizeRequest request = parse(body, tokenize_fields(), model);
  if (request.prompt.has_value() != request.messages.empty()) {
    throw field_error("prompt", "give either prompt or messages", "missing_required_parameter");
  }
  std::vector<std::int32_t> tokens;
  if (!request.prompt) {
    tokens = chat_prompt(model, request.messages, "").tokens;
  } else {
    try {
      tokens = model.tokenizer.encode(*request.prompt, {.add_special = request.adds_special});
    } catch (const Error& error) {
      throw field_error("prompt", error.what());
    }
  }
  Json answer = {{"tokens", tokens},
                 {"count", tokens.size()},
                 {"max_model_len", model.generator->max_tokens()}};
  if (request.returns_texts) {
    Json& texts = answer["token_strs"] = Json::array();
    for (const std::int32_t token : tokens) texts.push_back(model.tokenizer.token_bytes(token));
  }
  return to_text(answer);
}

std::string detokenize(const Json& body, const ServedModel& model) {
  const TokenizeRequest request = parse(body, detokenize_fields(), model);
  try {
    return to_text(Json{{"prompt", model.tokenizer.decode(request.tokens)}});
  } catch (const Error& error) {
    throw field_error("tokens", error.what());
  }
}

}  // namespace atl::serve::api
