#include "atoll/hub/patterns.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

namespace atl::hub {
namespace {

constexpr std::array kPaths = {"config.json",
                               "model-00001-of-00002.safetensors",
                               "data/train/a.json",
                               "a",
                               "é",
                               "é.txt",
                               "abc",
                               "aXbYc",
                               "[",
                               "[a",
                               "]x",
                               "x",
                               "onnx/model.onnx",
                               "a-b",
                               "data/x",
                               "10",
                               "A.JSON",
                               "",
                               "a/x",
                               "x[a-"};

// What fnmatch.fnmatchcase of Python 3.11 says of each of kPaths, as huggingface_hub asks it.
constexpr std::pair<const char*, const char*> kFits[] = {
    {"*.json", "10100000000000000000"},
    {"model*.safetensors", "01000000000000000000"},
    {"*", "11111111111111111111"},
    {"?", "00011000100100000000"},
    {"data/", "00100000000000100000"},
    {"*/x", "00000000000000100010"},
    {"[abc]*", "10010011000001000010"},
    {"[!a]*", "11101100111110111001"},
    {"[a-c]?", "00000000000000000000"},
    {"[]x]*", "00000000001100000001"},
    {"[", "00000000100000000000"},
    {"[a", "00000000010000000000"},
    {"*.[jt]*", "10100100000000000000"},
    {"a*b*c", "00000011000000000000"},
    {"**", "11111111111111111111"},
    {"onnx/*", "00000000000010000000"},
    {"*é*", "00001100000000000000"},
    {"[é]", "00001000000000000000"},
    {"?.txt", "00000100000000000000"},
    {"[!]]*", "11111111110111111011"},
    {"a[-]b", "00000000000001000000"},
    {"x[a-", "00000000000000000001"},
    {"*[0-9][0-9]*", "01000000000000010000"},
    {"data\\x", "00000000000000100000"},
};

TEST(HubPatterns, FitAsInPython) {
  for (const auto& [pattern, fits] : kFits) {
    for (std::size_t i = 0; i < kPaths.size(); ++i) {
      EXPECT_EQ(fits_pattern(kPaths[i], pattern), fits[i] == '1') << pattern << " " << kPaths[i];
    }
  }
}

TEST(HubPatterns, SeveralStarsTakeNoTimeThatGrowsWithTheirNumber) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(fits_pattern(std::string(5000, 'a'), pattern + "b"));
}

TEST(HubPatterns, ExcludedIsMoreThanIncluded) {
  EXPECT_TRUE(is_wanted("a.json", {}, {}));
  EXPECT_TRUE(is_wanted("a.json", {"*.txt", "*.json"}, {}));
  EXPECT_FALSE(is_wanted("a.json", {"*.txt"}, {}));
  EXPECT_FALSE(is_wanted("a.json", {"*.json"}, {"a*"}));
}

}  // namespace
}  // namespace atl::hub
