// Rows that compare answers: each becomes two documents, one after the other.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/data/jsonl/preference_rows.h"
#include "atoll/data/pairs/pair_samples.h"
#include "atoll/data/rows/row_files.h"
#include "atoll/data/tokenization.h"

namespace atl::data {

void Tokenization::add_pairs(const std::filesystem::path& file, InputFormat format) {
  const std::uint64_t before = progress_.bytes_done;
  const std::string path = file.string();
  PreferenceReader reader(path, options_.pairs, options_.fields);
  const auto rows =
      open_rows(file, format, [&reader](std::string_view key) { return reader.reads(key); });
  // Of labelled answers the file's last one stands beside its first row's.
  std::optional<PreferenceRow> first;
  PreferenceRow previous;
  while (const auto text = rows->next()) {
    PreferenceRow row;
    row.number = text->number;
    row.unit = rows->unit();
    row.end = text->bytes_done;
    reader.parse(text->json, row);
    ++pairs_;
    if (!row.problem.empty()) {
      skip_pair(row, path, row.problem);
    } else if (options_.pairs == PairKind::kPreferences) {
      add_pair(row, row.second, path);
    } else {
      if (first) add_pair(row, unrelated_answer(row, previous, path), path);
      if (!first) first = row;
      previous = row;
    }
    advance(before + row.end);
  }
  if (first) add_pair(*first, unrelated_answer(*first, previous, path), path);
  const std::uint64_t bytes = rows->content_bytes();
  if (progress_.bytes_done != before + bytes) advance(before + bytes);
}

std::string Tokenization::unrelated_answer(const PreferenceRow& row, const PreferenceRow& other,
                                           const std::string& path) {
  if (row.is_chat == other.is_chat) return other.first;
  throw user_error("{} has a text in {} {} and messages in {} {}; give one kind", path, row.unit,
                   row.is_chat ? other.number : row.number, row.unit,
                   row.is_chat ? row.number : other.number);
}

void Tokenization::add_pair(const PreferenceRow& row, const std::string& second,
                            const std::string& path) {
  std::vector<std::int32_t> tokens[2];
  std::vector<std::uint8_t> masks[2];
  std::size_t bytes = 0;
  const bool has_label = options_.pairs == PairKind::kLabels;
  for (int i = 0; i < 2; ++i) {
    try {
      encode_answer(line_of(row, i == 0 ? row.first : second), path, bytes);
    } catch (const Error& error) {
      const std::string place = fmt::format("{} {} {}", path, row.unit, row.number);
      if (std::string_view(error.what()).starts_with(place)) throw;
      throw Error(error.kind(), fmt::format("{}: {}", place, error.what()));
    }
    if (tokens_.empty()) return skip_pair(row, path, "an answer is empty");
    mark_document(has_label && i == 0 && row.label, mask_);
    if (std::find(mask_.begin() + 1, mask_.end(), 1) == mask_.end()) {
      return skip_pair(row, path, "no token of an answer has a loss");
    }
    tokens[i] = tokens_;
    masks[i] = mask_;
  }
  const Split split = choose_split(bytes);
  for (int i = 0; i < 2; ++i) {
    sink_.begin_document(split);
    sink_.append(split, tokens[i], masks[i]);
    progress_.tokens += tokens[i].size();
  }
}

// Into tokens_ and mask_, which is never empty where there are tokens.
void Tokenization::encode_answer(const JsonlLine& line, const std::string& path,
                                 std::size_t& bytes) {
  tokens_.clear();
  mask_.clear();
  if (line.kind == JsonlKind::kMessages) {
    // Of several texts the last one has all of the answer.
    const RenderedChat chat = render_line(options_, line, path).back();
    bytes += chat.text.size();
    encode_spans(encoder_, tokenizer_, chat.text, chat.trained,
                 {.parse_special = true, .literal = chat.literal}, tokens_, mask_);
    return;
  }
  bytes += line.text.size();
  encode_line(line);
  tokens_.insert(tokens_.begin(), beginning_.begin(), beginning_.end());
  mask_.insert(mask_.begin(), beginning_.size(), 0);
  tokens_.insert(tokens_.end(), ending_.begin(), ending_.end());
  mask_.insert(mask_.end(), ending_.size(), 1);
}

void Tokenization::skip_pair(const PreferenceRow& row, const std::string& path,
                             const std::string& why) {
  if (idle_pairs_++ == 0)
    first_idle_ = fmt::format("{} {} {} ({})", path, row.unit, row.number, why);
}

void Tokenization::finish_pairs() const {
  if (idle_pairs_ == 0) return;
  if (idle_pairs_ == pairs_) {
    throw user_error("none of the {} teaches anything: first {}", counted(pairs_, "pair"),
                     first_idle_);
  }
  log::warning("{} of {} teach nothing: first {}", format_count(idle_pairs_),
               counted(pairs_, "pair"), first_idle_);
}

}  // namespace atl::data
