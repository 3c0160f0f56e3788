#include "atoll/text/chat/template.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<atl::ChatMessage> messages = {
      {"system", "Be brief.", ""},
      {"user", "Hello, w\xc3\xb6rld\n", ""},
      {"assistant", " Yo <b> & 'q'\n", R"({"tool_calls": [{"function": {"name": "f",
        "arguments": {"x": [1, 2.5, null, true]}}}]})"}};
  static const atl::ChatOptions options = {
      .add_generation_prompt = true, .variables = R"({"tools": [{"name": "f"}]})", .now = 0};
  atl::fuzz::expect_result_or_refusal([&] {
    const auto program =
        atl::ChatTemplate::from_text(atl::fuzz::text(data, size), "<s>", "</s>", "input");
    atl::fuzz::expect_result_or_refusal([&] { (void)program.render(messages, options); });
    const auto training = program.render_for_training(messages, options);
    std::size_t end = 0;
    for (const atl::TextSpan& span : training.trained) {
      if (span.begin < end || span.end < span.begin || span.end > training.text.size()) {
        std::abort();
      }
      end = span.end;
    }
  });
  return 0;
}
