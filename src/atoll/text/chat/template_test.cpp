// Chat templates as a user meets them: directories, messages, conversations to fine-tune on.

#include "atoll/text/chat/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const std::vector<ChatMessage> kTalk = {{.role = "user", .content = "Hi", .extra = {}},
                                        {.role = "assistant", .content = "Hey!", .extra = {}},
                                        {.role = "user", .content = "Bye", .extra = {}},
                                        {.role = "assistant", .content = "See you.", .extra = {}}};

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

std::vector<std::string> trained(const TrainingText& text) {
  std::vector<std::string> pieces;
  for (const auto [begin, end] : text.trained) {
    pieces.push_back(text.text.substr(begin, end - begin));
  }
  return pieces;
}

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "atoll-chat-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  void write(const std::string& name, std::string_view content) const {
    write_file(path_ / name, content);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(ChatTemplate, RendersMessagesAndAnnouncesTheAnswer) {
  const auto chat = ChatTemplate::from_text(kChatMl, "", "", "T");
  EXPECT_EQ(chat.render({kTalk[0]}), "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(chat.render({kTalk[0]}, {.add_generation_prompt = true, .variables = {}, .now = {}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, GivesTemplatesTokensVariablesAndTime) {
  const auto chat = ChatTemplate::from_text(
      "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ tools is none }}|{{ documents is none }}|"
      "{{ n }}|{{ strftime_now('%Y') }}",
      "<s>", "</s>", "T");
  EXPECT_EQ(chat.render({}, {.add_generation_prompt = false,
                             .variables = R"({"n": [1, {"b": 2, "a": 3}], "eos_token": "E"})",
                             .now = 1'721'995'200}),
            "<s>|E||True|True|[1, {'b': 2, 'a': 3}]|2024");
  EXPECT_EQ(error_of([&] {
              chat.render({}, {.add_generation_prompt = false, .variables = "[1]", .now = {}});
            }),
            "the variables of the chat template are no JSON object");
}

TEST(ChatTemplate, ShowsExtraFieldsOfMessagesAndFillsInReasoning) {
  const auto messages = parse_messages(
      R"([{"role": "assistant", "content": null, "z": {"y": 1, "x": [2]}, "thinking": "hm",
           "name": null}, {"role": "user", "content": [{"type": "text", "text": "T"}]}])",
      "talk.json");
  EXPECT_EQ(messages[0].content, std::nullopt);
  EXPECT_EQ(messages[0].extra, R"({"z":{"y":1,"x":[2]},"thinking":"hm"})");
  const auto chat = ChatTemplate::from_text("{{ messages|tojson }}", "", "", "T");
  EXPECT_EQ(chat.render(messages),
            R"([{"thinking": "hm", "role": "assistant", "z": {"y": 1, "x": [2]}, )"
            R"("reasoning_content": "hm"}, )"
            R"({"role": "user", "content": [{"type": "text", "text": "T"}]}])");
}

TEST(ChatTemplate, NamesMessageAndFieldOfAMistake) {
  const auto error = [](const char* json) {
    return error_of([&] { parse_messages(json, "talk.json"); });
  };
  EXPECT_EQ(error("{}"), "talk.json: messages must be a list, not object");
  EXPECT_EQ(error(R"([{"role": "user", "content": "a"}, 5])"),
            "talk.json: message 1 is not an object with \"role\" and \"content\"");
  EXPECT_EQ(error(R"([{"content": "a"}])"),
            "talk.json: message 0: \"role\" must be a string such as \"user\"");
  EXPECT_EQ(error(R"([{"role": "user", "content": 5}])"),
            "talk.json: message 0: \"content\" must be a string or a list of parts, not number");
  EXPECT_EQ(error(R"([{"role": "user"}])"), "talk.json: message 0: has no \"content\"");
  EXPECT_TRUE(error("[{").starts_with("talk.json: not valid JSON: "));
  EXPECT_TRUE(error(std::string(5000, '[').c_str()).starts_with("talk.json: nested more than 50"));
  const auto chat = ChatTemplate::from_text(kChatMl, "", "", "T");
  EXPECT_EQ(error_of([&] { chat.render({{.role = "user", .content = "a\xFF", .extra = {}}}); }),
            "message 0: the content is not UTF-8 from byte 1 on");
}

TEST(ChatTemplate, ReadsTheFileBeforeTheConfiguration) {
  const Directory directory;
  const auto render = [&] { return ChatTemplate::from_directory(directory.path()).render({}); };
  EXPECT_EQ(error_of(render), directory.path().string() +
                                  ": no chat template, neither chat_template.jinja nor "
                                  "\"chat_template\" in tokenizer_config.json or "
                                  "chat_template.json; give one as a file (--chat-template; in "
                                  "training data.chat_template)");
  directory.write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(render(), "processor");
  directory.write("tokenizer_config.json",
                  R"({"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": false},
                      "pad_token": null, "add_bos_token": true,
                      "chat_template": "config {{ bos_token }}{{ eos_token }}{{ unk_token }}"})");
  directory.write("special_tokens_map.json", R"({"bos_token": "other", "unk_token": "<u>"})");
  EXPECT_EQ(render(), "config <b><e><u>");
  directory.write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(render(), "file <b>");
}

TEST(ChatTemplate, ChoosesAmongNamedTemplates) {
  const Directory directory;
  const auto load = [&] { return ChatTemplate::from_directory(directory.path()); };
  directory.write("tokenizer_config.json",
                  R"({"chat_template": [{"name": "default", "template": "plain"},
                                        {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(load().render({}), "plain");
  EXPECT_EQ(load().render(
                {}, {.add_generation_prompt = false, .variables = R"({"tools": []})", .now = {}}),
            "tools");
  directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "a", "template": ""}]})");
  EXPECT_NE(error_of(load).find("no chat template is named \"default\"; there is a: give"),
            std::string::npos);
  directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(error_of(load).find("not of objects"), std::string::npos);
  directory.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(error_of(load).find("must be a string or a list, not number"), std::string::npos);
}

// As transformers does with apply_chat_template(chat_template="rag").
TEST(ChatTemplate, TakesTheOneThatIsNamedWithToolsAndWithout) {
  const Directory directory;
  directory.write("tokenizer_config.json",
                  R"({"bos_token": "<b>",
                      "chat_template": [{"name": "rag", "template": "{{ bos_token }}rag"},
                                        {"name": "default", "template": "plain"},
                                        {"name": "tool_use", "template": "tools"}]})");
  std::filesystem::create_directory(directory.path() / "additional_chat_templates");
  directory.write("additional_chat_templates/rag.jinja", "not this one");
  directory.write("additional_chat_templates/short.jinja", "short");
  const ChatOptions with_tools = {
      .add_generation_prompt = false, .variables = R"({"tools": []})", .now = {}};
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"rag", "<b>rag"}, {"default", "plain"}, {"tool_use", "tools"}, {"short", "short"}}) {
    const auto chat = ChatTemplate::from_directory(directory.path(), name);
    EXPECT_EQ(chat.render({}), text);
    EXPECT_EQ(chat.render({}, with_tools), text);
  }
  EXPECT_NE(error_of([&] {
              return ChatTemplate::from_directory(directory.path(), "long");
            }).find("there is rag, default, tool_use, short"),
            std::string::npos);
}

TEST(ChatTemplate, TakesTheOneForToolsBesideTheFile) {
  const Directory directory;
  directory.write("chat_template.jinja", "plain");
  std::filesystem::create_directory(directory.path() / "additional_chat_templates");
  directory.write("additional_chat_templates/tool_use.jinja", "{{ tools | length }} tools");
  const ChatTemplate chat = ChatTemplate::from_directory(directory.path());
  EXPECT_EQ(chat.render({}), "plain");
  const ChatOptions options = {
      .add_generation_prompt = false, .variables = R"({"tools": [{}, {}]})", .now = {}};
  EXPECT_EQ(chat.render({}, options), "2 tools");
  EXPECT_TRUE(chat.mentions("plain"));
  EXPECT_TRUE(chat.mentions("length"));
  EXPECT_FALSE(chat.mentions("plainly"));
}

TEST(ChatTemplate, TrainsOnAnswersAndTheTokenThatEndsThem) {
  const auto chat = ChatTemplate::from_text(kChatMl, "", "", "T");
  const TrainingText text = chat.render_for_training(kTalk);
  EXPECT_EQ(text.text, chat.render(kTalk));
  EXPECT_EQ(trained(text), (std::vector<std::string>{"Hey!<|im_end|>", "See you.<|im_end|>"}));
  EXPECT_TRUE(chat.render_for_training({kTalk[0]}).trained.empty());
}

TEST(ChatTemplate, AMessageMayHaveNoLoss) {
  const auto talk = [](const char* first, const char* second) {
    return parse_messages(fmt::format(R"([{{"role": "user", "content": "Hi"}},
                        {{"role": "assistant", "content": "Hey!", {}}},
                        {{"role": "user", "content": "Bye"}},
                        {{"role": "assistant", "content": "See you.", {}}}])",
                                      first, second),
                          "talk.json");
  };
  const auto plain = ChatTemplate::from_text(kChatMl, "", "", "T");
  const auto marked = ChatTemplate::from_text(
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}{% endif %};"
      "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
      "", "", "T");
  using Pieces = std::vector<std::string>;
  for (const ChatTemplate* chat : {&plain, &marked}) {
    for (const char* none : {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)",
                             R"("training": false, "weight": 1)"}) {
      EXPECT_EQ(trained(chat->render_for_training(talk(none, R"("weight": 1)"))),
                Pieces{"See you.<|im_end|>"})
          << none;
      EXPECT_EQ(trained(chat->render_for_training(talk(R"("train": true)", none))),
                Pieces{"Hey!<|im_end|>"});
      EXPECT_EQ(trained(chat->render_for_training(talk(none, none))), Pieces());
    }
    EXPECT_EQ(chat->render_for_training(talk(R"("weight": 0)", R"("weight": 1)")).text,
              chat->render(kTalk));
  }
  const auto error = [&](const char* field) {
    return error_of([&] { talk(R"("weight": 1)", field); });
  };
  EXPECT_THAT(error(R"("weight": 0.5)"),
              AllOf(HasSubstr("talk.json: message 3: \"weight\" is 0.5"), HasSubstr("or not (0)")));
  EXPECT_THAT(error(R"("train": "no")"), HasSubstr("\"train\" must be true or false"));
  EXPECT_THAT(error(R"("train_detail": [])"), HasSubstr("\"train_detail\""));
  EXPECT_THAT(
      error_of([] { parse_messages(R"([{"role": "user", "content": "a", "train": true}])", "t"); }),
      HasSubstr("t: message 0: \"train\" is true for the role \"user\""));
  const auto twice = ChatTemplate::from_text(
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "",
      "", "T");
  EXPECT_THAT(
      error_of([&] { twice.render_for_training(talk(R"("weight": 0)", R"("weight": 1)")); }),
      HasSubstr("marks 4 pieces as {% generation %} for 2 answers"));
}

TEST(ChatTemplate, JoinsContentInPartsWhereATemplateWantsText) {
  const auto parts =
      parse_messages(R"([{"role": "user", "content": [{"type": "text", "text": "T"},)"
                     R"( {"type": "text", "text": "U"}], "name": "n"}])",
                     "talk.json");
  const auto text = [&](const char* source) {
    return ChatTemplate::from_text(source, "", "", "template").render(parts);
  };
  EXPECT_EQ(text("{{ 'user: ' + messages[0].content + messages[0].name }}"), "user: TUn");
  EXPECT_EQ(text("{{ messages[0].content }}"), "TU") << "and not Python's way of writing a list";
  EXPECT_EQ(
      text("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
           "{% for p in m.content %}{{ p.text }}{% if not loop.last %}|{% endif %}{% endfor %}"
           "{% endif %}{% endfor %}"),
      "T|U")
      << "a template that takes parts gets them";
  const auto image = parse_messages(
      R"([{"role": "user", "content": [{"type": "image", "url": "x"}]}])", "talk.json");
  EXPECT_THAT(error_of([&] {
                ChatTemplate::from_text("{{ messages[0].content }}", "", "", "t").render(image);
              }),
              AllOf(HasSubstr("message 0 has its content in parts"), HasSubstr("image")));
}

// With a rendering for each answer this takes minutes.
TEST(ChatTemplate, TrainsOnConversationsOfManyTurns) {
  const auto chat = ChatTemplate::from_text(kChatMl, "", "", "T");
  std::vector<ChatMessage> talk;
  for (int i = 0; i < 5000; ++i) talk.insert(talk.end(), kTalk.begin(), kTalk.end());
  const TrainingText text = chat.render_for_training(talk);
  const auto pieces = trained(text);
  ASSERT_EQ(pieces.size(), 10000U);
  EXPECT_EQ(pieces.back(), "See you.<|im_end|>");
}

TEST(ChatTemplate, KnowsWhetherItShowsTheTime) {
  const auto shows = [](const char* source) {
    return ChatTemplate::from_text(source, "", "", "T").shows_time();
  };
  EXPECT_TRUE(shows("{% if date_string is not defined %}{{ strftime_now('%d') }}{% endif %}"));
  EXPECT_FALSE(shows(kChatMl));
}

TEST(ChatTemplate, TrainsOnTheNewlineWhereNothingElseEndsATurn) {
  const auto chat = ChatTemplate::from_text(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "", "", "T");
  EXPECT_EQ(trained(chat.render_for_training(kTalk)),
            (std::vector<std::string>{"Hey!\n", "See you.\n"}));
}

TEST(ChatTemplate, TrainsOnWhatIsMarkedAsGeneration) {
  const auto chat = ChatTemplate::from_text(
      "{% for m in messages %}é{{ m.role }}:{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}",
      "", "</s>", "T");
  const TrainingText text = chat.render_for_training(kTalk);
  EXPECT_EQ(trained(text), (std::vector<std::string>{"Hey!</s>", "See you.</s>"}));
}

TEST(ChatTemplate, RefusesGenerationWhosePlaceIsLost) {
  const auto chat = ChatTemplate::from_text(
      "{% macro say(m) %}\n{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
      "{{ say(messages[0]) }}",
      "", "", "T");
  EXPECT_EQ(chat.render(kTalk), "Hi");
  EXPECT_NE(error_of([&] { chat.render_for_training(kTalk); }).find("T: line 2: what is inside"),
            std::string::npos);
}

TEST(ChatTemplate, TrainsOnEarlierAnswersAsTheWholeHasThem) {
  // As templates do that drop the thoughts of all answers but the last.
  const auto chat = ChatTemplate::from_text(
      "{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}<think/>"
      "{% endif %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}[assistant]"
      "{% endif %}",
      "", "", "T");
  EXPECT_EQ(trained(chat.render_for_training({kTalk[0], kTalk[1]})),
            std::vector<std::string>{"<think/>Hey!<end>"});
  EXPECT_EQ(trained(chat.render_for_training(kTalk)),
            (std::vector<std::string>{"Hey!<end>", "<think/>See you.<end>"}));
}

}  // namespace
}  // namespace atl
