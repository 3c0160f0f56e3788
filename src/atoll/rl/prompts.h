#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::rl {

/// A row of the prompts that a run learns from.
struct Prompt {
  std::vector<std::int32_t> tokens;   ///< what the model is given
  std::optional<std::string> answer;  ///< the row's "answer": a text, or a number as JSON has it
  std::string row;                    ///< the whole row as JSON, for a program
  std::string origin;                 ///< "prompts.jsonl, line 12", for messages
};

/// How rows become prompts.
struct PromptOptions {
  const Tokenizer* tokenizer = nullptr;
  /// Called for the first row that has messages; throws Error(kUser) where there is no template.
  std::function<ChatTemplate()> chat;
  std::int64_t max_tokens = 0;  ///< of a prompt
};

/// Reads JSONL files: "prompt" is a text, which is continued as it is, or a list of messages, which
/// go through the chat template, as does "messages". Blank lines are left out. Throws Error(kUser)
/// naming file and line for what is no such row or is longer than max_tokens, and for files without
/// any row.
std::vector<Prompt> read_prompts(const std::vector<std::filesystem::path>& files,
                                 const PromptOptions& options);

/// Which prompts a step takes: a pure function of (seed, number of prompts, place). Each epoch goes
/// through all prompts once, in an order of its own.
class PromptOrder {
 public:
  PromptOrder(std::uint64_t seed, std::int64_t num_prompts);
  /// The prompt at a place of the run's order, from 0 on without end.
  std::int64_t at(std::int64_t place);

 private:
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;  // of epoch_
};

}  // namespace atl::rl
