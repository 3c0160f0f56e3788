#include "atoll/text/pre_tokenizer.h"

#include "atoll/base/error.h"

namespace atl::text {

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::string_view origin) {
  using Kind = PreTokenizerStep::Kind;
  int num_changing = 0;
  int num_spelling = 0;
  for (const PreTokenizerStep& spec : steps) {
    steps_.push_back({spec, std::nullopt});
    if (spec.kind == Kind::kScripts) continue;
    if (spec.kind != Kind::kSplit) {
      ++(spec.kind == Kind::kByteLevel ? num_spelling : num_changing);
      continue;
    }
    const std::string where = fmt::format("{}: pre_tokenizer", origin);
    steps_.back().regex.emplace(
        spec.literal ? quote_for_pcre2(spec.pattern) : to_pcre2_syntax(spec.pattern, where), where);
  }
  // Two of a kind would share one buffer while both are in use; no tokenizer is known that has two.
  if (num_changing > 1 || num_spelling > 1) {
    throw user_error(
        "{}: pre_tokenizer: more than one step that changes the text (add_prefix_space, "
        "Metaspace, ByteLevel) is not supported",
        origin);
  }
}

void PreTokenizer::escape_spaces(const PreTokenizerStep& spec, std::string_view piece,
                                 TextStart start, std::string& out) {
  using Prepend = PreTokenizerStep::Prepend;
  out.clear();
  const bool prepends = (spec.prepend == Prepend::kAlways && start != TextStart::kGoesOn) ||
                        (spec.prepend == Prepend::kFirst && start == TextStart::kFirst);
  if (prepends && piece.front() != ' ' && !piece.starts_with(spec.pattern)) out += spec.pattern;
  for (const char c : piece) {
    if (c == ' ') {
      out += spec.pattern;
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace atl::text
