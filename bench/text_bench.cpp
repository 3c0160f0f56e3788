// What `atoll bench tokenizer` measures, with the ids in a file. Prints one line of JSON, which
// bench/peers/tokenizers_peer.py sets beside other libraries' figures.
//
//   text_bench encode --tokenizer tokenizer.json --text kjv.txt
//   text_bench train --text kjv.txt --vocab-size 32768 --out trained.json

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/text/speed.h"
#include "atoll/text/tokenizer.h"

namespace atl {
namespace {

struct Options {
  std::string tokenizer;
  std::string text;
  std::string ids;
  std::string out;
  std::size_t document_bytes = 65536;
  int rounds = 3;
  std::int32_t vocab_size = 32768;
};

double load_seconds(std::optional<Tokenizer>& tokenizer, const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  tokenizer = Tokenizer::load(path);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void encode(const Options& options) {
  const std::string text = read_file(options.text);
  const auto documents = text::cut_documents(text, options.document_bytes);
  std::optional<Tokenizer> tokenizer;
  const double load = load_seconds(tokenizer, options.tokenizer);
  std::vector<std::int32_t> ids;
  const auto seconds = text::time_encoding(*tokenizer, documents, options.rounds, ids);
  if (!options.ids.empty()) {
    write_file(options.ids, {reinterpret_cast<const char*>(ids.data()), 4 * ids.size()});
  }
  fmt::print(
      "{{\"bytes\": {}, \"documents\": {}, \"tokens\": {}, \"load\": {:.6f}, \"seconds\": {}}}\n",
      text.size(), documents.size(), ids.size(), load, seconds);
}

void train(const Options& options) {
  const std::string text = read_file(options.text);
  const std::string_view view = text;
  const BpeTrainerOptions training = {.vocab_size = options.vocab_size};
  const std::vector<double> seconds = text::time_training(text, training, options.rounds);
  const Tokenizer tokenizer = train_bpe(std::span(&view, 1), training);
  if (!options.out.empty()) write_file(options.out, tokenizer.to_json());
  fmt::print("{{\"bytes\": {}, \"vocab_size\": {}, \"seconds\": {}}}\n", text.size(),
             tokenizer.vocab_size(), seconds);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Options options;
  CLI::App app{"Speed of tokenizers on one thread."};
  app.require_subcommand(1);
  CLI::App* encode = app.add_subcommand("encode", "Text to ids.");
  encode->add_option("--tokenizer", options.tokenizer, "tokenizer.json, or its directory")
      ->required();
  encode
      ->add_option("--document-bytes", options.document_bytes,
                   "documents end with a line and have at most so many bytes; 0: lines")
      ->capture_default_str();
  encode->add_option("--ids", options.ids, "file for the ids, 32 bits each");
  CLI::App* train = app.add_subcommand("train", "Learn a byte-level BPE vocabulary.");
  train->add_option("--vocab-size", options.vocab_size)->capture_default_str();
  train->add_option("--out", options.out, "file for the tokenizer.json");
  for (CLI::App* command : {encode, train}) {
    command->add_option("--text", options.text)->required();
    command->add_option("--rounds", options.rounds)->capture_default_str();
  }
  CLI11_PARSE(app, argc, argv);
  try {
    encode->parsed() ? atl::encode(options) : atl::train(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
