#include "atoll/data/tokenization.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/file.h"
#include "atoll/base/text_encoding.h"
#include "atoll/data/text_check.h"

namespace atl::data {

namespace fs = std::filesystem;

InputFormat input_format(const fs::path& path) {
  if (path.extension() == ".jsonl") return InputFormat::kJsonl;
  if (path.extension() == ".bin") return InputFormat::kBin;
  return InputFormat::kText;
}

const char* format_name(InputFormat format) {
  switch (format) {
    case InputFormat::kText:
      return "text";
    case InputFormat::kJsonl:
      return "jsonl";
    case InputFormat::kBin:
      return "bin";
  }
  return "?";
}

namespace {

// Does a step; an error of it begins with `where()`.
template <typename Where, typename Step>
void located(Where&& where, Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", where(), error.what()));
  }
}

}  // namespace

RenderedChat render_line(const TokenizeOptions& options, const JsonlLine& line,
                         const std::string& path) {
  if (!options.render_chat) {
    throw user_error("{} line {} has messages, and the tokenizer has no chat template to write {}",
                     path, line.number, "them with; give one");
  }
  RenderedChat chat;
  located([&] { return fmt::format("{} line {}", path, line.number); },
          [&] { chat = options.render_chat(line.text); });
  if (chat.text.empty()) {
    throw user_error("{} line {} has messages that the chat template writes nothing for; {}", path,
                     line.number, "remove the line, or give another template");
  }
  return chat;
}

Tokenization::Tokenization(DocumentSink& sink, const Tokenizer& tokenizer,
                           const TokenizeOptions& options, std::uint64_t block_bytes,
                           TokenizeProgress& progress, std::function<void()> report)
    : sink_(sink),
      tokenizer_(tokenizer),
      options_(options),
      encoder_(tokenizer),
      end_of_text_(tokenizer.end_of_text()),
      stride_(options.held_out),
      block_bytes_(block_bytes),
      progress_(progress),
      report_(std::move(report)) {}

void Tokenization::add_file(const fs::path& path) {
  const InputFormat format = input_format(path);
  if (format == InputFormat::kBin) {
    add_bin(BinTokens(path, tokenizer_));
    return;
  }
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (format == InputFormat::kJsonl) {
    refuse_utf16(path, content);
    add_jsonl(content, path.string());
    return;
  }
  check_is_text(path, content);
  for_each_document(content, options_.documents, [&](std::string_view document) {
    add_text(document, path.string(), static_cast<std::size_t>(document.data() - content.data()));
  });
}

void Tokenization::add_text(std::string_view text, const std::string& path, std::size_t at) {
  std::optional<Split> split;  // of the block before
  const auto finish = [&] {
    if (!split) return;
    tokens_.clear();
    encoder_.encode_part("", /*last=*/true, tokens_);
    append(*split);
    end_document(*split);
  };
  mask_.clear();
  while (!text.empty()) {
    const std::string_view block = text.substr(0, block_length(text, block_bytes_));
    const Split here = choose_split(block.size());
    if (split != here) {
      finish();
      sink_.begin_document(here);
      split = here;
    }
    tokens_.clear();
    located([&] { return fmt::format("{}, from byte {} on", path, at); },
            [&] { encoder_.encode_part(block, /*last=*/false, tokens_); });
    append(here);
    text.remove_prefix(block.size());
    at += block.size();
    advance(progress_.bytes_done + block.size());
  }
  finish();
}

void Tokenization::add_jsonl(std::string_view content, const std::string& path) {
  const std::uint64_t before = progress_.bytes_done;
  for_each_jsonl_line(
      content, path,
      [&](const JsonlLine& line) {
        add_line(line, path);
        advance(before + line.end);
      },
      options_.fields);
  if (progress_.bytes_done != before + content.size()) advance(before + content.size());
}

void Tokenization::add_line(const JsonlLine& line, const std::string& path) {
  if (line.text.empty()) {
    ++empty_documents_;
    return;
  }
  tokens_.clear();
  mask_.clear();
  std::size_t bytes = line.text.size();
  RenderedChat chat;
  if (line.kind == JsonlKind::kMessages) {
    chat = render_line(options_, line, path);
    bytes = chat.text.size();
  }
  located([&] { return fmt::format("{} line {}", path, line.number); },
          [&] { encode_line(line, chat); });
  const Split split = choose_split(bytes);
  sink_.begin_document(split);
  append(split);
  // A chat template writes what ends a conversation itself.
  if (line.kind != JsonlKind::kMessages) end_document(split);
}

void Tokenization::encode_line(const JsonlLine& line, const RenderedChat& chat) {
  const EncodeOptions as_text = {.parse_special = false};
  if (line.kind == JsonlKind::kText) {
    encoder_.encode(line.text, tokens_, as_text);
  } else if (line.kind == JsonlKind::kCompletion) {
    const ByteSpan trained = {line.completion, line.text.size()};
    encode_spans(encoder_, tokenizer_, line.text, std::span(&trained, 1), as_text, tokens_, mask_);
  } else {
    encode_spans(encoder_, tokenizer_, chat.text, chat.trained, {.parse_special = true}, tokens_,
                 mask_);
  }
}

void Tokenization::add_bin(const BinTokens& file) {
  const std::uint64_t block = std::max<std::uint64_t>(1, block_bytes_ / file.token_bytes());
  const std::uint64_t header_bytes = file.delimiter_first() ? 1024 : 0;
  progress_.bytes_done += header_bytes;
  bool within = false;          // a document that the block before did not end
  Split split = Split::kTrain;  // of the block before
  mask_.clear();
  for (std::uint64_t at = 0; at < file.num_tokens();) {
    const std::uint64_t block_end = at + std::min(block, file.num_tokens() - at);
    std::uint64_t end = block_end;
    bool ends = false;
    if (file.delimiter()) {
      const std::uint64_t from = at + (file.delimiter_first() ? 1 : 0);
      if (file.find(*file.delimiter(), at, from) < from) within = false;
      end = file.find(*file.delimiter(), from, block_end);
      ends = end < block_end;
      if (ends && !file.delimiter_first()) ++end;
    }
    tokens_.resize(static_cast<std::size_t>(end - at));
    file.copy(at, tokens_);
    const std::size_t bytes = tokens_.size() * file.token_bytes();
    const Split here = choose_split(bytes);
    if (!within || split != here) sink_.begin_document(here);
    append(here);
    split = here;
    within = !ends;
    at += tokens_.size();
    advance(progress_.bytes_done + bytes);
  }
}

Split Tokenization::choose_split(std::size_t bytes) {
  return stride_.take(bytes) ? Split::kHeldOut : Split::kTrain;
}

void Tokenization::append(Split split) {
  sink_.append(split, tokens_, mask_);
  progress_.tokens += tokens_.size();
}

void Tokenization::end_document(Split split) {
  if (!end_of_text_) return;
  sink_.append(split, std::span(&*end_of_text_, 1), {});
  ++progress_.tokens;
}

void Tokenization::advance(std::uint64_t bytes_done) {
  progress_.bytes_done = bytes_done;
  if (report_) report_();
}

}  // namespace atl::data
