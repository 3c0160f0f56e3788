// What stands beside a template: tokenizer_config.json, messages, the variables of a request.

#include "atoll/text/chat/template.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  static const std::vector<atl::ChatMessage> messages = {{"user", "Hello", ""}};
  static const auto program = atl::ChatTemplate::from_text(
      "{{ messages }}{{ tools|tojson }}{{ bos_token }}", "<s>", "</s>", "template");
  const std::string_view text = atl::fuzz::text(data, size);
  directory.write("tokenizer_config.json", text);
  atl::fuzz::expect_result_or_refusal([&] {
    const auto found = atl::ChatTemplate::from_directory(directory.path());
    (void)found.render(messages, {.now = 0});
  });
  atl::fuzz::expect_result_or_refusal(
      [&] { (void)program.render(atl::parse_messages(text, "input"), {.now = 0}); });
  atl::fuzz::expect_result_or_refusal(
      [&] { (void)program.render(messages, {.variables = std::string(text), .now = 0}); });
  atl::fuzz::expect_result_or_refusal([&] {
    (void)program.render({{"user", std::nullopt, std::string(text)}}, {.now = 0});
  });
  return 0;
}
