#include "atoll/serve/api/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

namespace atl::serve::api {

namespace {

using Type = FieldType;

constexpr std::size_t kMaxStops = 4;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxBiases = 1024;
constexpr double kMaxChoices = 128;    // OpenAI's bound
constexpr double kMaxTemperature = 2;  // OpenAI's bound
constexpr double kMaxPenalty = 2;      // OpenAI's bound
constexpr double kMaxBias = 100;       // OpenAI's bound
constexpr double kMaxRepetition = 10;  // beyond it no other token has a chance
constexpr double kMinRepetition = LogitChanges::kMinRepetition;
constexpr std::size_t kMaxFormBytes = 64 << 10;
constexpr double kMaxToken = std::numeric_limits<std::int32_t>::max();

void take_stop(const Json& value, Parameters& into) {
  into.stop = strings_of(value, "stop");
  if (into.stop.size() > kMaxStops) {
    throw field_error(
        "stop", fmt::format("stop has {} strings; give at most {}", into.stop.size(), kMaxStops));
  }
  for (const std::string& text : into.stop) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      throw field_error("stop", fmt::format("a string of stop has {} bytes; give 1 to {}",
                                            text.size(), kMaxStopBytes));
    }
  }
}

std::pair<std::int32_t, double> bias_of(const std::string& key, const Json& value) {
  std::int32_t token = -1;
  const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token);
  if (code != std::errc() || end != key.data() + key.size() || token < 0) {
    throw field_error("logit_bias", "a key of logit_bias is no id of a token");
  }
  const bool is_bias = value.is_number() && std::abs(value.get<double>()) <= kMaxBias;
  if (!is_bias) {
    throw field_error("logit_bias",
                      fmt::format("logit_bias of token {} must be a number from -{} to {}", token,
                                  kMaxBias, kMaxBias));
  }
  return {token, value.get<double>()};
}

void take_bias(const Json& value, Parameters& into) {
  if (value.size() > kMaxBiases) {
    throw field_error("logit_bias", fmt::format("logit_bias has {} tokens; give at most {}",
                                                value.size(), kMaxBiases));
  }
  for (const auto& [key, bias] : value.items()) into.changes.bias.push_back(bias_of(key, bias));
  // "7" and "07" are one token, of which both would count.
  auto& list = into.changes.bias;
  std::sort(list.begin(), list.end());
  const auto is_same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(list.begin(), list.end(), is_same) != list.end()) {
    throw field_error("logit_bias", "logit_bias has a token twice");
  }
}

const std::vector<Field<Parameters>>& stream_fields() {
  static const std::vector<Field<Parameters>> fields = {
      {{"include_usage", Type::kBoolean, "Whether a chunk with usage comes before the end."},
       [](const Json& value, Parameters& into) { into.includes_usage = value.get<bool>(); }},
      {{"include_obfuscation", Type::kIgnored, "Nothing is added to hide lengths."}, {}},
  };
  return fields;
}

void take_stream_options(const Json& value, Parameters& into) {
  refuse_unknown(value, rules_of(stream_fields()), "stream_options.");
  read_fields(value, stream_fields(), into, "stream_options.");
}

void set_format(Parameters& into, const char* name, FormatRequest format) {
  if (into.format) {
    throw field_error(name, fmt::format("{} comes beside another form of the answer; give one of "
                                        "response_format, grammar and regex",
                                        name));
  }
  if (format.text.size() > kMaxFormBytes) {
    throw field_error(name, fmt::format("{} has {} bytes; give at most {}", name,
                                        format.text.size(), kMaxFormBytes));
  }
  into.format = std::move(format);
}

std::string schema_of(const Json& value) {
  constexpr const char* kName = "response_format.json_schema";
  const auto holder = value.find("json_schema");
  if (holder == value.end() || !holder->is_object()) {
    throw field_error(kName, fmt::format("{} must be an object with a schema", kName),
                      "missing_required_parameter");
  }
  const auto schema = holder->find("schema");
  if (schema == holder->end() || !(schema->is_object() || schema->is_boolean())) {
    throw field_error(std::string(kName) + ".schema",
                      fmt::format("{}.schema must be a JSON schema", kName),
                      "missing_required_parameter");
  }
  return to_text(*schema);
}

void take_response_format(const Json& value, Parameters& into) {
  using Kind = FormatRequest::Kind;
  constexpr const char* kName = "response_format";
  const auto found = value.find("type");
  const std::string type =
      found != value.end() && found->is_string() ? found->get<std::string>() : "";
  if (type == "text") return;
  if (type == "json_object") {
    set_format(into, kName, {.kind = Kind::kJsonObject, .text = ""});
  } else if (type == "json_schema") {
    set_format(into, kName, {.kind = Kind::kJsonSchema, .text = schema_of(value)});
  } else {
    throw field_error("response_format.type",
                      "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
  }
}

std::vector<Field<Parameters>> sampling_fields() {
  return {
      {{"temperature", Type::kNumber, "Divides the logits; 0: always the likeliest token.", 0,
        kMaxTemperature},
       [](const Json& value, Parameters& into) {
         into.sampling.temperature = value.get<double>();
       }},
      {{.name = "top_p",
        .type = Type::kNumber,
        .help = "Only the smallest set of tokens with this probability.",
        .least = 0,
        .most = 1,
        .is_above_least = true},
       [](const Json& value, Parameters& into) { into.sampling.top_p = value.get<double>(); }},
      {{"top_k", Type::kInteger, "Only the k likeliest tokens; 0 or -1: all.", -1, kMaxToken},
       [](const Json& value, Parameters& into) {
         into.sampling.top_k = std::max<std::int64_t>(integer_of(value), 0);
       }},
      {{"min_p", Type::kNumber, "Only tokens with this much of the likeliest token's probability.",
        0, 1},
       [](const Json& value, Parameters& into) { into.changes.min_p = value.get<double>(); }},
      {{"seed", Type::kInteger, "The same seed gives the same answer; absent: another each time."},
       [](const Json& value, Parameters& into) {
         into.sampling.seed = value.is_number_unsigned()
                                  ? value.get<std::uint64_t>()
                                  : static_cast<std::uint64_t>(value.get<std::int64_t>());
         into.has_seed = true;
       }},
      {{"logit_bias", Type::kObject, "Added to the logits of tokens, by id.", -kMaxBias, kMaxBias,
        R"({"type":"number"})"},
       take_bias},
      {{"presence_penalty", Type::kNumber, "Taken off the logits of tokens that have come.",
        -kMaxPenalty, kMaxPenalty},
       [](const Json& value, Parameters& into) {
         into.changes.presence_penalty = value.get<double>();
       }},
      {{"frequency_penalty", Type::kNumber, "The same, for each time that a token has come.",
        -kMaxPenalty, kMaxPenalty},
       [](const Json& value, Parameters& into) {
         into.changes.frequency_penalty = value.get<double>();
       }},
      {{"repetition_penalty", Type::kNumber,
        "Makes tokens of prompt and answer less likely; 1: no change.", kMinRepetition,
        kMaxRepetition},
       [](const Json& value, Parameters& into) {
         into.changes.repetition_penalty = value.get<double>();
       }},
  };
}

std::vector<Field<Parameters>> answer_fields() {
  return {
      {{"model", Type::kString, "A name that GET /v1/models lists."},
       [](const Json& value, Parameters& into) { into.model = value.get<std::string>(); }},
      {{"n", Type::kInteger, "How many answers.", 1, kMaxChoices},
       [](const Json& value, Parameters& into) { into.num_choices = integer_of(value); }},
      {{"stop", Type::kOther, "Texts that end an answer and are no part of it.", 0, 0,
        R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"maxItems":4}]})"},
       take_stop},
      {{"stop_token_ids", Type::kArray, "Tokens that end an answer.", 0, kMaxToken,
        R"({"type":"integer"})"},
       [](const Json& value, Parameters& into) {
         into.stop_tokens = tokens_of(value, "stop_token_ids");
       }},
      {{"ignore_eos", Type::kBoolean, "Whether answers go on after the model's own end."},
       [](const Json& value, Parameters& into) { into.ignores_end = value.get<bool>(); }},
      {{"stream", Type::kBoolean, "Whether the answer comes as server-sent events."},
       [](const Json& value, Parameters& into) { into.streams = value.get<bool>(); }},
      {{"stream_options", Type::kObject, "What a stream tells.", 0, 0}, take_stream_options},
      {{"return_token_ids", Type::kBoolean, "Whether ids of prompt and answer are told."},
       [](const Json& value, Parameters& into) { into.returns_tokens = value.get<bool>(); }},
      {{"cache_salt", Type::kString, "Prompts share what was computed under the same salt only."},
       [](const Json& value, Parameters& into) { into.cache_salt = value.get<std::string>(); }},
      {{"response_format", Type::kObject, "JSON as the form of the answer.", 0, 0},
       take_response_format},
      {{"grammar", Type::kString, "A grammar that the answer follows."},
       [](const Json& value, Parameters& into) {
         set_format(into, "grammar",
                    {.kind = FormatRequest::Kind::kGrammar, .text = value.get<std::string>()});
       }},
      {{"regex", Type::kString, "A regular expression that the answer matches."},
       [](const Json& value, Parameters& into) {
         set_format(into, "regex",
                    {.kind = FormatRequest::Kind::kRegex, .text = value.get<std::string>()});
       }},
      {{"user", Type::kIgnored, "For the client's own use."}, {}},
  };
}

}  // namespace

std::vector<std::string> strings_of(const Json& value, const std::string& name) {
  if (value.is_string()) return {value.get<std::string>()};
  const bool is_list = value.is_array() && std::all_of(value.begin(), value.end(),
                                                       [](const Json& v) { return v.is_string(); });
  if (!is_list) {
    throw field_error(name, fmt::format("{} must be a string or a list of strings", name),
                      "invalid_type");
  }
  return value.get<std::vector<std::string>>();
}

std::vector<std::int32_t> tokens_of(const Json& value, const std::string& name) {
  std::vector<std::int32_t> tokens;
  for (const Json& each : value) {
    const bool is_id = each.is_number_integer() && integer_of(each) >= 0 &&
                       integer_of(each) <= std::numeric_limits<std::int32_t>::max();
    if (!is_id) {
      throw field_error(name, fmt::format("{} must hold ids of tokens", name), "invalid_type");
    }
    tokens.push_back(static_cast<std::int32_t>(integer_of(each)));
  }
  return tokens;
}

const std::vector<Field<Parameters>>& parameter_fields() {
  static const std::vector<Field<Parameters>> fields = [] {
    std::vector<Field<Parameters>> all = answer_fields();
    for (Field<Parameters>& field : sampling_fields()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace atl::serve::api
