#include "atoll/data/tokenize.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/log.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/corpus_writer.h"
#include "atoll/data/rows/row_files.h"
#include "atoll/data/text_check.h"
#include "atoll/data/tokenization.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

// Enough blocks that the held-out text is a fair sample, long enough that each reads as text.
constexpr double kHeldOutBlocks = 16;
constexpr double kMinBlockBytes = 1024;
constexpr double kMaxBlockBytes = 65536;

// Of compressed text that a tokenizer is trained on, which has to be in memory.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 32;

void validate(const TokenizeOptions& options) {
  if (!(options.held_out >= 0 && options.held_out <= 0.5)) {
    throw user_error("the held-out fraction must be between 0 and 0.5, not {}", options.held_out);
  }
  if (options.block_bytes != 0 && options.block_bytes < 16) {
    throw user_error("a held-out block must have at least 16 bytes, not {}", options.block_bytes);
  }
  if (options.shard_tokens < 1 || options.shard_tokens > std::uint64_t{1} << 31) {
    throw user_error("a shard must have between 1 and 2147483648 tokens, not {}",
                     options.shard_tokens);
  }
  if (options.output.empty()) throw user_error("no output directory was given");
}

std::uint64_t total_bytes(const std::vector<fs::path>& files, bool as_they_are) {
  std::uint64_t total = 0;
  for (const fs::path& file : files) {
    total += as_they_are ? MappedFile(file).bytes().size() : content_bytes(file);
  }
  if (total == 0) {
    throw user_error("{}{} is empty; there is nothing to tokenize", files.front().string(),
                     files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "");
  }
  return total;
}

std::uint64_t choose_block_bytes(const TokenizeOptions& options, std::uint64_t bytes) {
  if (options.block_bytes != 0) return options.block_bytes;
  const double wanted = static_cast<double>(bytes) * options.held_out / kHeldOutBlocks;
  return static_cast<std::uint64_t>(
      std::clamp(options.held_out > 0 ? wanted : kMaxBlockBytes, kMinBlockBytes, kMaxBlockBytes));
}

void make_directory(const fs::path& directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem) {
    throw user_error("cannot make the directory {}: {}; choose one you may write to",
                     directory.string(), problem.message());
  }
}

void check_output(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (holds_corpus(options.output) && !options.overwrite) {
    throw user_error(
        "{} already holds a corpus; overwrite it (--overwrite), remove it, or choose another "
        "output",
        options.output.string());
  }
  if (!options.expected_hash.empty()) return;  // replaced only by the one that belongs there
  // With a corpus: both files cannot be replaced at once, and the old corpus must stay whole until
  // the new one is. Without one: the file is a model's, or someone's only copy.
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const fs::path old = options.output / name;
    if (!path_exists(old)) continue;
    if (name == tokenizer.file_name() && read_file(old, kMaxListBytes) == tokenizer.file_content())
      continue;
    throw user_error("{} is another tokenizer than the corpus has; {}", old.string(),
                     "move it away, or choose another output");
  }
}

// Documents in memory, all in one split.
class MemorySink final : public DocumentSink {
 public:
  void begin_document(Split /*split*/) override {
    const auto here = static_cast<std::int64_t>(tokens_.size());
    if (starts_.empty() || starts_.back() != here) starts_.push_back(here);
  }
  void append(Split /*split*/, std::span<const std::int32_t> tokens,
              std::span<const std::uint8_t> mask) override {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    if (!mask.empty()) {
      has_mask_ = true;
      mask_.insert(mask_.end(), mask.begin(), mask.end());
    }
    mask_.resize(tokens_.size(), 1);
  }
  TokenVector finish(std::string name) {
    // A document that gave no token has none to begin at.
    if (!starts_.empty() && starts_.back() == static_cast<std::int64_t>(tokens_.size())) {
      starts_.pop_back();
    }
    if (!has_mask_) mask_.clear();
    return {std::move(name), std::move(tokens_), std::move(starts_), std::move(mask_)};
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> starts_;
  std::vector<std::uint8_t> mask_;
  bool has_mask_ = false;
};

// Mapped one at a time: a system allows some 65 thousand mappings, and a corpus can have more
// files.
std::vector<SourceEntry> describe_sources(const std::vector<fs::path>& files) {
  std::vector<SourceEntry> sources;
  for (const fs::path& path : files) {
    const MappedFile file(path);
    const std::span<const std::byte> bytes = file.bytes();
    sources.push_back({path.string(), bytes.size(), to_hex(hash_bytes(bytes.data(), bytes.size())),
                       format_name(input_format(path))});
  }
  return sources;
}

void check_splits(const CorpusWriter& writer, const TokenizeOptions& options, std::uint64_t bytes,
                  std::uint64_t block_bytes) {
  const std::int64_t train = writer.num_tokens(Split::kTrain);
  const std::int64_t held_out = writer.num_tokens(Split::kHeldOut);
  if (train > 0 && (held_out > 0 || options.held_out == 0)) return;
  if (train + held_out == 0) {
    throw user_error("{} bytes were read and no text was among them; give text to tokenize", bytes);
  }
  throw user_error(
      "{} bytes of text, in blocks of {} bytes or lines of JSONL, are too few to hold out {:.3g}%: "
      "{} tokens to train on and {} held out; give more text, or hold out another fraction, 0 for "
      "nothing: data.held_out (--held-out of `atoll tokenize`)",
      bytes, block_bytes, options.held_out * 100, train, held_out);
}

// "12 .md, 1 without an ending": the most frequent first.
std::string describe_endings(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [ending, count] : counts) order.emplace_back(-count, ending);
  std::sort(order.begin(), order.end());
  constexpr std::size_t kShown = 8;
  std::string all;
  std::int64_t more = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [minus_count, ending] = order[i];
    if (i >= kShown) {
      more -= minus_count;
      continue;
    }
    all += fmt::format("{}{} {}", i > 0 ? ", " : "", -minus_count,
                       ending.empty() ? "without an ending" : ending);
  }
  return more > 0 ? fmt::format("{} and {} others", all, more) : all;
}

void tell_of_left_out(const TextFiles& found) {
  for (const std::string& line : found.left_out) log::info("{}", line);
}

}  // namespace

TextFiles find_text_files(const std::vector<fs::path>& inputs) {
  TextFiles result;
  for (const fs::path& input : inputs) {
    if (!path_exists(input)) {
      throw user_error("there is no file or directory {}{}", input.string(),
                       advice_for_absent_text(input));
    }
    if (!directory_exists(input)) {
      result.files.push_back(input);
      continue;
    }
    std::vector<fs::path> found;
    std::map<std::string, std::int64_t> left_out;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(input)) {
      if (!entry.is_regular_file()) continue;
      if (is_searched_for(entry.path())) {
        found.push_back(entry.path());
      } else if (entry.path().filename() != "metrics.jsonl") {
        ++left_out[ending_of(entry.path())];
      }
    }
    const std::string others = describe_endings(left_out);
    if (found.empty()) {
      throw user_error("there is no file to read under {} (of {}){}", input.string(),
                       searched_endings(),
                       others.empty() ? "" : fmt::format(", but {}; name files to read", others));
    }
    if (!others.empty()) {
      result.left_out.push_back(fmt::format(
          "of {} only {} are read, compressed or not; left out: {} (name a file to read it)",
          input.string(), searched_endings(), others));
    }
    std::sort(found.begin(), found.end());
    result.files.insert(result.files.end(), found.begin(), found.end());
  }
  if (result.files.empty()) throw user_error("no text was given to tokenize");
  std::set<fs::path> seen;  // a text given twice could end up in both splits
  for (const fs::path& file : result.files) {
    if (!seen.insert(real_path(file)).second) {
      throw user_error("{} is given twice; name each text once", file.string());
    }
  }
  return result;
}

TokenizeResult tokenize_corpus(const TokenizeOptions& options, const Tokenizer& tokenizer,
                               const std::function<void(const TokenizeProgress&)>& progress) {
  validate(options);
  const TextFiles found = find_text_files(options.inputs);
  const std::vector<fs::path>& files = found.files;
  TokenizeProgress state;
  state.bytes_total = total_bytes(files, options.as_older_programs);
  const std::uint64_t block_bytes = choose_block_bytes(options, state.bytes_total);
  make_directory(options.output);
  const DirectoryLock lock(options.output, "wait for it or choose another output");
  check_output(options, tokenizer);
  tell_of_left_out(found);

  CorpusManifest manifest;
  manifest.tokenizer_file = tokenizer.file_name();
  manifest.vocab_size = static_cast<std::uint64_t>(tokenizer.vocab_size());
  if (!options.as_older_programs) {
    manifest.frame = text::RecordedFrame{tokenizer.end_of_text(), tokenizer.tokens_before(),
                                         tokenizer.tokens_after()};
  }
  manifest.documents = options.documents == DocumentMode::kFile ? "file" : "blank-line";
  manifest.held_out = options.held_out;
  manifest.block_bytes = block_bytes;
  manifest.shard_tokens = options.shard_tokens;
  manifest.sources = describe_sources(files);

  CorpusWriter writer(options.output, tokenizer.file_content(), std::move(manifest));
  Tokenization tokenization(writer, tokenizer, options, block_bytes, state, [&] {
    if (progress) progress(state);
  });
  for (const fs::path& file : files) tokenization.add_file(file);
  tokenization.finish();
  check_splits(writer, options, state.bytes_total, block_bytes);
  writer.finish();
  const std::string hash = to_hex(writer.hash());
  if (options.expected_hash.empty() || hash == options.expected_hash) writer.commit();
  return {state.bytes_total,
          files.size(),
          writer.num_tokens(Split::kTrain),
          writer.num_tokens(Split::kHeldOut),
          writer.num_documents(Split::kTrain),
          writer.num_documents(Split::kHeldOut),
          tokenization.empty_documents(),
          hash};
}

TokenVector tokenize_in_memory(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  TokenizeOptions whole = options;
  whole.held_out = 0;
  const TextFiles found = find_text_files(options.inputs);
  const std::vector<fs::path>& files = found.files;
  tell_of_left_out(found);
  TokenizeProgress state;
  state.bytes_total = total_bytes(files, options.as_older_programs);
  MemorySink sink;
  Tokenization tokenization(sink, tokenizer, whole, choose_block_bytes(whole, state.bytes_total),
                            state, {});
  for (const fs::path& file : files) tokenization.add_file(file);
  tokenization.finish();
  const std::string first = options.inputs.front().string();
  return sink.finish(first + (options.inputs.size() > 1 ? " ..." : ""));
}

void for_each_text(const TokenizeOptions& options,
                   const std::function<void(std::string_view)>& fn) {
  for (const fs::path& path : find_text_files(options.inputs).files) {
    const InputFormat format = input_format(path);
    if (format == InputFormat::kBin) {
      throw user_error("{} holds tokens and no text; give text, or the tokenizer that made it",
                       path.string());
    }
    if (format == InputFormat::kText) {
      check_is_text(path);
      TextWindow window(path);
      window.skip_byte_order_mark();
      // Whole, so that nothing is cut within a word.
      if (window.fill(kMaxTextBytes + 1) && window.compression() != Compression::kNone) {
        throw user_error("{} becomes a text of more than {} GiB; decompress it first",
                         path.string(), kMaxTextBytes >> 30);
      }
      fn(window.view());
      continue;
    }
    for_each_row(path, format, options.fields, [&](const JsonlLine& line) {
      if (line.kind != JsonlKind::kMessages) return fn(line.text);
      for (const RenderedChat& chat : render_line(options, line, path.string())) fn(chat.text);
    });
  }
}

}  // namespace atl::data
