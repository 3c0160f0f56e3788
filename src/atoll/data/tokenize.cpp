#include "atoll/data/tokenize.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "atoll/base/check.h"
#include "atoll/base/file.h"
#include "atoll/base/lock.h"
#include "atoll/data/corpus_writer.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

// Enough blocks that the held-out text is a fair sample, long enough that each reads as text.
constexpr double kHeldOutBlocks = 16;
constexpr double kMinBlockBytes = 1024;
constexpr double kMaxBlockBytes = 65536;

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

std::uint64_t total_bytes(const std::vector<fs::path>& files) {
  std::uint64_t total = 0;
  for (const fs::path& file : files) total += MappedFile(file).bytes().size();
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
    throw user_error("{} already holds a corpus; overwrite it, remove it, or choose another output",
                     options.output.string());
  }
  // With a corpus: both files cannot be replaced at once, and the old corpus must stay whole until
  // the new one is. Without one: the file is a model's, or someone's only copy.
  const fs::path old = options.output / "tokenizer.json";
  if (fs::exists(old) && read_file(old) != tokenizer.to_json()) {
    throw user_error("{} is another tokenizer than the corpus has; {}", old.string(),
                     "move it away, or choose another output");
  }
}

// Walks the text of a run of tokenize_corpus and writes it.
class Tokenization {
 public:
  Tokenization(CorpusWriter& writer, const Tokenizer& tokenizer, const TokenizeOptions& options,
               std::uint64_t block_bytes, TokenizeProgress& progress)
      : writer_(writer),
        encoder_(tokenizer),
        end_of_text_(tokenizer.end_of_text()),
        stride_(options.held_out),
        block_bytes_(block_bytes),
        progress_(progress) {}

  void add_document(std::string_view text, const std::function<void()>& report) {
    std::optional<Split> split;  // of the block before
    while (!text.empty()) {
      const std::string_view block = text.substr(0, block_length(text, block_bytes_));
      const Split here = stride_.take(block.size()) ? Split::kHeldOut : Split::kTrain;
      if (split != here) {
        if (split) end_document(*split);
        writer_.begin_document(here);
        split = here;
      }
      tokens_.clear();
      encoder_.encode(block, tokens_, {.parse_special = false});
      writer_.append(here, tokens_);
      text.remove_prefix(block.size());
      progress_.tokens += tokens_.size();
      progress_.bytes_done += block.size();
      report();
    }
    if (split) end_document(*split);
  }

 private:
  void end_document(Split split) {
    if (!end_of_text_) return;
    writer_.append(split, std::span(&*end_of_text_, 1));
    ++progress_.tokens;
  }

  CorpusWriter& writer_;
  TokenEncoder encoder_;
  std::optional<std::int32_t> end_of_text_;
  HeldOutStride stride_;
  std::uint64_t block_bytes_;
  TokenizeProgress& progress_;
  std::vector<std::int32_t> tokens_;
};

void check_splits(const CorpusWriter& writer, const TokenizeOptions& options, std::uint64_t bytes,
                  std::uint64_t block_bytes) {
  const std::int64_t train = writer.num_tokens(Split::kTrain);
  const std::int64_t held_out = writer.num_tokens(Split::kHeldOut);
  if (train > 0 && (held_out > 0 || options.held_out == 0)) return;
  throw user_error(
      "{} bytes of text, in blocks of {} bytes, are too few to hold out {:.3g}%: {} tokens to "
      "train "
      "on and {} held out; give more text, a larger fraction, or 0 to hold nothing out",
      bytes, block_bytes, options.held_out * 100, train, held_out);
}

}  // namespace

std::vector<fs::path> find_text_files(const std::vector<fs::path>& inputs) {
  std::vector<fs::path> files;
  for (const fs::path& input : inputs) {
    if (!fs::exists(input)) throw user_error("there is no file or directory {}", input.string());
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(input)) {
      if (entry.is_regular_file() && entry.path().extension() == ".txt") {
        found.push_back(entry.path());
      }
    }
    if (found.empty()) throw user_error("there is no .txt file under {}", input.string());
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  if (files.empty()) throw user_error("no text was given to tokenize");
  std::set<fs::path> seen;  // a text given twice could end up in both splits
  for (const fs::path& file : files) {
    if (!seen.insert(fs::canonical(file)).second) {
      throw user_error("{} is given twice; name each text once", file.string());
    }
  }
  return files;
}

TokenizeResult tokenize_corpus(const TokenizeOptions& options, const Tokenizer& tokenizer,
                               const std::function<void(const TokenizeProgress&)>& progress) {
  validate(options);
  const std::vector<fs::path> files = find_text_files(options.inputs);
  TokenizeProgress state;
  state.bytes_total = total_bytes(files);
  const std::uint64_t block_bytes = choose_block_bytes(options, state.bytes_total);
  make_directory(options.output);
  const DirectoryLock lock(options.output, "wait for it or choose another output");
  check_output(options, tokenizer);

  CorpusManifest manifest;
  manifest.vocab_size = static_cast<std::uint64_t>(tokenizer.vocab_size());
  manifest.documents = options.documents == DocumentMode::kFile ? "file" : "blank-line";
  manifest.held_out = options.held_out;
  manifest.block_bytes = block_bytes;
  manifest.shard_tokens = options.shard_tokens;
  // Mapped one at a time: a system allows some 65 thousand mappings, and a corpus can have more
  // files.
  for (const fs::path& file : files) {
    const MappedFile text(file);
    const std::span<const std::byte> bytes = text.bytes();
    manifest.sources.push_back(
        {file.string(), bytes.size(), to_hex(hash_bytes(bytes.data(), bytes.size()))});
  }

  CorpusWriter writer(options.output, tokenizer.to_json(), std::move(manifest));
  Tokenization tokenization(writer, tokenizer, options, block_bytes, state);
  for (const fs::path& file : files) {
    const MappedFile text(file);
    const std::span<const std::byte> bytes = text.bytes();
    const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for_each_document(content, options.documents, [&](std::string_view document) {
      tokenization.add_document(document, [&] {
        if (progress) progress(state);
      });
    });
  }
  check_splits(writer, options, state.bytes_total, block_bytes);
  writer.commit();
  return {state.bytes_total,
          files.size(),
          writer.num_tokens(Split::kTrain),
          writer.num_tokens(Split::kHeldOut),
          writer.num_documents(Split::kTrain),
          writer.num_documents(Split::kHeldOut)};
}

}  // namespace atl::data
