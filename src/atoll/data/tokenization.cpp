#include "atoll/data/tokenization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/rows/row_files.h"
#include "atoll/data/text_check.h"

namespace atl::data {

namespace fs = std::filesystem;

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

bool has_loss(const std::vector<std::uint8_t>& mask) {
  return std::find(mask.begin(), mask.end(), 1) != mask.end();
}

}  // namespace

std::vector<RenderedChat> render_line(const TokenizeOptions& options, const JsonlLine& line,
                                      const std::string& path) {
  if (!options.render_chat) {
    throw user_error("{} has messages, and the tokenizer has no chat template to write {}",
                     line.place(path), "them with; give one");
  }
  std::vector<RenderedChat> chats;
  located([&] { return line.place(path); },
          [&] { chats = options.render_chat(line.text, line.variables); });
  const bool is_empty = std::any_of(chats.begin(), chats.end(),
                                    [](const RenderedChat& chat) { return chat.text.empty(); });
  if (is_empty || chats.empty()) {
    throw user_error("{} has messages that the chat template writes nothing for; {}",
                     line.place(path), "remove the line, or give another template");
  }
  return chats;
}

Tokenization::Tokenization(DocumentSink& sink, const Tokenizer& tokenizer,
                           const TokenizeOptions& options, std::uint64_t block_bytes,
                           TokenizeProgress& progress, std::function<void()> report)
    : sink_(sink),
      tokenizer_(tokenizer),
      options_(options),
      encoder_(tokenizer),
      beginning_(tokenizer.tokens_before()),
      ending_(tokenizer.tokens_after()),
      stride_(options.held_out),
      block_bytes_(block_bytes),
      progress_(progress),
      report_(std::move(report)) {
  if (options.as_older_programs) {
    beginning_.clear();
    ending_.clear();
  }
  const auto end = tokenizer.end_of_text();
  if (end && (ending_.empty() || ending_.back() != *end)) ending_.push_back(*end);
}

void Tokenization::add_file(const fs::path& path) {
  const InputFormat by_name = input_format_by_name(path);
  const InputFormat format = options_.as_older_programs ? by_name : input_format(path);
  if (options_.pairs != PairKind::kNone) {
    if (!has_rows(format)) {
      throw user_error(
          "{} has no rows (JSON lines, Parquet, ...), and preferences are rows of them",
          path.string());
    }
    add_pairs(path, format);
    return;
  }
  if (!has_rows(format)) has_other_documents_ = true;
  if (format == InputFormat::kBin) {
    add_bin(BinTokens(path, tokenizer_));
  } else if (format == InputFormat::kText) {
    add_text_file(path);
  } else {
    add_rows(path, format);
  }
}

void Tokenization::add_text_file(const fs::path& path) {
  TextWindow window(path, options_.as_older_programs ? Decompress::kNever : Decompress::kAlways);
  if (!options_.as_older_programs) {
    check_is_text(path);
    constexpr std::size_t kLookedAt = std::size_t{1} << 20;
    window.fill(kLookedAt);
    const std::string oddity = oddity_of_text(path, window.view().substr(0, kLookedAt));
    if (!oddity.empty()) log::warning("{}", oddity);
    window.skip_byte_order_mark();
    progress_.bytes_done += window.position();
  }
  DocumentStream documents(window, options_.documents);
  while (documents.next()) add_document(documents, window);
}

void Tokenization::add_document(DocumentStream& document, const TextWindow& window) {
  std::optional<Split> split;  // of the block before
  const auto finish = [&] {
    if (!split) return;
    tokens_.clear();
    encoder_.encode_part("", /*last=*/true, tokens_);
    append(*split);
    end_document(*split);
  };
  mask_.clear();
  for (;;) {
    // A byte more than a block: where it ends depends on what follows.
    const std::string_view text = document.front(block_bytes_ + 1);
    if (text.empty()) break;
    const std::string_view block = text.substr(0, block_length(text, block_bytes_));
    const Split here = choose_split(block.size());
    if (split != here) {
      finish();
      begin_document(here, /*has_prompt=*/false);
      split = here;
    }
    tokens_.clear();
    located(
        [&] {
          return fmt::format("{}, from byte {} on", window.path().string(), window.position());
        },
        [&] { encoder_.encode_part(block, /*last=*/false, tokens_); });
    append(here);
    const std::size_t bytes = block.size();
    document.consume(bytes);
    advance(progress_.bytes_done + bytes);
  }
  finish();
}

void Tokenization::add_rows(const fs::path& path, InputFormat format) {
  if (format == InputFormat::kJsonl && input_format_by_name(path) != InputFormat::kJsonl) {
    log::info("{} is read as JSON lines: each line is an object", path.string());
  }
  const std::uint64_t before = progress_.bytes_done;
  const std::string name = path.string();
  const std::uint64_t bytes =
      for_each_row(path, format, options_.fields, [&](const JsonlLine& line) {
        add_line(line, name);
        advance(before + line.end);
      });
  if (progress_.bytes_done != before + bytes) advance(before + bytes);
}

void Tokenization::add_line(const JsonlLine& line, const std::string& path) {
  if (line.text.empty()) {
    ++empty_documents_;
    return;
  }
  if (*line.mapping != '\0' && told_.insert(line.mapping).second) {
    log::info("{} and rows like it are read as those of {}", line.place(path), line.mapping);
  }
  if (line.kind == JsonlKind::kMessages) {
    add_messages(line, path);
    return;
  }
  tokens_.clear();
  mask_.clear();
  located([&] { return line.place(path); }, [&] { encode_line(line); });
  const bool is_completion = line.kind == JsonlKind::kCompletion;
  // Behind a prompt and completion the end of text has a loss, where there is one.
  count_loss(line, path, mask_.empty() || (is_completion && !ending_.empty()) || has_loss(mask_));
  const Split split = choose_split(line.text.size());
  begin_document(split, is_completion);
  append(split);
  end_document(split);
}

void Tokenization::add_messages(const JsonlLine& line, const std::string& path) {
  const std::vector<RenderedChat> chats = render_line(options_, line, path);
  std::size_t bytes = 0;
  for (const RenderedChat& chat : chats) bytes += chat.text.size();
  // Texts of one conversation are on the same side: they share words.
  const Split split = choose_split(bytes);
  bool learns = false;
  for (const RenderedChat& chat : chats) {
    tokens_.clear();
    mask_.clear();
    located([&] { return line.place(path); },
            [&] {
              encode_spans(encoder_, tokenizer_, chat.text, chat.trained,
                           {.parse_special = true, .literal = chat.literal}, tokens_, mask_);
            });
    learns |= has_loss(mask_);
    // A chat template writes what begins and ends a conversation itself.
    sink_.begin_document(split);
    append(split);
  }
  count_loss(line, path, learns);
  count_spelled(line, path, chats.back());
}

namespace {

// The roles of messages, in their order, each once.
std::vector<std::string> roles_of(const std::string& messages) {
  const auto json = nlohmann::json::parse(messages, nullptr, false);
  std::vector<std::string> roles;
  for (const auto& message : json) {
    const auto role = message.is_object() ? message.value("role", nlohmann::json()) : message;
    if (!role.is_string()) continue;
    const auto name = role.get<std::string>();
    if (std::find(roles.begin(), roles.end(), name) == roles.end()) roles.push_back(name);
  }
  return roles;
}

}  // namespace

void Tokenization::count_loss(const JsonlLine& line, const std::string& path, bool has_loss) {
  ++rows_;
  if (has_loss) return;
  if (rows_without_loss_++ > 0) return;
  first_without_loss_ = line.place(path);
  remedy_ = "its completion is empty";
  if (line.kind != JsonlKind::kMessages) return;
  const std::vector<std::string> roles = roles_of(line.text);
  first_without_loss_ += fmt::format(", of the roles {}", fmt::join(roles, ", "));
  remedy_ = std::find(roles.begin(), roles.end(), "assistant") != roles.end()
                ? "what the assistant says there is empty, or has no loss by its \"weight\" or "
                  "\"train\""
                : "what is learnt is what \"assistant\" says; for another name of it give --field "
                  "roles=NAME=assistant (data.fields.roles in a recipe)";
}

void Tokenization::count_spelled(const JsonlLine& line, const std::string& path,
                                 const RenderedChat& chat) {
  ++conversations_;
  if (chat.spelled.empty() || spelling_++ > 0) return;
  const char* result = chat.literal.empty()
                           ? "becomes that token, as in transformers; data.chat_literal_content = "
                             "true (--chat-literal-content) makes it text"
                           : "is encoded as text (data.chat_literal_content)";
  first_spelling_ = fmt::format("\"{}\" in {}; it {}", chat.spelled, line.place(path), result);
}

void Tokenization::finish() const {
  finish_pairs();
  if (spelling_ > 0) {
    log::warning("{} of {} spell a special token in a message: first {}", format_count(spelling_),
                 counted(conversations_, "conversation"), first_spelling_);
  }
  if (rows_without_loss_ == 0) return;
  if (rows_without_loss_ == rows_ && !has_other_documents_) {
    if (rows_ == 1) throw user_error("{}, teaches nothing; {}", first_without_loss_, remedy_);
    throw user_error("none of the {} teaches anything: first {}; {}", counted(rows_, "row"),
                     first_without_loss_, remedy_);
  }
  log::warning("{} of {} teach nothing, for no token of them has a loss: first {}; {}",
               format_count(rows_without_loss_), counted(rows_, "row"), first_without_loss_,
               remedy_);
}

void Tokenization::encode_line(const JsonlLine& line) {
  const EncodeOptions as_text = {.parse_special = false};
  if (line.kind == JsonlKind::kText) {
    encoder_.encode(line.text, tokens_, as_text);
  } else {
    const ByteSpan trained = {line.completion, line.text.size()};
    encode_spans(encoder_, tokenizer_, line.text, std::span(&trained, 1), as_text, tokens_, mask_);
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

void Tokenization::begin_document(Split split, bool has_prompt) {
  sink_.begin_document(split);
  if (beginning_.empty()) return;
  const std::vector<std::uint8_t> no_loss(has_prompt ? beginning_.size() : 0);
  sink_.append(split, beginning_, no_loss);
  progress_.tokens += beginning_.size();
}

void Tokenization::end_document(Split split) {
  if (ending_.empty()) return;
  sink_.append(split, ending_, {});
  progress_.tokens += ending_.size();
}

void Tokenization::advance(std::uint64_t bytes_done) {
  progress_.bytes_done = bytes_done;
  if (report_) report_();
}

}  // namespace atl::data
