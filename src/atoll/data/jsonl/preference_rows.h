#pragma once

// Rows that compare answers: pairs of a chosen and a rejected one, or labelled ones.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/data/fields.h"
#include "atoll/data/jsonl/jsonl_line.h"

namespace atl::data {

/// What the lines of a file compare.
enum class PairKind {
  kNone,         ///< nothing: lines of other kinds (JsonlKind)
  kPreferences,  ///< {"prompt": ..., "chosen": ..., "rejected": ...}; without a prompt, what both
                 ///< answers begin with is the prompt
  kLabels,       ///< {"prompt": ..., "completion": ..., "label": true or false}
};

/// A line that compares answers. A prompt and its answers are texts, or all JSON arrays of
/// messages.
struct PreferenceRow {
  bool is_chat = false;
  std::string prompt;
  std::string first;          ///< the chosen answer, or the one with the label
  std::string second;         ///< the rejected answer; of kLabels empty
  bool label = false;         ///< of kLabels
  std::string variables;      ///< for the chat template: a JSON object, or empty
  std::string problem;        ///< why the line teaches nothing; empty: it teaches something
  std::int64_t number = 0;    ///< from 1
  const char* unit = "line";  ///< what is counted: lines, rows of a table, samples of an archive
  std::uint64_t end = 0;      ///< the bytes of the file up to its end, that of the line included
};

/// Reads JSON objects as rows that compare answers.
class PreferenceReader {
 public:
  /// Of the file `path`, for messages. `fields` must outlive this. Throws Error(kUser) for fields
  /// that are malformed.
  PreferenceReader(std::string path, PairKind kind, const Fields& fields);
  ~PreferenceReader();
  PreferenceReader(const PreferenceReader&) = delete;
  PreferenceReader& operator=(const PreferenceReader&) = delete;

  /// Fills `row` but for its number, unit and end, which are those of the row that is read. Throws
  /// as for_each_preference_row().
  void parse(std::string_view json, PreferenceRow& row);
  /// Whether rows are looked at for that key; others need not be there.
  bool reads(std::string_view key) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Calls fn for each line that is not blank. Throws Error(kUser) naming `path` and the line for one
/// that is not JSON, not UTF-8, not an object, or has a value of another type; a line without an
/// answer, or with two equal ones, is a PreferenceRow with a problem.
void for_each_preference_row(std::string_view content, const std::string& path, PairKind kind,
                             const std::function<void(const PreferenceRow&)>& fn,
                             const Fields& fields = {});

/// The line that a prompt and one of its answers would be by itself: what is learnt is the answer.
JsonlLine line_of(const PreferenceRow& row, const std::string& answer);

}  // namespace atl::data
