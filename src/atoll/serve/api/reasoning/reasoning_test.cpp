#include "atoll/serve/api/reasoning/reasoning.h"

#include "atoll/serve/api/reasoning/reasoning_constraint.h"
#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;

// What a finder makes of a text that comes in pieces of `size` bytes: "[reasoning]text".
std::string told_apart(const std::string& text, std::size_t size, bool is_inside = false) {
  ReasoningFinder finder(is_inside);
  std::string reasoning, rest;
  const auto add = [&](const ReasoningPart& part) {
    EXPECT_TRUE(part.reasoning.empty() || rest.empty());
    reasoning += part.reasoning;
    rest += part.text;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(finder.push(text.substr(at, size)));
  add(finder.finish());
  return "[" + reasoning + "]" + rest;
}

TEST(Reasoning, IsToldApartHoweverTheTextIsCut) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"No thought.", "[]No thought."},
      {"<think>a b</think>c", "[a b]c"},
      {"\n<think>\n a\n\nb \n</think>\n\nc d \n", "[a\n\nb]c d \n"},
      {"<think>\n\n</think>\n\nc", "[]c"},
      {"<think>a</thin b", "[a</thin b]"},
      {"<think> cut off ", "[cut off]"},
      {"<think>a</think>", "[a]"},
      {"<think>a</think>b<think>c</think>", "[a]b<think>c</think>"},
      {"<thin", "[]<thin"},
      {" <thinker>", "[] <thinker>"},
      {"a<think>b</think>", "[]a<think>b</think>"},
      {"", "[]"},
      {" \n", "[] \n"},
  };
  for (const auto& [text, expected] : cases) {
    for (std::size_t size = 1; size <= text.size() + 1; ++size) {
      EXPECT_EQ(told_apart(text, size), expected) << "pieces of " << size;
    }
  }
}

TEST(Reasoning, ItsMarkMayStandInThePrompt) {
  EXPECT_TRUE(ends_in_reasoning("<user>Hi<assistant><think>\n"));
  EXPECT_FALSE(ends_in_reasoning("<user><think><assistant>"));
  EXPECT_FALSE(ends_in_reasoning("<assistant><think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_reasoning(""));
  for (std::size_t size = 1; size < 20; ++size) {
    EXPECT_EQ(told_apart("\na </think>\nb", size, true), "[a]b");
    EXPECT_EQ(told_apart("a b", size, true), "[a b]");
  }
}

// Allows what is below 100.
class Below100 : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> allowed) override {
    for (std::size_t i = 100; i < 64 * allowed.size(); ++i) {
      allowed[i / 64] &= ~(std::uint64_t{1} << i % 64);
    }
  }
  void accept(std::int32_t token) override { over_ = token == 99; }
  bool is_over() const override { return over_; }

 private:
  bool over_ = false;
};

TEST(Reasoning, AFormBeginsBehindIt) {
  const Tokenizer tokenizer = make_byte_tokenizer();
  ReasoningConstraint constraint(tokenizer, {256}, std::make_unique<Below100>());
  const auto allows = [&](std::int32_t token) {
    std::vector<std::uint64_t> allowed(5, ~std::uint64_t{0});
    constraint.mask(allowed);
    return (allowed[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) != 0;
  };
  for (const std::int32_t token : tokenizer.encode("so </think so c</think")) {
    EXPECT_TRUE(allows(200));
    EXPECT_FALSE(allows(256));  // it may not end here
    constraint.accept(token);
    EXPECT_FALSE(constraint.is_over());
  }
  constraint.accept('>');
  EXPECT_FALSE(allows(200));
  EXPECT_TRUE(allows(99));
  constraint.accept(99);
  EXPECT_TRUE(constraint.is_over());
}

class ServeReasoning : public ServiceTest {
 protected:
  void SetUp() override {
    ServedModel served = model();
    served.has_reasoning = true;
    service_ = std::make_unique<Service>(options_);
    service_->serve(std::move(served));
    says_ = "<think>\nHm, \n so.\n</think>\n\nYes.";
  }
};

TEST_F(ServeReasoning, IsAMemberOfTheMessage) {
  const ordered_json message = chat().json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm, \n so.");
  EXPECT_EQ(message["content"], "Yes.");
  EXPECT_EQ(chat({{"reasoning_format", "none"}}).json()["choices"][0]["message"]["content"], says_);
  says_ = "Yes.";
  EXPECT_FALSE(chat().json()["choices"][0]["message"].contains("reasoning_content"));
}

TEST_F(ServeReasoning, AStreamSaysTheSame) {
  std::string reasoning, content;
  for (const ordered_json& chunk : chunks(chat({{"stream", true}}))) {
    const ordered_json& delta = chunk["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "Hm, \n so.");
  EXPECT_EQ(content, "Yes.");
}

TEST_F(ServeReasoning, CompletionsStayAsTheyAre) {
  EXPECT_EQ(complete().json()["choices"][0]["text"], says_);
}

}  // namespace
}  // namespace atl::serve::api
