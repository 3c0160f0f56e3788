#pragma once

// For tests: a service over a scripted generator, asked by HTTP.

#include <gmock/gmock.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/serve/api/service.h"
#include "atoll/serve/api/testing.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::serve::api {

/// An answer, taken apart.
struct HttpAnswer {
  int status = 0;
  std::string head;
  std::string body;

  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(body); }
};

/// The body of a message in chunks, without these.
inline std::string without_chunks(const std::string& body) {
  std::string plain;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t line = body.find("\r\n", at);
    const std::size_t size = std::stoul(body.substr(at, line - at), nullptr, 16);
    plain += body.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
  return plain;
}

/// The answer of a server, as http::ask() gives it.
inline HttpAnswer taken_apart(const std::string& text) {
  HttpAnswer answer;
  const std::size_t end = text.find("\r\n\r\n");
  if (end == text.npos) return answer;
  answer.head = text.substr(0, end);
  answer.status = std::stoi(text.substr(9, 3));
  answer.body = text.substr(end + 4);
  if (answer.head.find("chunked") != text.npos) answer.body = without_chunks(answer.body);
  return answer;
}

/// What stands behind "data: " in a stream of events.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) events.push_back(event.substr(6));
    at = end == body.npos ? body.size() : end + 2;
  }
  return events;
}

/// A service of a model whose tokens are bytes, with <|endoftext|> as 256, and that says `says`.
class ServiceTest : public ::testing::Test {
 protected:
  static constexpr const char* kTemplate =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if tools %}[{{ tools | tojson }}]{% endif %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";

  explicit ServiceTest(std::int64_t slots = 4, std::size_t max_queue = 64)
      : generator_([this](const GenerationRequest&) { return tokens(says_); }, slots, max_queue) {}

  ServedModel model() {
    return {.name = "tiny",
            .generator = &generator_,
            .tokenizer = tokenizer_,
            .chat = ChatTemplate::from_text(kTemplate, "", "", "test"),
            .stop_tokens = {256}};
  }
  /// Begins to serve, once.
  Service& service() {
    if (!service_) {
      service_ = std::make_unique<Service>(options_);
      service_->serve(model());
    }
    return *service_;
  }
  std::vector<std::int32_t> tokens(const std::string& text) const {
    return tokenizer_.encode(text);
  }
  HttpAnswer ask(const std::string& first_line, const std::string& body = "",
                 const std::string& fields = "") {
    return taken_apart(http::ask(service().port(), first_line, fields, body));
  }
  HttpAnswer post(const std::string& path, const nlohmann::ordered_json& body,
                  const std::string& fields = "") {
    return ask("POST " + path, body.dump(), fields);
  }
  /// A chat about nothing with more fields.
  HttpAnswer chat(nlohmann::ordered_json fields = nlohmann::ordered_json::object()) {
    if (!fields.contains("messages")) {
      fields["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
    }
    return post("/v1/chat/completions", fields);
  }
  HttpAnswer complete(nlohmann::ordered_json fields = nlohmann::ordered_json::object()) {
    if (!fields.contains("prompt")) fields["prompt"] = "Once";
    if (!fields.contains("max_tokens")) fields["max_tokens"] = 500;
    return post("/v1/completions", fields);
  }
  /// The chunks of a stream, without its end, which must be there.
  static std::vector<nlohmann::ordered_json> chunks(const HttpAnswer& answer) {
    std::vector<nlohmann::ordered_json> list;
    std::vector<std::string> events = events_of(answer.body);
    EXPECT_FALSE(events.empty()) << answer.body;
    if (events.empty()) return list;
    EXPECT_EQ(events.back(), "[DONE]");
    events.pop_back();
    for (const std::string& event : events) list.push_back(nlohmann::ordered_json::parse(event));
    return list;
  }

  Tokenizer tokenizer_ = make_byte_tokenizer();
  std::string says_ = "Hello, world.";
  ScriptedGenerator generator_;
  ServiceOptions options_;
  std::unique_ptr<Service> service_;
};

}  // namespace atl::serve::api
