#include "atoll/train/corpus.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/data/shard_cache.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/train/chat.h"
#include "atoll/train/progress.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Not *.txt: data.text may be a directory that the run's lies in.
constexpr const char* kRequestName = "corpus.request";

fs::path directory_of(const fs::path& tokenizer) {
  return fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
}

std::string hash_of(const std::string& content) {
  return to_hex(hash_bytes(content.data(), content.size()));
}

// Everything the cached corpus depends on. Equal requests mean the cache can be used.
std::string describe_request(const CorpusOptions& options) {
  std::string request =
      fmt::format("held_out {}\ndocuments {}\n", options.held_out, options.documents);
  if (options.tokenizer.empty()) {
    request += options.new_tokenizer == "bpe"
                   ? fmt::format("train a tokenizer of {}\n", options.vocab_size)
                   : fmt::format("a new tokenizer, {}\n", options.new_tokenizer);
  } else {
    request +=
        fmt::format("tokenizer {}\n", hash_of(Tokenizer::load(options.tokenizer).file_content()));
  }
  std::vector<fs::path> templates = {options.chat_template};
  if (!options.tokenizer.empty()) {
    templates.push_back(directory_of(options.tokenizer) / "chat_template.jinja");
    templates.push_back(directory_of(options.tokenizer) / "tokenizer_config.json");
    templates.push_back(directory_of(options.tokenizer) / "special_tokens_map.json");
  }
  // All of them: a template in a file of its own still takes its tokens from the others.
  for (const fs::path& file : templates) {
    if (!fs::is_regular_file(file)) continue;
    request += fmt::format("template {}\n", hash_of(read_file(file)));
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
        name == "tokenizer.model" || entry.path().extension() == ".atsh") {
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
                                  ? make_tokenizer(options.text, options.new_tokenizer,
                                                   options.vocab_size, options.chat_template)
                                  : Tokenizer::load(options.tokenizer);
  if (options.tokenizer.empty()) {
    log::info("made a new tokenizer ({}) of {} tokens in {:.1f} s", options.new_tokenizer,
              format_count(tokenizer.vocab_size()), seconds_since(start));
  }
  start = std::chrono::steady_clock::now();
  const data::TokenizeResult result = data::tokenize_corpus(
      {.inputs = options.text,
       .output = options.cache,
       .documents = document_mode(options.documents),
       .held_out = options.held_out,
       .overwrite = true,
       .render_chat = chat_renderer(options.chat_template, options.tokenizer, tokenizer)},
      tokenizer);
  log::info("tokenized {} bytes into {} tokens, {} of them held out, in {:.1f} s",
            format_count(static_cast<std::int64_t>(result.bytes)),
            format_count(result.train_tokens + result.held_out_tokens),
            format_count(result.held_out_tokens), seconds_since(start));
}

std::vector<data::Corpus> open_corpora(const std::vector<fs::path>& directories,
                                       const CorpusOptions& options) {
  std::optional<data::ShardCache> cache;
  if (!options.shard_cache.empty()) {
    cache.emplace(options.shard_cache, options.shard_cache_bytes);
  }
  std::vector<data::Corpus> corpora;
  std::set<fs::path> seen;
  for (const fs::path& directory : directories) {
    if (!seen.insert(fs::weakly_canonical(directory)).second) {
      throw user_error(
          "data.shards names {} twice; give it a larger weight in data.weights instead",
          directory.string());
    }
    corpora.emplace_back(directory, cache ? &*cache : nullptr);
    if (corpora.back().manifest().tokenizer_hash != corpora.front().manifest().tokenizer_hash) {
      throw user_error(
          "{} and {} were made with different tokenizers, so one model cannot learn from both; "
          "make one of them again with `atoll tokenize --tokenizer`",
          directories.front().string(), directory.string());
    }
  }
  return corpora;
}

}  // namespace

std::function<data::RenderedChat(std::string_view)> chat_renderer(const fs::path& chat_template,
                                                                  const fs::path& tokenizer_path,
                                                                  const Tokenizer& tokenizer) {
  // Looked for only when there are messages.
  auto found = std::make_shared<std::optional<ChatTemplate>>();
  return [=](std::string_view messages) {
    if (!*found) {
      if (chat_template.empty() && tokenizer_path.empty()) {
        throw user_error(
            "messages need a chat template, and a new tokenizer has none: give a Jinja file "
            "(data.chat_template, or --chat-template)");
      }
      *found = find_chat_template(chat_template, directory_of(tokenizer_path), tokenizer);
      if ((*found)->shows_time()) {
        log::warning(
            "the chat template may write the date (strftime_now): made on another day, the same "
            "messages can give other tokens and another corpus; write a fixed date into it");
      }
    }
    const TrainingText text = (*found)->render_for_training(parse_messages(messages, "messages"));
    data::RenderedChat chat;
    chat.text = text.text;
    for (const TextSpan& span : text.trained) chat.trained.emplace_back(span.begin, span.end);
    return chat;
  };
}

Tokenizer make_tokenizer(const std::vector<fs::path>& text, const std::string& kind,
                         std::int64_t vocab_size, const fs::path& chat_template) {
  if (kind == "byte") return make_byte_tokenizer();
  // A template may write the end of text of the tokenizer that is not there yet: a byte tokenizer's
  // is called as a trained one's, and one of characters has none.
  constexpr std::string_view kAnyText = " ";
  const Tokenizer like =
      kind == "char" ? make_char_tokenizer(std::span(&kAnyText, 1)) : make_byte_tokenizer();
  const auto render_chat = chat_renderer(chat_template, {}, like);
  std::deque<MappedFile> files;
  std::deque<std::string> pieces;
  std::vector<std::string_view> texts;
  std::vector<std::string> names;
  for (const fs::path& path : data::find_text_files(text)) {
    if (path.extension() == ".txt") {
      const auto bytes = files.emplace_back(path).bytes();
      texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      data::for_each_text(
          {.inputs = {path}, .render_chat = render_chat},
          [&](std::string_view piece) { texts.emplace_back(pieces.emplace_back(piece)); });
    }
    names.resize(texts.size(), path.string());
  }
  if (kind == "char") return make_char_tokenizer(texts, names);
  return train_bpe(texts, {.vocab_size = static_cast<std::int32_t>(vocab_size)});
}

std::int64_t PreparedCorpus::num_tokens() const {
  std::int64_t sum = 0;
  for (const data::Corpus& corpus : corpora) sum += corpus.train().num_tokens();
  return sum;
}

bool PreparedCorpus::has_held_out() const {
  return std::any_of(corpora.begin(), corpora.end(),
                     [](const data::Corpus& corpus) { return corpus.held_out().num_tokens() > 1; });
}

std::int64_t PreparedCorpus::num_held_out_tokens() const {
  std::int64_t sum = 0;
  for (const data::Corpus& corpus : corpora) sum += corpus.held_out().num_tokens();
  return sum;
}

std::string PreparedCorpus::hash() const {
  std::string all = to_hex(corpora.front().hash());
  if (corpora.size() == 1) return all;
  for (std::size_t i = 1; i < corpora.size(); ++i) all += to_hex(corpora[i].hash());
  return to_hex(hash_bytes(all.data(), all.size()));
}

TrainSamples::TrainSamples(const PreparedCorpus& corpus, const std::vector<double>& weights,
                           std::uint64_t seed, std::int64_t context, data::Packing packing) {
  std::vector<data::MixturePart> parts;
  for (std::size_t i = 0; i < corpus.corpora.size(); ++i) {
    const data::TokenSplit& split = corpus.corpora[i].train();
    parts_.push_back(data::make_samples(split, seed, context, packing));
    parts.push_back({parts_.back().get(),
                     weights.empty() ? static_cast<double>(split.num_tokens()) : weights[i]});
  }
  if (parts.size() > 1) mixture_ = std::make_unique<data::Mixture>(seed, std::move(parts));
}

bool is_cached(const CorpusOptions& options) {
  const fs::path request_file = options.cache / kRequestName;
  return data::holds_corpus(options.cache) && fs::exists(request_file) &&
         read_file(request_file) == describe_request(options);
}

PreparedCorpus prepare_corpus(const CorpusOptions& options) {
  std::vector<fs::path> directories = options.shards;
  if (directories.empty()) {
    directories = {options.cache};
    if (fs::is_directory(options.chat_template)) {
      throw user_error("data.chat_template is the directory {}; name the Jinja file in it",
                       options.chat_template.string());
    }
    if (!is_cached(options)) {
      if (options.cache_is_final) {
        throw user_error(
            "the text or a setting of data changed since {} was made, and the run has checkpoints "
            "trained on it; give back the same text and data.* settings, or choose another run.dir",
            options.cache.string());
      }
      remove_cached(options.cache);
      make_corpus(options);
      write_file(options.cache / kRequestName, describe_request(options));
    }
  }
  std::vector<data::Corpus> corpora = open_corpora(directories, options);
  // The user's own where it is at hand: beside it may stand what goes round a text.
  Tokenizer tokenizer = Tokenizer::load(options.shards.empty() && !options.tokenizer.empty()
                                            ? options.tokenizer
                                            : corpora.front().tokenizer_path());
  return {std::move(corpora), std::move(tokenizer)};
}

}  // namespace atl::train
