#include "atoll/text/speed.h"

#include <chrono>
#include <string>

#include "atoll/text/pre_tokenizer.h"

namespace atl::text {

namespace {

template <typename Call>
double seconds_of(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of each round but the first, which warms the machine.
template <typename Call>
std::vector<double> seconds_of_rounds(int rounds, Call&& call) {
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    const double taken = seconds_of(call);
    if (round > 0) seconds.push_back(taken);
  }
  return seconds;
}

}  // namespace

std::vector<std::string_view> cut_documents(std::string_view text, std::size_t document_bytes) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (document_bytes < text.size()) {
      end = document_bytes == 0 ? text.find('\n') : text.rfind('\n', document_bytes - 1);
      if (end == std::string_view::npos) end = text.find('\n');
      end = end == std::string_view::npos ? text.size() : end + 1;
    }
    documents.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return documents;
}

std::vector<double> time_encoding(const Tokenizer& tokenizer,
                                  std::span<const std::string_view> documents, int rounds,
                                  std::vector<std::int32_t>& ids) {
  return seconds_of_rounds(rounds, [&] {
    ids.clear();
    TokenEncoder encoder(tokenizer);
    for (const std::string_view document : documents) {
      encoder.encode(document, ids, {.parse_special = false});
    }
  });
}

std::vector<double> time_words(std::span<const std::string_view> documents, int rounds) {
  const PreTokenizer pre_tokenizer({{.pattern = std::string(kGpt2Pattern)}}, "GPT-2's pattern");
  std::size_t words = 0;
  return seconds_of_rounds(rounds, [&] {
    RegexMatcher matcher;
    for (const std::string_view document : documents) {
      pre_tokenizer.for_each_word(document, matcher, [&](std::string_view) { ++words; });
    }
  });
}

std::vector<double> time_training(std::string_view text, const BpeTrainerOptions& options,
                                  int rounds) {
  return seconds_of_rounds(rounds, [&] { train_bpe(std::span(&text, 1), options); });
}

}  // namespace atl::text
