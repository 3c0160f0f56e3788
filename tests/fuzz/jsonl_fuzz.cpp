#include "atoll/data/jsonl/jsonl.h"

#include "atoll/text/chat/template.h"
#include "token_sink.h"

namespace {

// A template with marked answers would not look for them by rendering beginnings.
constexpr const char* kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.name }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::vector<atl::data::RenderedChat> render(std::string_view messages, std::string_view variables) {
  static const auto program = atl::ChatTemplate::from_text(kTemplate, "<s>", "<|end|>", "template");
  const auto text = program.render_for_training(atl::parse_messages(messages, "messages"),
                                                {.variables = std::string(variables), .now = 0});
  atl::data::RenderedChat chat{.text = text.text};
  for (const atl::TextSpan& span : text.trained) chat.trained.emplace_back(span.begin, span.end);
  return {chat};
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  // Bytes as they are, and a normalizer that changes lengths.
  static atl::fuzz::TokenChecker readers[] = {
      {atl::fuzz::fixture_tokenizer("smollm2.json"), {.render_chat = render}},
      {atl::fuzz::fixture_tokenizer("llama2.json"), {.render_chat = render}}};
  const auto path = directory.write("input.jsonl", atl::fuzz::text(data, size));
  for (atl::fuzz::TokenChecker& reader : readers) {
    atl::fuzz::expect_result_or_refusal([&] { reader.read(path); });
  }
  return 0;
}
