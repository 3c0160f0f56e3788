#include "atoll/serve/api/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl::serve::api {

namespace {

using Type = FieldType;

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool is_base64 = false;
  Pooling pooling = Pooling::kMean;
  bool normalizes = true;
};

// Throws ApiError(400) unless the value is one of two words; says whether it is the second.
bool is_second(const Json& value, const char* name, const char* first, const char* second) {
  const std::string word = value.get<std::string>();
  if (word == first || word == second) return word == second;
  throw field_error(name, fmt::format("{} must be \"{}\" or \"{}\"", name, first, second));
}

const std::vector<Field<EmbeddingRequest>>& embedding_fields() {
  static const std::vector<Field<EmbeddingRequest>> fields = {
      {{"model", Type::kString, "A name that GET /v1/models lists."},
       [](const Json& value, EmbeddingRequest& into) { into.model = value.get<std::string>(); }},
      {{.name = "input",
        .type = Type::kOther,
        .help = "A text, ids of tokens, or a list of these, each of which gets a vector.",
        .schema = kPromptSchema,
        .is_required = true},
       [](const Json& value, EmbeddingRequest& into) { into.inputs = prompts_of(value, "input"); }},
      {{"encoding_format", Type::kString, "\"float\", or \"base64\" of little-endian f32."},
       [](const Json& value, EmbeddingRequest& into) {
         into.is_base64 = is_second(value, "encoding_format", "float", "base64");
       }},
      {{"pooling", Type::kString,
        "\"mean\" of the tokens' last hidden states, or the \"last\" one."},
       [](const Json& value, EmbeddingRequest& into) {
         into.pooling =
             is_second(value, "pooling", "mean", "last") ? Pooling::kLast : Pooling::kMean;
       }},
      {{"normalize", Type::kBoolean, "Whether vectors have length 1 (true)."},
       [](const Json& value, EmbeddingRequest& into) { into.normalizes = value.get<bool>(); }},
      {{"dimensions", Type::kRefused, "a vector has as many numbers as the model's hidden states"},
       {}},
      {{"user", Type::kIgnored, "Accepted; changes nothing."}, {}},
  };
  return fields;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

static_assert(std::endian::native == std::endian::little, "what clients expect");

std::string text_of(const std::vector<float>& vector, bool is_base64) {
  if (!is_base64) return fmt::format("[{}]", fmt::join(vector, ","));
  std::string bytes(vector.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  return json_string(base64(bytes));
}

void normalize(std::vector<float>& vector) {
  double sum = 0;
  for (const float x : vector) sum += static_cast<double>(x) * x;
  if (sum == 0) return;
  for (float& x : vector) x = static_cast<float>(x / std::sqrt(sum));
}

// The answer to one request: its vectors come one by one.
class EmbeddingAnswer final : public OpenAnswer {
 public:
  EmbeddingAnswer(EmbeddingRequest request, std::string model, http::Reply reply, Serving& serving)
      : request_(std::move(request)),
        model_(std::move(model)),
        reply_(std::move(reply)),
        serving_(serving),
        vectors_(request_.inputs.size()),
        left_(request_.inputs.size()) {}

  const EmbeddingRequest& request() const { return request_; }

  void add_sequence(std::uint64_t number) {
    {
      const std::lock_guard lock(mutex_);
      numbers_.push_back(number);
      if (!is_over_) return;
    }
    serving_.model.generator->cancel(number);
  }
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return is_over_;
  }
  // Last of all says that the sequence is done: the server may end then.
  void take(std::size_t index, GenerationResult result) {
    add(index, std::move(result));
    --serving_.num_sequences;
  }
  void refuse(const ApiError& error) override {
    std::vector<std::uint64_t> numbers;
    {
      const std::lock_guard lock(mutex_);
      if (!is_over_) answer(error_response(error));
      numbers = numbers_;
    }
    for (const std::uint64_t number : numbers) serving_.model.generator->cancel(number);
  }

 private:
  void add(std::size_t index, GenerationResult result) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    if (result.finish == Finish::kFailed)
      return answer(error_response(ApiError(500, result.error)));
    if (result.finish == Finish::kCancelled) {
      return answer(error_response(ApiError(503, "the server is ending")));
    }
    if (!std::ranges::all_of(result.embedding, [](float x) { return std::isfinite(x); })) {
      return answer(error_response(ApiError(500, "the model's hidden states are not finite")));
    }
    prompt_tokens_ += result.prompt_tokens;
    if (request_.normalizes) normalize(result.embedding);
    vectors_[index] = std::move(result.embedding);
    if (--left_ == 0) answer(http::Response::of("application/json", whole()));
  }
  void answer(http::Response response) {
    is_over_ = true;
    response.add("Cache-Control", "no-store").add("X-Content-Type-Options", "nosniff");
    reply_.send(std::move(response));
  }
  std::string whole() const {
    std::string data;
    for (std::size_t i = 0; i < vectors_.size(); ++i) {
      data += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})",
                          i == 0 ? "" : ",", i, text_of(vectors_[i], request_.is_base64));
    }
    const std::string usage =
        fmt::format(R"({{"prompt_tokens":{0},"total_tokens":{0}}})", prompt_tokens_);
    return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{}}})", data,
                       json_string(model_), usage);
  }

  const EmbeddingRequest request_;
  const std::string model_;
  const http::Reply reply_;
  Serving& serving_;
  std::mutex mutex_;
  std::vector<std::vector<float>> vectors_;
  std::size_t left_;
  std::int64_t prompt_tokens_ = 0;
  std::vector<std::uint64_t> numbers_;
  bool is_over_ = false;
};

class OneText final : public GenerationListener {
 public:
  OneText(std::size_t index, std::shared_ptr<EmbeddingAnswer> answer)
      : index_(index), answer_(std::move(answer)) {}
  bool on_token(const TokenResult& /*token*/) override { return false; }
  void on_end(const GenerationResult& result) override { answer_->take(index_, result); }

 private:
  std::size_t index_;
  std::shared_ptr<EmbeddingAnswer> answer_;  // shared: by all texts of a request
};

GenerationRequest sequence_of(const EmbeddingRequest& request, const Prompt& input,
                              const ServedModel& model, const std::string& key) {
  GenerationRequest made;
  made.prompt = tokens_of_prompt(model, input, "input");
  made.pooling = request.pooling;
  made.cache_key = key;
  if (std::ssize(made.prompt) > model.generator->max_tokens()) {
    throw field_error("input",
                      fmt::format("a text has {} tokens, and there is room for {}; shorten it",
                                  made.prompt.size(), model.generator->max_tokens()),
                      "context_length_exceeded");
  }
  if (request.model != model.name) made.adapter = request.model;
  return made;
}

}  // namespace

std::vector<FieldRule> embedding_rules() {
  return rules_of(embedding_fields());
}

std::shared_ptr<OpenAnswer> embed(const Json& body, Serving& serving, const Asker& asker) {
  EmbeddingRequest request;
  read_fields(body, embedding_fields(), request);
  refuse_unknown(body, embedding_rules());
  const ServedModel& model = serving.model;
  check_model(model, request.model);
  std::vector<GenerationRequest> sequences;
  for (const Prompt& input : request.inputs) {
    sequences.push_back(sequence_of(request, input, model, asker.key));
  }
  const std::string name = request.model.empty() ? model.name : request.model;
  const std::int64_t most = model.generator->max_waiting();
  if (std::ssize(sequences) > most) {
    throw field_error("input",
                      fmt::format("input has {} texts, and {} may wait; send fewer at once",
                                  sequences.size(), most));
  }
  // Until all are submitted: one version answers.
  const auto held = model.generator->hold_version();
  check_model(model, request.model);  // an adapter may have gone meanwhile
  // Shared: by its texts, and by what the server calls when the client goes.
  const auto answer =
      std::make_shared<EmbeddingAnswer>(std::move(request), name, asker.reply, serving);
  asker.reply.on_gone([answer] { answer->refuse(ApiError(499, "the client has gone")); });
  for (std::size_t i = 0; i < sequences.size() && !answer->is_over(); ++i) {
    ++serving.num_sequences;
    std::optional<std::uint64_t> number;
    try {
      number =
          model.generator->submit(std::move(sequences[i]), std::make_shared<OneText>(i, answer));
    } catch (const Error& error) {
      --serving.num_sequences;
      answer->refuse(ApiError(error.kind() == ErrorKind::kUser ? 400 : 500, error.what()));
      break;
    }
    if (!number) {
      --serving.num_sequences;
      answer->refuse(ApiError(429, "the queue is full; try again", "", "rate_limit_exceeded"));
      break;
    }
    answer->add_sequence(*number);
  }
  return answer;
}

}  // namespace atl::serve::api
