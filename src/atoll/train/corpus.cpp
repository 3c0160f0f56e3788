#include "atoll/train/corpus.h"

#include <chrono>
#include <deque>
#include <string_view>

#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/train/progress.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Not *.txt: data.text may be a directory that the run's lies in.
constexpr const char* kRequestName = "corpus.request";

// Everything the cached corpus depends on. Equal requests mean the cache can be used.
std::string describe_request(const CorpusOptions& options) {
  std::string request =
      fmt::format("held_out {}\ndocuments {}\n", options.held_out, options.documents);
  if (options.tokenizer.empty()) {
    request += fmt::format("train a tokenizer of {}\n", options.vocab_size);
  } else {
    const std::string json = Tokenizer::load(options.tokenizer).to_json();
    request += fmt::format("tokenizer {}\n", to_hex(hash_bytes(json.data(), json.size())));
  }
  for (const fs::path& path : data::find_text_files(options.text)) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    request += fmt::format("{} {} {}\n", to_hex(hash_bytes(bytes.data(), bytes.size())),
                           bytes.size(), path.string());
  }
  return request;
}

data::DocumentMode document_mode(const std::string& name) {
  if (name == "file") return data::DocumentMode::kFile;
  if (name == "blank-line") return data::DocumentMode::kBlankLine;
  throw user_error("data.documents is \"{}\"; it must be \"file\" or \"blank-line\"", name);
}

// Removes what this file put there, and nothing else: the directory may be the user's own.
void remove_cached(const fs::path& directory) {
  if (!fs::exists(directory)) return;
  std::vector<fs::path> ours;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name == kRequestName || name == "corpus.json" || name == "tokenizer.json" ||
        entry.path().extension() == ".atsh") {
      ours.push_back(entry.path());
      continue;
    }
    throw user_error(
        "{} is where the run keeps its tokens, and {} there is not atoll's; move it away, or "
        "choose "
        "another run.dir",
        directory.string(), name);
  }
  for (const fs::path& path : ours) fs::remove(path);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void make_corpus(const CorpusOptions& options) {
  auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = options.tokenizer.empty()
                                  ? train_tokenizer(options.text, options.vocab_size)
                                  : Tokenizer::load(options.tokenizer);
  if (options.tokenizer.empty()) {
    log::info("trained a byte-level BPE tokenizer of {} tokens in {:.1f} s",
              format_count(tokenizer.vocab_size()), seconds_since(start));
  }
  start = std::chrono::steady_clock::now();
  const data::TokenizeResult result =
      data::tokenize_corpus({.inputs = options.text,
                             .output = options.cache,
                             .documents = document_mode(options.documents),
                             .held_out = options.held_out,
                             .overwrite = true},
                            tokenizer);
  log::info("tokenized {} bytes into {} tokens, {} of them held out, in {:.1f} s",
            format_count(static_cast<std::int64_t>(result.bytes)),
            format_count(result.train_tokens + result.held_out_tokens),
            format_count(result.held_out_tokens), seconds_since(start));
}

}  // namespace

Tokenizer train_tokenizer(const std::vector<fs::path>& text, std::int64_t vocab_size) {
  std::deque<MappedFile> files;
  std::vector<std::string_view> texts;
  for (const fs::path& path : data::find_text_files(text)) {
    const auto bytes = files.emplace_back(path).bytes();
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return train_bpe(texts, {.vocab_size = static_cast<std::int32_t>(vocab_size)});
}

bool is_cached(const CorpusOptions& options) {
  const fs::path request_file = options.cache / kRequestName;
  return data::holds_corpus(options.cache) && fs::exists(request_file) &&
         read_file(request_file) == describe_request(options);
}

PreparedCorpus prepare_corpus(const CorpusOptions& options) {
  fs::path directory = options.shards;
  if (directory.empty()) {
    directory = options.cache;
    if (!is_cached(options)) {
      if (options.cache_is_final) {
        throw user_error(
            "the text or a setting of data changed since {} was made, and the run has checkpoints "
            "trained on it; give back the same text and data.* settings, or choose another run.dir",
            directory.string());
      }
      remove_cached(directory);
      make_corpus(options);
      write_file(directory / kRequestName, describe_request(options));
    }
  }
  data::Corpus corpus(directory);
  Tokenizer tokenizer = Tokenizer::load(corpus.tokenizer_path());
  return {std::move(corpus), std::move(tokenizer)};
}

}  // namespace atl::train
