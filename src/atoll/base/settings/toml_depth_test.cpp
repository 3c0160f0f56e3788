#include "atoll/base/settings/toml_depth.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/settings/toml.h"

namespace atl {
namespace {

// "a.a.a" of so many parts.
std::string key_of(int parts, const std::string& dot = ".", const std::string& part = "a") {
  std::string key = part;
  for (int i = 1; i < parts; ++i) key += dot + part;
  return key;
}

std::string refusal(std::string_view text) {
  try {
    (void)parse_toml(text, "r.toml");
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
}

constexpr const char* kParts =
    "r.toml:2: a key of more than 16 parts; a setting has two, as train.steps";
constexpr const char* kBrackets =
    "r.toml:2: a value within more than 16 brackets; a setting is at most a list";

TEST(TomlDepth, RefusesAKeyOfManyPartsInEveryForm) {
  for (const int parts : {17, 20'000, 1'000'000}) {
    EXPECT_EQ(refusal("\n" + key_of(parts) + " = 1"), kParts) << parts;
    EXPECT_EQ(refusal("\n[" + key_of(parts) + "]"), kParts) << parts;
    EXPECT_EQ(refusal("\n[[" + key_of(parts) + "]]"), kParts) << parts;
    EXPECT_EQ(refusal("\nx = {" + key_of(parts) + " = 1}"), kParts) << parts;
    EXPECT_EQ(refusal("\n" + key_of(parts, " .\t", "'a.b'") + " = 1"), kParts) << parts;
    EXPECT_EQ(refusal("\n" + key_of(parts, ".", "\"a\\\"\"") + " = 1"), kParts) << parts;
  }
  EXPECT_EQ(refusal("\n" + key_of(16) + " = 1"), "no error");
  EXPECT_EQ(refusal("\n[" + key_of(16) + "]"), "no error");
}

TEST(TomlDepth, RefusesManyBracketsInEachOther) {
  for (const int depth : {17, 20'000, 1'000'000}) {
    const auto count = static_cast<std::size_t>(depth);
    EXPECT_EQ(refusal("\nx = " + std::string(count, '[')), kBrackets) << depth;
    std::string tables = "\nx = ";
    for (int i = 0; i < depth; ++i) tables += "{x = ";
    EXPECT_EQ(refusal(tables), kBrackets) << depth;
  }
  EXPECT_EQ(refusal("\nx = [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"), "no error");
}

TEST(TomlDepth, DotsAndBracketsInValuesStringsAndCommentsAreNone) {
  const std::string many = key_of(100);
  const std::string open(100, '[');
  std::string numbers = "0.5";
  for (int i = 0; i < 100; ++i) numbers += ", 0.5";
  EXPECT_EQ(refusal("a = [" + numbers + "]\n"), "no error");
  EXPECT_EQ(refusal("a = '" + many + open + "' # " + many + open + "\nb = 1"), "no error");
  EXPECT_EQ(refusal("a = \"\\\"" + many + open + "\"\nb = 1"), "no error");
  EXPECT_EQ(refusal("a = \"\"\"\n" + many + open + " \" \\\"\"\" " + many + "\"\"\"\"\"\nb = 1"),
            "no error");
  EXPECT_EQ(refusal("a = '''\n" + many + open + " ' '' \\''''\nb = 1"), "no error");
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += fmt::format("a{}.b.c = 1.5\n", i);
  EXPECT_EQ(refusal(lines), "no error");
}

TEST(TomlDepth, StringsHideNothingBehindThem) {
  const std::string deep = "\n" + key_of(20'000) + " = 1";
  EXPECT_EQ(refusal("a = ''" + deep), kParts);
  EXPECT_EQ(refusal("a = \"\"" + deep), kParts);
  EXPECT_EQ(refusal("a = '\\'" + deep), kParts);
  EXPECT_EQ(refusal("a = \"\\\\\"" + deep), kParts);
  EXPECT_EQ(refusal("a = \"\"\"x\"\"\"\"\"" + deep), kParts);
  EXPECT_EQ(refusal("a = ''''''" + deep), kParts);
  EXPECT_EQ(refusal("a = 1 # '" + deep), kParts);
}

}  // namespace
}  // namespace atl
