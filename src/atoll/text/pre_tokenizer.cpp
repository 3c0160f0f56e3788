#include "atoll/text/pre_tokenizer.h"

#include "atoll/base/check.h"

namespace atl::text {

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::string_view origin) {
  int num_prefixes = 0;
  for (const PreTokenizerStep& spec : steps) {
    Step step{spec.kind, spec.invert, std::nullopt};
    if (spec.kind == PreTokenizerStep::Kind::kPrefixSpace) {
      ++num_prefixes;
    } else {
      const std::string where = fmt::format("{}: pre_tokenizer", origin);
      step.regex.emplace(
          spec.literal ? quote_for_pcre2(spec.pattern) : to_pcre2_syntax(spec.pattern, where),
          where);
    }
    steps_.push_back(std::move(step));
  }
  // They would share one buffer while both are in use. A second one never finds work to do anyway
  // unless a split stands between them.
  if (num_prefixes > 1) {
    throw user_error("{}: pre_tokenizer: more than one add_prefix_space is not supported", origin);
  }
}

}  // namespace atl::text
