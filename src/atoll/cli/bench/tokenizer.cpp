#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/rng.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/text/speed.h"

namespace atl::cli {

namespace {

struct Options {
  std::string text;
  std::string tokenizer;
  std::int32_t vocab_size = 32768;
  std::size_t megabytes = 4;
  int rounds = 3;
  bool json = false;
};

// Draws in turn of one stream.
class Draws {
 public:
  std::uint32_t below(std::uint32_t bound) { return stream_.word(next_++) % bound; }
  double uniform() { return stream_.uniform(next_++); }

 private:
  RngStream stream_ = RngStream(1, RngPurpose::kSynthetic);
  std::uint64_t next_ = 0;
};

std::string made_word(Draws& draws) {
  static constexpr const char* kSyllables[] = {"ka", "ro", "mi", "ten", "sul", "ar",  "e",  "vo",
                                               "li", "da", "po", "shi", "ner", "gat", "um", "ye"};
  std::string word;
  for (std::uint32_t left = 1 + draws.below(4); left > 0; --left) {
    word += kSyllables[draws.below(std::size(kSyllables))];
  }
  return word;
}

// Words without meaning in sentences and lines, each as often as one over its rank: as in real text
// (Zipf), a few words are most of it and new ones never end.
std::string made_text(std::size_t bytes) {
  constexpr std::size_t kWords = 20'000;
  Draws draws;
  std::vector<std::string> words(kWords);
  for (std::string& word : words) word = made_word(draws);
  std::string text;
  text.reserve(bytes + 64);
  while (text.size() < bytes) {
    const double rank = std::pow(static_cast<double>(kWords), draws.uniform());
    text += words[static_cast<std::size_t>(rank) - 1];
    const std::uint32_t after = draws.below(100);
    if (after < 2) {
      text += fmt::format(" {}", draws.below(3000));
    } else if (after < 10) {
      text += ",";
    } else if (after < 16) {
      text += ".";
    }
    text += after >= 10 && after < 13 ? "\n" : " ";
  }
  return text + "\n";
}

Figure figure(std::string what, double bytes, double seconds, double limit_seconds,
              std::string note) {
  return {.what = std::move(what),
          .value = bytes / seconds / 1e6,
          .unit = "MB/s",
          .limit = bytes / limit_seconds / 1e6,
          .limit_is = "cutting into words alone",
          .share = limit_seconds / seconds,
          .note = std::move(note)};
}

int run_tokenizer(const Options& options) {
  const std::string text = options.text.empty() ? made_text(options.megabytes * 1'000'000)
                                                : read_file(options.text, kMaxLogBytes);
  if (text.empty()) throw user_error("{} is empty; give a text to measure with", options.text);
  const std::string_view whole = text;
  const BpeTrainerOptions training = {.vocab_size = options.vocab_size};
  const Tokenizer tokenizer = options.tokenizer.empty() ? train_bpe(std::span(&whole, 1), training)
                                                        : Tokenizer::load(options.tokenizer);
  std::vector<double> load_seconds(static_cast<std::size_t>(options.rounds));
  for (double& took : load_seconds) {
    took = seconds_of([&] {
      Tokenizer::from_bytes(tokenizer.file_content(), tokenizer.file_name(), "the tokenizer");
    });
  }
  const auto bytes = static_cast<double>(text.size());
  std::vector<Figure> figures;
  for (const std::size_t document_bytes : {std::size_t{65536}, std::size_t{0}}) {
    const auto documents = text::cut_documents(text, document_bytes);
    const double limit = median(text::time_words(documents, options.rounds));
    std::vector<std::int32_t> ids;
    const double seconds = median(text::time_encoding(tokenizer, documents, options.rounds, ids));
    figures.push_back(figure(document_bytes == 0 ? "encode, a line at a time" : "encode, 64 KiB",
                             bytes, seconds, limit,
                             fmt::format("{} documents, {:.1f} million tokens/s", documents.size(),
                                         static_cast<double>(ids.size()) / seconds / 1e6)));
  }
  const double limit = median(text::time_words(std::span(&whole, 1), options.rounds));
  const double seconds = median(text::time_training(text, training, options.rounds));
  figures.push_back(
      figure("learn a vocabulary", bytes, seconds, limit,
             fmt::format("{} tokens asked for, {:.3f} s", options.vocab_size, seconds)));
  if (options.json) {
    fmt::print("{}\n", figures_to_json(figures));
    return 0;
  }
  fmt::print("{:.1f} MB of {}, a vocabulary of {}, which loads in {:.0f} ms; one thread\n\n{}",
             bytes / 1e6, options.text.empty() ? "made-up text" : options.text,
             tokenizer.vocab_size(), 1e3 * median(load_seconds), figure_table(figures));
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  const Argument text =
      parser.add_option("--text", options->text, "file to encode; none: words without meaning");
  parser.add_option("--megabytes", options->megabytes, "of made-up text")
      .range(1, 1000)
      .show_default()
      .excludes(text);
  parser.add_option("--tokenizer", options->tokenizer,
                    "tokenizer.json, tokenizer.model, or a directory that holds one; none: one is "
                    "learnt from the text");
  parser.add_option("--vocab-size", options->vocab_size, "tokens of a vocabulary that is learnt")
      .range(257, 1 << 20)
      .show_default();
  parser.add_option("--rounds", options->rounds, "of each, of which the median counts")
      .range(1, 1000)
      .show_default();
  parser.add_flag("--json", options->json, "one line for programs");
  return [options](const Invocation&) { return run_tokenizer(*options); };
}

}  // namespace

Benchmark bench_tokenizer() {
  return {.name = "tokenizer",
          .summary = "text to tokens, and learning a vocabulary, against cutting it into words",
          .add = add};
}

}  // namespace atl::cli
