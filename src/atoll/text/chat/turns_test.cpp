// Answers in texts that change when messages follow.

#include "atoll/text/chat/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/jinja/parser.h"
#include "atoll/text/jinja/text.h"
#include "atoll/text/new_tokenizers.h"

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> pieces_of(const TrainingText& text) {
  std::vector<std::string> pieces;
  for (const auto [begin, end] : text.trained) {
    pieces.push_back(text.text.substr(begin, end - begin));
  }
  return pieces;
}

ChatTemplate chat_of(std::string_view source) {
  return ChatTemplate::from_text(source, "<s>", "</s>", "T");
}

std::vector<ChatMessage> talk(std::string_view json) {
  return parse_messages(json, "talk.json");
}

std::vector<std::string> learnt(std::string_view source, std::string_view json,
                                const std::string& variables = "") {
  const ChatTemplate chat = chat_of(source);
  const ChatOptions options = {.variables = variables, .now = 0};
  const TrainingText text = chat.render_for_training(talk(json), options);
  EXPECT_EQ(text.text, chat.render(talk(json), options));
  return pieces_of(text);
}

std::string refusal(std::string_view source, std::string_view json) {
  try {
    chat_of(source).render_for_training(talk(json));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

const nlohmann::ordered_json& fixture() {
  static const auto kLoaded = nlohmann::ordered_json::parse(
      read_file(test_source_dir() / "src/atoll/text/testdata/chat_templates.json"));
  return kLoaded;
}

std::string family(const char* name) {
  return fixture()["templates"][name].get<std::string>();
}

constexpr const char* kTwoThoughts = R"([
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "<think>\nfirst\n</think>\n\nOne."},
    {"role": "user", "content": "Two?"},
    {"role": "assistant", "content": "<think>\nsecond\n</think>\n\nTwo."}])";

TEST(AnswerTurns, ThoughtsThatAreTakenOutOfEarlierAnswersAreNotLearnt) {
  EXPECT_THAT(learnt(family("chatml_tools"), kTwoThoughts),
              ElementsAre("One.<|im_end|>", "<think>\nsecond\n</think>\n\nTwo.<|im_end|>"));
}

// In the manner of R1's distillations: thinking is announced, and no answer in the text has it.
constexpr const char* kAnnouncesThinking =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<U>' + m.content }}"
    "{% else %}{{ '<A>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<A><think>\n' }}{% endif %}";

TEST(AnswerTurns, AnAnswerAnnouncedInOtherWordsBeginsWithItsOwn) {
  EXPECT_THAT(learnt(kAnnouncesThinking, kTwoThoughts),
              ElementsAre("\n\nOne.</s>", "\n\nTwo.</s>"));
  // What begins like the rest of the announcement is still the answer's.
  EXPECT_THAT(learnt(kAnnouncesThinking, R"([{"role": "user", "content": "Bold?"},
                         {"role": "assistant", "content": "<b>Yes"},
                         {"role": "user", "content": "Éh?"},
                         {"role": "assistant", "content": "é"}])"),
              ElementsAre("<b>Yes</s>", "é</s>"));
}

TEST(AnswerTurns, AnAnnouncementOfNoThoughtsIsNoneInEarlierAnswers) {
  EXPECT_THAT(learnt(family("chatml_tools"), kTwoThoughts, R"({"enable_thinking": false})"),
              ElementsAre("One.<|im_end|>", "second\n</think>\n\nTwo.<|im_end|>"));
}

TEST(AnswerTurns, MessagesBeforeAnAnswerMayMoveWhenOthersFollow) {
  const char* conversation = R"([{"role": "system", "content": "Count."},
      {"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"},
      {"role": "user", "content": "2?"}, {"role": "assistant", "content": "two"},
      {"role": "user", "content": "3?"}])";
  const std::string variables =
      R"({"tools": [{"type": "function", "function": {"name": "add", "n": 1}}]})";
  const auto text =
      chat_of(family("inst_tools"))
          .render_for_training(talk(conversation), {.variables = variables, .now = 0});
  EXPECT_THAT(text.text, HasSubstr("[INST]1?[/INST] one</s>[INST]2?[/INST] two</s>[TOOLS]["));
  EXPECT_THAT(pieces_of(text), ElementsAre(" one</s>", " two</s>"));
}

TEST(AnswerTurns, CallsOfToolsAreAnswersOfTheirOwn) {
  const char* conversation = R"([{"role": "user", "content": "2+2?"},
      {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls":
          [{"id": "abc123def", "type": "function", "function": {"name": "add", "arguments": {}}}]},
      {"role": "tool", "name": "add", "content": "4"},
      {"role": "tool", "name": "add", "content": "four"},
      {"role": "assistant", "content": "Four."},
      {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}])";
  const std::vector<std::string> expected = {
      "<call>\n{\"name\": \"add\", \"arguments\": {}}\n</call><|im_end|>", "Four.<|im_end|>",
      "<think>\n\n</think>\n\nYes.<|im_end|>"};
  EXPECT_EQ(learnt(family("chatml_tools"), conversation), expected);
}

TEST(AnswerTurns, TheTokenThatEndsATurnMayDependOnWhatFollows) {
  const std::string source =
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final"
      "{% endif %}<|message|>{{ m.content }}"
      "{% if m.role == 'assistant' and loop.last %}<|return|>{% else %}<|end|>{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  EXPECT_THAT(
      learnt(source, R"([{"role": "user", "content": "a"},
                                 {"role": "assistant", "content": "b"},
                                 {"role": "user", "content": "c"},
                                 {"role": "assistant", "content": "d"}])"),
      ElementsAre("<|channel|>final<|message|>b<|end|>", "<|channel|>final<|message|>d<|return|>"));
}

TEST(AnswerTurns, TheHistoryMayHaveALoopOfItsOwn) {
  const std::string source =
      "{% set ns = namespace(last=-1) %}{% for m in messages %}"
      "{% if m.role == 'assistant' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
      "{% for m in messages[:ns.last + 1] %}<|{{ m.role }}|>"
      "{{ m.content.split('</think>')[-1] }}<end>{% endfor %}"
      "{% for m in messages[ns.last + 1:] %}<|{{ m.role }}|>{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(learnt(source, kTwoThoughts), ElementsAre("\n\nOne.<end>", "\n\nTwo.<end>"));
}

TEST(AnswerTurns, RefusesWhatNoTurnOrSeveralTurnsWrite) {
  // Thoughts are taken out, so that the text before the second answer is another one.
  const std::string by_number =
      "{% for i in range(messages|length) %}{% set m = messages[i] %}<|{{ m.role }}|>"
      "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(refusal(by_number, kTwoThoughts),
              AllOf(HasSubstr("T: what the assistant says in message 1"),
                    HasSubstr("no turn of a loop over the messages writes it"),
                    HasSubstr("{% generation %}")));
  const std::string repeated =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if loop.last %}!{% endif %}"
      "{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(refusal(repeated, kTwoThoughts), HasSubstr("several turns"));
}

TEST(AnswerTurns, RefusesWordsThatStandElsewhereToo) {
  const std::string quoted =
      "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}"
      "{% if loop.previtem is defined %}(after {{ loop.previtem.content }}){% endif %}{% else %}<A>"
      "{{ m.content }}{{ '!' if loop.last }}<end>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<A>{% endif %}";
  EXPECT_THAT(refusal(quoted, kTwoThoughts), HasSubstr("elsewhere than in its turn"));
}

std::vector<std::string> texts_of(const ChatTemplate& chat, std::string_view json,
                                  const ChatTraining& how) {
  std::vector<std::string> all;
  for (const TrainingText& text :
       chat.training_texts(talk(json), how, make_byte_tokenizer(), {.now = 0})) {
    all.push_back(text.text + " learns");
    for (const std::string& piece : pieces_of(text)) all.back() += " [" + piece + "]";
  }
  return all;
}

TEST(TrainingTexts, TheLastAnswerMayBeLearntAlone) {
  const ChatTraining last = {.last_only = true};
  EXPECT_THAT(texts_of(chat_of(kAnnouncesThinking), kTwoThoughts, last),
              ElementsAre("<s><U>One?<A>\n\nOne.</s><U>Two?<A>\n\nTwo.</s> learns [\n\nTwo.</s>]"));
  // Answers that cannot be placed are none that must be.
  const std::string by_number =
      "{% for i in range(messages|length) %}{% set m = messages[i] %}<|{{ m.role }}|>"
      "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(texts_of(chat_of(by_number), kTwoThoughts, last),
              ElementsAre(HasSubstr("learns [<think>\nsecond\n</think>\n\nTwo.<end>]")));
  // One whose last answer has no loss teaches nothing.
  EXPECT_THAT(texts_of(chat_of(kAnnouncesThinking),
                       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                           {"role": "assistant", "content": "c", "train": false}])",
                       last),
              ElementsAre("<s><U>a<A>b</s><A>c</s> learns"));
}

TEST(TrainingTexts, KeptThinkingIsLearntFromATextForEachAnswer) {
  const ChatTraining keep = {.keep_thinking = true};
  const ChatTemplate chat = chat_of(family("chatml_tools"));
  const std::string one = "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n";
  const std::string first = "<think>\nfirst\n</think>\n\nOne.<|im_end|>";
  const std::string second = "<think>\nsecond\n</think>\n\nTwo.<|im_end|>";
  const std::string two = "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_THAT(texts_of(chat, kTwoThoughts, keep),
              ElementsAre(one + first + "\n learns [" + first + "]",
                          one + "One.<|im_end|>\n" + two + second + "\n learns [" + second + "]"));
  EXPECT_EQ(texts_of(chat, kTwoThoughts, {.last_only = true, .keep_thinking = true}).size(), 1U);
  // A template that takes nothing out needs one text.
  const ChatTemplate plain = chat_of(family("chatml"));
  EXPECT_EQ(texts_of(plain, kTwoThoughts, keep), texts_of(plain, kTwoThoughts, {}));
  EXPECT_EQ(texts_of(plain, kTwoThoughts, keep).size(), 1U);
}

TEST(TrainingTexts, SpelledSpecialTokensAreFoundAndMayBeText) {
  const std::vector<std::string> special = {"<|im_end|>", "<think>"};
  const Tokenizer tokenizer = make_byte_tokenizer(special);
  const auto texts = [&](std::string_view source, std::string_view json, bool literal) {
    return chat_of(source).training_texts(talk(json), {.literal_content = literal}, tokenizer,
                                          {.now = 0});
  };
  const char* conversation = R"([{"role": "user", "content": "é<|im_end|><|im_end|>?"},
                                 {"role": "assistant", "content": "a <|im_end|>"}])";
  const auto literal = texts(family("chatml"), conversation, true);
  ASSERT_EQ(literal.size(), 1U);
  EXPECT_EQ(literal[0].spelled, "<|im_end|>");
  std::vector<std::size_t> expected;
  for (const char* place : {"<|im_end|><|im_end|>?", "<|im_end|>?", "<|im_end|><|im_end|>\n"}) {
    expected.push_back(literal[0].text.find(place));
  }
  EXPECT_EQ(literal[0].literal, expected);
  const auto usual = texts(family("chatml"), conversation, false);
  EXPECT_EQ(usual[0].spelled, "<|im_end|>");
  EXPECT_TRUE(usual[0].literal.empty());
  EXPECT_EQ(usual[0].text, literal[0].text);
  EXPECT_EQ(
      texts(family("chatml"), R"([{"role": "user", "content": "<|im_end"}])", true)[0].spelled, "");
  try {
    texts("{{ messages[0].content.split('<think>')[-1] }}",
          R"([{"role": "user", "content": "a<think>b"}])", true);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"<think>\", which the template looks for"),
                                    HasSubstr("data.chat_literal_content")));
  }
}

// Where both ways apply they must agree: all templates of the fixture, each with all of its
// conversations.
TEST(AnswerTurns, FindsWhatRenderingsOfTheBeginningsFind) {
  int compared = 0;
  for (const auto& each : fixture()["cases"]) {
    if (each["template"].is_string() || each.contains("error")) continue;
    const auto name = each["template"]["name"].get<std::string>();
    auto variables = each["variables"];
    const auto messages = talk(variables["messages"].dump());
    for (const char* key : {"messages", "add_generation_prompt"}) variables.erase(key);
    text::ChatProgram program;
    program.origin = name;
    program.main = text::jinja::parse(family(name.c_str()), name);
    const auto values = text::message_values(messages);
    const auto base = text::base_variables(program, {.variables = variables.dump(), .now = 0});
    const auto whole = text::render_messages(program, base, values, values.size(), false, 0);
    text::AnswerTurns turns(program, base, messages, values, whole, 0);
    for (std::size_t i = 1; i < messages.size(); ++i) {
      if (messages[i].role != "assistant") continue;
      const auto before = text::render_messages(program, base, values, i, true, 0);
      const auto with = text::render_messages(program, base, values, i + 1, false, 0).text;
      if (!whole.text.starts_with(with) || !with.starts_with(before.text)) continue;
      // A call of a tool, of which some templates write nothing.
      if (with.size() == before.text.size() && !messages[i].extra.empty()) continue;
      const auto found = turns.find(i, before);
      EXPECT_EQ(found.problem, "") << name << " " << whole.text;
      // The newline between two turns belongs to the first or to neither; no answer ends with it.
      const auto words = [&](TextSpan span) {
        const auto all = std::string_view(whole.text).substr(span.begin, span.end - span.begin);
        return text::jinja::strip(all, text::jinja::Ends::kRight);
      };
      EXPECT_EQ(words(found.span), words({before.text.size(), with.size()})) << name << whole.text;
      if (with.size() > before.text.size()) {
        EXPECT_EQ(found.span.begin, before.text.size()) << name;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 40);
}

}  // namespace
}  // namespace atl
