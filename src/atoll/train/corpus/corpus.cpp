#include "atoll/train/corpus/corpus.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <string_view>

#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/input_format.h"
#include "atoll/data/text_check.h"
#include "atoll/data/tokenize.h"
#include "atoll/model_dir/chat.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/progress/tokenize_progress.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

fs::path directory_of(const fs::path& tokenizer) {
  return directory_exists(tokenizer) ? tokenizer : tokenizer.parent_path();
}

// Whether documents begin and end with the same tokens in both.
// Appends what of `text` stands between special tokens: in a rendered conversation these are tokens
// already.
void split_at(std::string_view text, const std::vector<std::string>& special_tokens,
              std::vector<std::string_view>& pieces) {
  for (;;) {
    std::size_t first = std::string_view::npos;
    std::size_t size = 0;
    for (const std::string& token : special_tokens) {
      const std::size_t at = token.empty() ? std::string_view::npos : text.find(token);
      if (at > first || (at == first && token.size() <= size)) continue;
      first = at;
      size = token.size();
    }
    if (first == std::string_view::npos) break;
    if (first > 0) pieces.push_back(text.substr(0, first));
    text.remove_prefix(first + size);
  }
  if (!text.empty()) pieces.push_back(text);
}

}  // namespace

data::RenderChat chat_renderer(const fs::path& chat_template, const fs::path& tokenizer_path,
                               const Tokenizer& tokenizer, const ChatTraining& chat) {
  // Looked for only when there are messages.
  auto found = std::make_shared<std::optional<ChatTemplate>>();
  return [=](std::string_view messages, std::string_view variables) {
    if (!*found) {
      if (chat_template.empty() && tokenizer_path.empty()) {
        throw user_error(
            "messages need a chat template, and a new tokenizer has none: give a Jinja file "
            "(data.chat_template, or --chat-template)");
      }
      *found =
          model_dir::find_chat_template(chat_template, directory_of(tokenizer_path), tokenizer);
      if ((*found)->shows_time()) {
        log::warning(
            "the chat template may write the date (strftime_now): made on another day, the same "
            "messages can give other tokens and another corpus; write a fixed date into it");
      }
    }
    std::vector<data::RenderedChat> chats;
    for (TrainingText& text : (*found)->training_texts(
             parse_messages(messages, "messages"), chat, tokenizer,
             {.add_generation_prompt = false, .variables = std::string(variables), .now = {}})) {
      data::RenderedChat& made = chats.emplace_back();
      made.text = std::move(text.text);
      for (const TextSpan& span : text.trained) made.trained.emplace_back(span.begin, span.end);
      made.literal = std::move(text.literal);
      made.spelled = std::move(text.spelled);
    }
    return chats;
  };
}

std::string describe_frame(const Tokenizer& tokenizer) {
  const auto spelled = [&](const std::vector<std::int32_t>& ids) {
    std::string all;
    for (const std::int32_t id : ids) all += tokenizer.token_bytes(id);
    return all;
  };
  std::vector<std::int32_t> after = tokenizer.tokens_after();
  const auto end = tokenizer.end_of_text();
  if (end && (after.empty() || after.back() != *end)) after.push_back(*end);
  const std::string begins = spelled(tokenizer.tokens_before());
  const std::string ends = spelled(after);
  if (begins.empty() && ends.empty()) return "";
  if (begins.empty()) return fmt::format("documents end with {}", ends);
  if (ends.empty()) return fmt::format("documents begin with {}", begins);
  return fmt::format("documents begin with {} and end with {}", begins, ends);
}

Tokenizer make_tokenizer(const std::vector<fs::path>& text, const std::string& kind,
                         std::int64_t vocab_size, const fs::path& chat_template,
                         const std::vector<std::string>& special_tokens, const data::Fields& fields,
                         const ChatTraining& chat) {
  if (kind == "byte") return make_byte_tokenizer(special_tokens);
  // A template may write the end of text of the tokenizer that is not there yet: a byte tokenizer's
  // is called as a trained one's, and one of characters has none.
  constexpr std::string_view kAnyText = " ";
  const Tokenizer like =
      kind == "char" ? make_char_tokenizer(std::span(&kAnyText, 1)) : make_byte_tokenizer();
  const auto render_chat = chat_renderer(chat_template, {}, like, chat);
  std::deque<MappedFile> files;
  std::deque<std::string> pieces;
  std::vector<std::string_view> texts;
  std::vector<std::string> names;
  for (const fs::path& path : data::find_text_files(text).files) {
    const bool is_text = path.extension() == ".txt" &&
                         data::input_format(path) == data::InputFormat::kText &&
                         data::TextWindow(path).compression() == data::Compression::kNone;
    if (is_text) {
      data::check_is_text(path);
      // In place: a text may be larger than memory.
      const auto bytes = files.emplace_back(path).bytes();
      texts.push_back(
          without_byte_order_mark({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    } else {
      data::for_each_text({.inputs = {path}, .render_chat = render_chat, .fields = fields},
                          [&](std::string_view piece) {
                            split_at(pieces.emplace_back(piece), special_tokens, texts);
                          });
    }
    names.resize(texts.size(), path.string());
  }
  if (kind == "char") return make_char_tokenizer(texts, names, special_tokens);
  BpeTrainerOptions options = {.vocab_size = static_cast<std::int32_t>(vocab_size)};
  for (const std::string& token : special_tokens) {
    if (token != options.special_tokens.front()) options.special_tokens.push_back(token);
  }
  return train_bpe(texts, options);
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

std::string hash_of(const std::vector<data::Corpus>& corpora) {
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

}  // namespace atl::train
