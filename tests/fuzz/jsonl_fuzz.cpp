#include "atoll/data/jsonl.h"

#include "atoll/data/tokenize.h"
#include "atoll/text/chat_template.h"
#include "fuzz.h"

namespace {

// A template with marked answers would not look for them by rendering beginnings.
constexpr const char* kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.name }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

atl::data::RenderedChat render(std::string_view messages) {
  static const auto program = atl::ChatTemplate::from_text(kTemplate, "<s>", "<|end|>", "template");
  const auto text =
      program.render_for_training(atl::parse_messages(messages, "messages"), {.now = 0});
  atl::data::RenderedChat chat{text.text, {}};
  for (const atl::TextSpan& span : text.trained) chat.trained.emplace_back(span.begin, span.end);
  return chat;
}

atl::Tokenizer load(const char* name) {
  return atl::Tokenizer::load(std::filesystem::path(ATOLL_SOURCE_DIR "/src/atoll/text/testdata") /
                              name);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  // Bytes as they are, and a normalizer that changes lengths.
  static const atl::Tokenizer tokenizers[] = {load("smollm2.json"), load("llama2.json")};
  atl::data::TokenizeOptions options;
  options.inputs = {directory.write("input.jsonl", atl::fuzz::text(data, size))};
  options.render_chat = render;
  for (const atl::Tokenizer& tokenizer : tokenizers) {
    atl::fuzz::expect_result_or_refusal([&] {
      const auto tokens = atl::data::tokenize_in_memory(options, tokenizer);
      for (const std::int64_t start : tokens.document_starts()) {
        if (start < 0 || start >= tokens.num_tokens()) std::abort();
      }
    });
  }
  return 0;
}
