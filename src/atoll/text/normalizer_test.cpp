// Every code point as Hugging Face's normalizers have it; tools/golden/unicode_oracle.py wrote
// testdata/normalizers.json.

#include "atoll/text/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/text/testing.h"
#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

using Kind = NormalizerStep::Kind;

std::string utf8(char32_t code_point) {
  std::string text;
  append_utf8(code_point, text);
  return text;
}

NormalizerStep step_of(const std::string& name) {
  NormalizerStep step;
  step.kind = Kind::kForm;
  if (name == "NFC") step.form = NormalForm::kNfc;
  if (name == "NFD") step.form = NormalForm::kNfd;
  if (name == "NFKC") step.form = NormalForm::kNfkc;
  if (name == "NFKD") step.form = NormalForm::kNfkd;
  if (name == "Lowercase") step.kind = Kind::kLowercase;
  if (name == "Strip") step.kind = Kind::kStrip;
  return step;
}

class Normalized {
 public:
  explicit Normalized(const std::string& name) : normalizer_({step_of(name)}, "test") {}
  std::string operator()(const std::string& text) {
    return std::string(normalizer_.apply(text, matcher_, buffer_));
  }

 private:
  Normalizer normalizer_;
  RegexMatcher matcher_;
  std::string buffer_;
};

const nlohmann::json& fixture() {
  static const auto json =
      nlohmann::json::parse(read_file(testing::testdata() / "normalizers.json"));
  return json;
}

class HuggingFaceNormalizer : public ::testing::TestWithParam<const char*> {};

TEST_P(HuggingFaceNormalizer, MakesTheSameOfEveryCodePoint) {
  constexpr std::size_t kBlock = 4096;
  const std::string name = GetParam();
  const nlohmann::json& hashes = fixture()["code_points"][name];
  const bool is_form = name.starts_with("NF");
  Normalized normalized(name);
  testing::BlockHash hash;
  std::size_t count = 0;
  std::size_t block = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    // Between marks of the classes 230, 1 and 220, so that its own class shows.
    hash.add(normalized(is_form ? utf8(c) + " a\u0301" + utf8(c) + "\u0334\u0316" : utf8(c)));
    if (++count % kBlock != 0 && c != 0x10FFFF) continue;
    EXPECT_EQ(hash.digest(), hashes[block++])
        << "a code point of the 4096 before " << std::hex << static_cast<unsigned>(c);
    hash = {};
  }
  EXPECT_EQ(block, hashes.size());
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceNormalizer,
                         ::testing::Values("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Normalizer, ComposesAndOrdersAsHuggingFace) {
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    Normalized normalized(form);
    for (const nlohmann::json& entry : fixture()["strings"]) {
      EXPECT_EQ(normalized(entry["text"]), entry[form]) << form << " of " << entry["text"];
    }
  }
}

TEST(Normalizer, KeepsWhatIsNewerThanUnicode9AsItIs) {
  EXPECT_EQ(Normalized("NFKC")("\u32FF \u3392"), "\u32FF MHz");
  EXPECT_EQ(Normalized("NFKC")("\uA7F2"), "\uA7F2");
  EXPECT_EQ(Normalized("NFC")("a\u1DFA\u0316"), "a\u1DFA\u0316");
  EXPECT_EQ(Normalized("Lowercase")("\u1C89 \u00C4 \u0130"), "\u1C8A \u00E4 i\u0307");
}

}  // namespace
}  // namespace atl::text
