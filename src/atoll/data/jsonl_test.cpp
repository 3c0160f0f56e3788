#include "atoll/data/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

std::vector<JsonlLine> lines(std::string_view content) {
  std::vector<JsonlLine> all;
  for_each_jsonl_line(content, "d.jsonl", [&](const JsonlLine& line) { all.push_back(line); });
  return all;
}

std::string error(std::string_view content) {
  return error_of([&] { lines(content); });
}

TEST(Jsonl, ReadsEveryKindOfLine) {
  const std::string content =
      "\xEF\xBB\xBF{\"text\": \"a\\n\\u00e9\", \"id\": 3}\r\n"
      "\n  \n"
      "{\"completion\": \" yes\", \"prompt\": \"ok?\"}\n"
      "{\"messages\": [ {\"role\": \"user\", \"content\": \"hi\"} ], \"tools\": null}";
  const std::vector<JsonlLine> all = lines(content);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, JsonlKind::kText);
  EXPECT_EQ(all[0].text, "a\n\xC3\xA9");
  EXPECT_EQ(all[0].number, 1);
  EXPECT_EQ(all[1].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[1].text, "ok? yes");
  EXPECT_EQ(all[1].completion, 3U);
  EXPECT_EQ(all[1].number, 4);
  EXPECT_EQ(all[2].kind, JsonlKind::kMessages);
  EXPECT_EQ(all[2].text, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(all[2].end, content.size());
}

TEST(Jsonl, NamesFileAndLineOfWhatIsWrong) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_THAT(error(good + "{\"text\": }"), HasSubstr("d.jsonl line 2 is not JSON"));
  EXPECT_THAT(error("{\"text\": \"a\"} {}"), HasSubstr("line 1 is not JSON"));
  EXPECT_THAT(error("{\"text\": \"\xFF\"}"), HasSubstr("line 1 is not UTF-8"));
  EXPECT_THAT(error("{\"text\": \"\\ud800\"}"), HasSubstr("line 1 is not"));
  EXPECT_THAT(error("[1]"), HasSubstr("is not an object"));
  EXPECT_THAT(error("{}"), HasSubstr("has neither"));
  EXPECT_THAT(error("{\"text\": 3}"), HasSubstr("\"text\" that is not a string"));
  EXPECT_THAT(error("{\"prompt\": \"a\"}"), HasSubstr("no \"completion\""));
  EXPECT_THAT(error("{\"completion\": \"a\"}"), HasSubstr("no \"prompt\""));
  EXPECT_THAT(error("{\"messages\": {}}"), HasSubstr("not an array"));
  EXPECT_THAT(error("{\"text\": \"a\", \"messages\": []}"), HasSubstr("more than one kind"));
  EXPECT_THAT(error("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("\"text\" twice"));
  EXPECT_THAT(error("{\"messages\": [], \"tools\": [1]}"), HasSubstr("\"tools\""));
  EXPECT_THAT(error("{\"text\": null}"), HasSubstr("has neither"));
  const std::string deep(100000, '[');
  EXPECT_THAT(error("{\"messages\": " + deep), HasSubstr("line 1 is not JSON"));
}

TEST(Jsonl, AKeyThatIsNullIsAbsent) {
  const std::vector<JsonlLine> all =
      lines(R"({"text": null, "prompt": "a", "completion": "b", "messages": null})");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[0].text, "ab");
}

TEST(Jsonl, TruncationAnywhereIsAnErrorOrABlankLine) {
  const std::string line = R"({"messages": [{"role": "user", "content": "h\u00e9"}], "n": 1.5})";
  for (std::size_t size = 1; size < line.size(); ++size) {
    EXPECT_THAT(error(line.substr(0, size)), HasSubstr("line 1")) << size;
  }
}

}  // namespace
}  // namespace atl::data
