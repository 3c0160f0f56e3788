#include "atoll/serve/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string refusal(const std::string& content) {
  try {
    read_task(content, "quiz.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
    EXPECT_THAT(error.what(), StartsWith("quiz.jsonl"));
    return error.what();
  }
  return "read without complaint";
}

TEST(Task, ReadsItemsOfEachKindWithTheirLines) {
  const std::vector<TaskItem> items = read_task(
      "\xEF\xBB\xBF{\"prompt\": \"Two and two is\", \"choices\": [\" 4\", \" 5\"], \"answer\": "
      "0}\r\n"
      "  \n"
      "{\"prompt\": \"\", \"choices\": [\"no\", \"yes\", \"perhaps\"], \"answer\": \"yes\"}\n"
      "{\"prompt\": \"Say hello:\", \"answer\": \"hello\", \"source\": {\"book\": 3}}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"answers\": [\"a\", \"b\"]}",
      "quiz.jsonl");
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].line, 1);
  EXPECT_EQ(items[0].prompt, "Two and two is");
  EXPECT_THAT(items[0].choices, ElementsAre(" 4", " 5"));
  EXPECT_EQ(items[0].answer, 0U);
  EXPECT_TRUE(items[0].is_multiple_choice());
  EXPECT_EQ(items[1].line, 3);
  EXPECT_EQ(items[1].answer, 1U);
  EXPECT_FALSE(items[2].is_multiple_choice());
  EXPECT_THAT(items[2].answers, ElementsAre("hello"));
  EXPECT_EQ(items[3].line, 5);
  EXPECT_THAT(items[3].messages, ElementsAre(ChatMessage{"user", "Hi", ""}));
  EXPECT_THAT(items[3].answers, ElementsAre("a", "b"));
}

TEST(Task, KeysCanHaveOtherNames) {
  data::Fields fields;
  fields.prompt = "Question: {question}\nAnswer:";
  fields.choices = "options";
  fields.messages = "conversations";
  fields.role = "from";
  fields.content = "value";
  const std::vector<TaskItem> items = read_task(
      "{\"question\": \"2+2?\", \"answer\": \"#### 4\"}\n"
      "{\"question\": \"2+2?\", \"answer\": 1, \"options\": [\"5\", \"4\"]}\n"
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}], \"answer\": \"a\"}",
      "quiz.jsonl", 0, fields);
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].prompt, "Question: 2+2?\nAnswer:");
  EXPECT_THAT(items[0].answers, ElementsAre("#### 4"));
  EXPECT_THAT(items[1].choices, ElementsAre("5", "4"));
  EXPECT_EQ(items[1].answer, 1U);
  EXPECT_THAT(items[2].messages, ElementsAre(ChatMessage{"user", "Hi", ""}));
  try {
    read_task("{\"prompt\": \"p\", \"answer\": \"a\"}", "quiz.jsonl", 0, fields);
    ADD_FAILURE() << "read without complaint";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("{question}"), HasSubstr("\"conversations\"")));
  }
}

TEST(Task, ALimitStopsReadingThere) {
  const std::string good = "{\"prompt\": \"p\", \"answer\": \"a\"}\n";
  EXPECT_EQ(read_task(good + good + "not JSON", "quiz.jsonl", 2).size(), 2U);
  EXPECT_THAT(refusal(good + good + "not JSON"), HasSubstr("line 3 is not JSON"));
}

TEST(Task, LinesThatAreNoObjectsAreNamed) {
  EXPECT_THAT(refusal(""), HasSubstr("has no items"));
  EXPECT_THAT(refusal("\n \n"), HasSubstr("has no items"));
  EXPECT_THAT(refusal("\n[1]"), HasSubstr("line 2 is not a JSON object"));
  EXPECT_THAT(refusal("{\"prompt\": \"\xFF\"}"), HasSubstr("line 1 is not UTF-8"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\""), HasSubstr("line 1 is not JSON"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("line 1 is not JSON"));
}

TEST(Task, MissingDoubleAndContradictoryFieldsAreNamed) {
  EXPECT_THAT(refusal("{\"answer\": \"a\"}"), HasSubstr("neither \"prompt\" nor \"messages\""));
  EXPECT_THAT(refusal("{\"prompt\": \"p\"}"), HasSubstr("neither \"answer\" nor \"answers\""));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"prompt\": \"q\", \"answer\": \"a\"}"),
              HasSubstr("\"prompt\" twice"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"messages\": [], \"answer\": \"a\"}"),
              HasSubstr("both \"prompt\" and \"messages\""));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answer\": \"a\", \"answers\": [\"b\"]}"),
              HasSubstr("both \"answer\" and \"answers\""));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"choices\": [\"a\", \"b\"], \"answers\": [\"b\"]}"),
              HasSubstr("\"choices\" and \"answers\""));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"choices\": [\"a\", \"b\"]}"),
              HasSubstr("\"choices\" and no \"answer\""));
  EXPECT_THAT(refusal("{\"messages\": [], \"answer\": \"a\"}"), HasSubstr("no message"));
  EXPECT_THAT(refusal("{\"messages\": [{\"content\": \"x\"}], \"answer\": \"a\"}"),
              AllOf(HasSubstr("line 1"), HasSubstr("role")));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "x"}], "answer": "a",)"
                      R"( "tools": [1]})"),
              HasSubstr("\"tools\""));
}

TEST(Task, FieldsOfAnotherTypeAreNamed) {
  EXPECT_THAT(refusal("{\"prompt\": 3, \"answer\": \"a\"}"),
              HasSubstr("\"prompt\" that is not a string"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answer\": 3}"),
              HasSubstr("\"answer\" (and no \"choices\") that is not a string"));
  EXPECT_THAT(refusal("{\"messages\": \"hi\", \"answer\": \"a\"}"), HasSubstr("not an array"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answers\": \"a\"}"),
              HasSubstr("\"answers\" that are not an array"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answers\": [\"a\", null]}"),
              HasSubstr("\"answers\"[1] that is not a string"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answers\": []}"), HasSubstr("no answer"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"answer\": \" \\n\"}"), HasSubstr("empty answer"));
}

TEST(Task, ChoicesMustBeTwoAndNoneEmptyAndOneRight) {
  const auto choices = [](const std::string& rest) {
    return refusal("{\"prompt\": \"p\", \"choices\": " + rest + "}");
  };
  EXPECT_THAT(choices("[], \"answer\": 0"), HasSubstr("with 0 of them"));
  EXPECT_THAT(choices("[\"a\"], \"answer\": 0"), HasSubstr("with 1 of them"));
  EXPECT_THAT(choices("[\"a\", \"\"], \"answer\": 0"), HasSubstr("\"choices\"[1]"));
  EXPECT_THAT(choices("[\"a\", 2], \"answer\": 0"), HasSubstr("\"choices\"[1]"));
  EXPECT_THAT(choices("[\"a\", \"b\"], \"answer\": 2"), HasSubstr("\"answer\" 2, and its 2"));
  for (const char* wrong : {"-1", "1.0", "true", "null", "[0]", "1e400", "99999999999999999999"}) {
    EXPECT_THAT(choices("[\"a\", \"b\"], \"answer\": " + std::string(wrong)),
                Not(HasSubstr("without complaint")))
        << wrong;
  }
  EXPECT_THAT(choices("[\"a\", \"b\"], \"answer\": \"c\""), HasSubstr("none of its choices"));
  EXPECT_THAT(choices("[\"a\", \"a\"], \"answer\": \"a\""), HasSubstr("several choices"));
  EXPECT_EQ(
      read_task("{\"prompt\": \"p\", \"choices\": [\"a\", \"a\"], \"answer\": 1}", "t")[0].answer,
      1U);
}

TEST(Task, AnErrorShowsNoMoreThanTheBeginningOfAnAnswer) {
  const std::string message =
      refusal("{\"prompt\": \"p\", \"choices\": [\"a\", \"b\"], \"answer\": \"" +
              std::string(5000, 'x') + "\"}");
  EXPECT_THAT(message, HasSubstr("xxxx"));
  EXPECT_LT(message.size(), 200U);
}

TEST(Task, ReadsAnswersAsPublishedTasksHaveThem) {
  const auto answer_of = [](const std::string& rest) {
    return read_task("{\"prompt\": \"p\", \"choices\": " + rest + "}", "quiz.jsonl")[0].answer;
  };
  const std::string arc = R"({"text": ["2", "A", "x"], "label": ["A", "B", "3"]}, "answer": )";
  EXPECT_EQ(answer_of(arc + "\"A\""), 0U) << "a label before a text";
  EXPECT_EQ(answer_of(arc + "\"3\""), 2U);
  EXPECT_EQ(answer_of(arc + "\"x\""), 2U);
  EXPECT_EQ(answer_of(arc + "1"), 1U);
  EXPECT_EQ(answer_of(R"(["a", "b", "c"], "answer": "2")"), 2U);
  EXPECT_EQ(answer_of(R"(["a", "b", "c"], "answer": "C")"), 2U);
  EXPECT_EQ(answer_of(R"(["1", "2", "0"], "answer": "1")"), 0U) << "a text before an index";
  EXPECT_THAT(refusal(R"({"prompt": "p", "choices": ["a", "b"], "answer": "C"})"),
              HasSubstr("none of its choices"));
  EXPECT_THAT(refusal(R"({"prompt": "p", "choices": ["a", "b"], "answer": "2"})"),
              HasSubstr("none of its choices"));
  EXPECT_THAT(refusal("{\"prompt\": \"p\", \"choices\": " + arc + "\"0\"}"),
              HasSubstr("none of its choices"));
  EXPECT_THAT(refusal(R"({"prompt": "p", "choices": {"text": ["a", "b"], "label": ["A"]},)"
                      R"( "answer": "A"})"),
              HasSubstr("as long a list"));
}

TEST(Task, WhatATemplateIsGivenComesWithTheMessages) {
  const auto item =
      read_task(R"({"messages": [{"role": "user", "content": "Hi"}], "answer": "a", "odd": NaN,)"
                R"( "tools": [{"name": "f"}], "chat_template_kwargs": {"b": 1}})",
                "quiz.jsonl")[0];
  EXPECT_EQ(item.variables, R"({"b":1,"tools":[{"name":"f"}]})");
  EXPECT_THAT(read_task(R"({"prompt": [{"role": "user", "content": "Hi"}], "answer": "a"})",
                        "quiz.jsonl")[0]
                  .messages,
              ElementsAre(ChatMessage{"user", "Hi", ""}));
  EXPECT_THAT(refusal(R"({"prompt": "a\ud800", "answer": "a"})"), HasSubstr("surrogate"));
}

}  // namespace
}  // namespace atl::serve
