#include "atoll/train/corpus/corpus_cache.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/unfinished.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/bytes/compression.h"
#include "atoll/data/input_format.h"
#include "atoll/data/tokenize.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/progress/tokenize_progress.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Not *.txt: data.text may be a directory that the run's lies in.
constexpr const char* kRequestName = "corpus.request";
constexpr const char* kReferences = "reference.bin";  // of a run with preferences
constexpr std::string_view kHash = "request ";        // what it begins with, and its hash
constexpr std::string_view kUnhashed = "held_out ";   // what those of older programs begin with
constexpr std::string_view kFrame = "frame ";         // a line that those of older programs lack

fs::path directory_of(const fs::path& tokenizer) {
  return directory_exists(tokenizer) ? tokenizer : tokenizer.parent_path();
}

std::string hash_of_text(const std::string& content) {
  return to_hex(hash_bytes(content.data(), content.size()));
}

std::string describe_fields(const data::Fields& fields) {
  std::string all;
  for (const std::string* field : {&fields.text, &fields.prompt, &fields.completion,
                                   &fields.messages, &fields.role, &fields.content}) {
    all += fmt::format("{} {}\n", field->size(), *field);
  }
  for (const std::string& role : fields.roles) all += role + "\n";
  return all + (fields.chat ? "chat" : "");
}

// Everything the cached corpus depends on. Equal requests mean the cache can be used.
std::string describe_request(const CorpusOptions& options) {
  std::string request =
      fmt::format("{}{}\ndocuments {}\n", kUnhashed, options.held_out, options.documents);
  if (options.tokenizer.empty()) {
    request += options.new_tokenizer == "bpe"
                   ? fmt::format("train a tokenizer of {}\n", options.vocab_size)
                   : fmt::format("a new tokenizer, {}\n", options.new_tokenizer);
    for (const std::string& token : options.special_tokens) {
      request += fmt::format("special token {}\n", token);
    }
  } else {
    const Tokenizer tokenizer =
        Tokenizer::load(options.tokenizer).with_special_tokens(options.special_tokens);
    request += fmt::format("tokenizer {}\n", hash_of_text(tokenizer.file_content()));
    request += fmt::format("{}{} [{}] [{}]\n", kFrame, tokenizer.end_of_text().value_or(-1),
                           fmt::join(tokenizer.tokens_before(), " "),
                           fmt::join(tokenizer.tokens_after(), " "));
  }
  std::vector<fs::path> templates = {options.chat_template};
  if (!options.chat_template.empty() && !file_exists(options.chat_template)) {
    request += fmt::format("template named {}\n", options.chat_template.string());
  }
  if (!options.tokenizer.empty()) {
    templates.push_back(directory_of(options.tokenizer) / "chat_template.jinja");
    templates.push_back(directory_of(options.tokenizer) / "tokenizer_config.json");
    templates.push_back(directory_of(options.tokenizer) / "special_tokens_map.json");
  }
  if (options.fields != data::Fields()) {
    request += fmt::format("fields {}\n", hash_of_text(describe_fields(options.fields)));
  }
  if (options.pairs != data::PairKind::kNone) {
    for (const std::string* key :
         {&options.fields.chosen, &options.fields.rejected, &options.fields.label}) {
      request += fmt::format("answers {}\n", *key);
    }
  }
  if (options.pairs == data::PairKind::kPreferences) request += "rows: pairs of answers\n";
  if (options.pairs == data::PairKind::kLabels) request += "rows: labelled answers\n";
  // Only what is not the default: a corpus of an older atoll stays what was asked for.
  if (options.chat.last_only) request += "chat: the last answer\n";
  if (options.chat.keep_thinking) request += "chat: a text for each answer\n";
  if (options.chat.literal_content) request += "chat: content is text\n";
  // All of them: a template in a file of its own still takes its tokens from the others.
  for (const fs::path& file : templates) {
    if (!file_exists(file)) continue;
    request += fmt::format("template {}\n", hash_of_text(read_file(file)));
  }
  for (const fs::path& path : data::find_text_files(options.text).files) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    request += fmt::format("{} {} {}\n", to_hex(hash_bytes(bytes.data(), bytes.size())),
                           bytes.size(), path.string());
  }
  return request;
}

bool has_frame(const std::string& request) {
  return request.find(fmt::format("\n{}", kFrame)) != std::string::npos;
}

// What a file's name says that it is: ".txt", ".csv.gz".
std::string endings_of(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (!data::is_compressed_ending(data::ending_of(path))) return ending;
  return path.stem().extension().string() + ending;
}

// A request without what no token depends on: where the files lie. Their extensions say what they
// are. `with_frame`: also with what goes round a document.
std::string essence(const std::string& request, bool with_frame) {
  constexpr std::size_t kHashDigits = 32;
  std::istringstream lines(request);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t path = line.find(' ', kHashDigits + 1);
    const bool is_file = line.find(' ') == kHashDigits && path != std::string::npos;
    if (!with_frame && line.starts_with(kFrame)) continue;
    if (is_file) line = line.substr(0, path) + endings_of(line.substr(path + 1));
    result += line + "\n";
  }
  return result;
}

void write_request(const CorpusOptions& options) {
  const std::string request = describe_request(options);
  write_file(options.cache / kRequestName,
             fmt::format("{}{}\n{}", kHash, hash_of_text(request), request));
}

// The request that the cache was made for; empty when there is none, or a damaged one.
std::string read_request(const fs::path& cache) {
  const fs::path path = cache / kRequestName;
  if (!data::holds_corpus(cache) || !path_exists(path)) return "";
  const std::string content = read_file(path, kMaxListBytes);
  if (content.starts_with(kUnhashed)) return content;
  const std::size_t end = content.find('\n');
  if (!content.starts_with(kHash) || end == std::string::npos) return "";
  std::string request = content.substr(end + 1);
  const bool is_whole = content.substr(kHash.size(), end - kHash.size()) == hash_of_text(request);
  return is_whole ? request : "";
}

enum class Found {
  kNothing,
  kOther,  // tokens of another text, or made in another way
  kWanted
};

Found look(const CorpusOptions& options) {
  const std::string request = read_request(options.cache);
  if (request.empty()) return Found::kNothing;
  const bool with_frame = has_frame(request);  // else its corpus is as older programs made it
  return essence(request, with_frame) == essence(describe_request(options), with_frame)
             ? Found::kWanted
             : Found::kOther;
}

// The tokens of the cache, or why they cannot be used.
struct Opened {
  std::vector<data::Corpus> corpora;  // one, or none
  std::string problem;
  Found found = Found::kNothing;
};

bool is_whole(const fs::path& directory) {
  try {
    const data::Corpus corpus(directory);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged && error.kind() != ErrorKind::kUser) throw;
    return false;
  }
}

Opened open_cached(const CorpusOptions& options, const OpenCorpora& open) {
  const std::string where = options.cache.string();
  Opened opened;
  opened.found = look(options);
  switch (opened.found) {
    case Found::kOther:
      opened.problem =
          fmt::format("the text or a setting of data changed since {} was made", where);
      return opened;
    case Found::kNothing:
      opened.problem = data::holds_corpus(options.cache)
                           ? fmt::format("{} has no {}, which says what its tokens were made of",
                                         where, kRequestName)
                           : fmt::format("there are no tokens in {}", where);
      return opened;
    case Found::kWanted:
      break;
  }
  try {
    opened.corpora = open({options.cache}, options);
    const std::string hash = hash_of(opened.corpora);
    if (options.trained_hash.empty() || hash == options.trained_hash) return opened;
    opened.corpora.clear();
    opened.problem = fmt::format("{} holds other tokens than the run was trained on", where);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged && is_whole(options.cache)) throw;
    opened.problem = data::without_advice(error.what());
  }
  return opened;
}

data::DocumentMode document_mode(const std::string& name) {
  if (name == "file") return data::DocumentMode::kFile;
  if (name == "blank-line") return data::DocumentMode::kBlankLine;
  throw user_error("data.documents is \"{}\"; it must be \"file\" or \"blank-line\"", name);
}

bool is_of_cache(std::string_view name) {
  const std::string_view whole = finished_name(name).value_or(name);
  return whole == kRequestName || whole == kReferences || data::is_corpus_file(name);
}

// Removes what this file put there, and nothing else: the directory may be the user's own.
void remove_cached(const fs::path& directory) {
  if (!path_exists(directory)) return;
  sweep_unfinished(directory, is_of_cache);
  std::vector<fs::path> ours;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_of_cache(name) || entry.path().extension() == ".atsh") {
      ours.push_back(entry.path());
      continue;
    }
    throw user_error(
        "{} is where the run keeps its tokens, and {} there is not atoll's; move it away, or "
        "choose another run.dir",
        directory.string(), name);
  }
  // First what says that the rest is whole.
  for (const char* name : {kRequestName, "corpus.json"}) fs::remove(directory / name);
  for (const fs::path& path : ours) fs::remove(path);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tokenizer tokenizer_of(const CorpusOptions& options) {
  if (!options.tokenizer.empty()) {
    return Tokenizer::load(options.tokenizer).with_special_tokens(options.special_tokens);
  }
  const auto start = std::chrono::steady_clock::now();
  Tokenizer tokenizer =
      make_tokenizer(options.text, options.new_tokenizer, options.vocab_size, options.chat_template,
                     options.special_tokens, options.fields, options.chat);
  log::info("made a new tokenizer ({}) of {} in {:.1f} s", options.new_tokenizer,
            counted(tokenizer.vocab_size(), "token"), seconds_since(start));
  return tokenizer;
}

// Returns the hash of what it made; with another one than options.trained_hash all is as it was.
std::string make_corpus(const CorpusOptions& options, bool as_older_programs = false) {
  Tokenizer tokenizer = tokenizer_of(options);
  if (as_older_programs) {  // these did not look at the files beside it
    tokenizer = Tokenizer::from_bytes(tokenizer.file_content(), tokenizer.file_name(),
                                      options.tokenizer.string());
  }
  const auto start = std::chrono::steady_clock::now();
  const data::TokenizeResult result =
      data::tokenize_corpus({.inputs = options.text,
                             .output = options.cache,
                             .documents = document_mode(options.documents),
                             .held_out = options.held_out,
                             .overwrite = true,
                             .expected_hash = options.trained_hash,
                             .render_chat = chat_renderer(options.chat_template, options.tokenizer,
                                                          tokenizer, options.chat),
                             .fields = options.fields,
                             .pairs = options.pairs,
                             .as_older_programs = as_older_programs},
                            tokenizer, log_progress(std::chrono::seconds(30)));
  log::info("tokenized {} into {}, {} of them held out, in {:.1f} s",
            counted(static_cast<std::int64_t>(result.bytes), "byte"),
            counted(result.train_tokens + result.held_out_tokens, "token"),
            format_count(result.held_out_tokens), seconds_since(start));
  if (const std::string frame = describe_frame(tokenizer);
      !options.tokenizer.empty() && !as_older_programs && !frame.empty()) {
    log::info("{}", frame);
  }
  return result.hash;
}

// Tokens that something was trained on: others never take their place.
void make_proved(const CorpusOptions& options, const std::string& problem, Found found) {
  if (options.trained_hash.empty()) {
    throw user_error(
        "{}, and no checkpoint of the run says which tokens it was trained on; bring {} back from "
        "a "
        "copy, or choose another run.dir",
        problem, options.cache.string());
  }
  if (found == Found::kOther) {
    throw user_error(
        "{}, and the run has checkpoints trained on it; give back the same text and data.* "
        "settings, or choose another run.dir",
        problem);
  }
  log::warning("{}; the tokens are made again of data.text, and compared with the checkpoints'",
               problem);
  const std::string hash = make_corpus(options);
  if (hash == options.trained_hash) return;
  if (!options.tokenizer.empty() && make_corpus(options, true) == options.trained_hash) return;
  throw user_error(
      "{}, and data.text gives other tokens now than those the run was trained on (hash {} against "
      "{}): the text, the tokenizer, the chat template or a setting of data has changed; give back "
      "the same text and data.* settings, or choose another run.dir",
      problem, hash, options.trained_hash);
}

void make_directory(const fs::path& cache) {
  std::error_code error;
  fs::create_directories(cache, error);
  if (!error) return;
  throw user_error("cannot make the directory {}: {}; choose a run.dir that you may write to",
                   cache.string(), error.message());
}

}  // namespace

bool is_cached(const CorpusOptions& options) {
  return look(options) == Found::kWanted;
}

std::vector<data::Corpus> open_or_make(const CorpusOptions& options, const OpenCorpora& open) {
  Opened opened = open_cached(options, open);
  if (!opened.corpora.empty()) return std::move(opened.corpora);
  make_directory(options.cache);
  // Ranks that join may find the same at the same time. Not the cache's own lock, which
  // tokenize_corpus takes.
  const DirectoryLock lock(options.cache.parent_path(), [&] {
    log::info("waiting for another process that makes the tokens in {}", options.cache.string());
  });
  opened = open_cached(options, open);
  if (!opened.corpora.empty()) return std::move(opened.corpora);
  if (options.cache_is_final) {
    make_proved(options, opened.problem, opened.found);
  } else {
    if (opened.found == Found::kWanted) {
      log::warning("{}; the tokens are made again of data.text", opened.problem);
    }
    remove_cached(options.cache);
    make_corpus(options);
  }
  write_request(options);
  return open({options.cache}, options);
}

}  // namespace atl::train
