#include <unistd.h>

#include <algorithm>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/terminal.h"
#include "atoll/cli/commands.h"
#include "atoll/data/input_format.h"
#include "atoll/data/tokenize.h"
#include "atoll/hub/dataset.h"
#include "atoll/hub/model.h"
#include "atoll/model_dir/chat.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/progress/tokenize_progress.h"

namespace atl::cli {

namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::string new_tokenizer = "bpe";
  std::string chat_template;
  std::string chat_train = "all";
  ChatTraining chat;
  std::vector<std::string> special_tokens;
  std::vector<std::string> fields;
  std::int64_t vocab_size = 4096;
  data::TokenizeOptions tokenize;
  bool blank_line = false;
};

void show_progress(const data::TokenizeProgress& progress) {
  const double percent = progress.bytes_total == 0
                             ? 100.0
                             : 100.0 * static_cast<double>(progress.bytes_done) /
                                   static_cast<double>(progress.bytes_total);
  const auto columns = static_cast<std::size_t>(std::max(1, terminal_columns(STDERR_FILENO) - 1));
  const std::string line = fmt::format(
      "{:.0f}%  {}", percent, counted(static_cast<std::int64_t>(progress.tokens), "token"));
  put_error(fmt::format("\r{}\x1b[K", line.substr(0, columns)));
}

int run(Options& options) {
  data::TokenizeOptions& tokenize = options.tokenize;
  tokenize.inputs = hub::local_texts({options.inputs.begin(), options.inputs.end()},
                                     data::is_searched_for_by_name);
  options.tokenizer = hub::local_tokenizer(options.tokenizer);
  tokenize.output = options.output;
  if (options.blank_line) tokenize.documents = data::DocumentMode::kBlankLine;
  for (const std::string& field : options.fields) {
    data::set_field(tokenize.fields, field, "--field");
  }
  options.chat.last_only = options.chat_train == "last";
  const Tokenizer tokenizer =
      options.tokenizer.empty()
          ? train::make_tokenizer(tokenize.inputs, options.new_tokenizer, options.vocab_size,
                                  options.chat_template, options.special_tokens, tokenize.fields,
                                  options.chat)
          : Tokenizer::load(options.tokenizer);
  if (!options.chat_template.empty()) {
    const ChatTemplate chat = model_dir::find_chat_template(options.chat_template, {}, tokenizer);
    const std::string problem = model_dir::problem_of(model_dir::end_of_turn(chat, tokenizer));
    if (!problem.empty()) log::warning("{}", problem);
  }
  tokenize.render_chat =
      train::chat_renderer(options.chat_template, options.tokenizer, tokenizer, options.chat);
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  std::function<void(const data::TokenizeProgress&)> progress = show_progress;
  if (!terminal) progress = train::log_progress(std::chrono::seconds(30));
  const data::TokenizeResult result = data::tokenize_corpus(tokenize, tokenizer, progress);
  if (terminal) put_error("\r\x1b[K");
  const std::int64_t tokens = result.train_tokens + result.held_out_tokens;
  fmt::print(
      "{}: {}, {}\n  {} in {}\n  {} in {}\n  vocabulary {}, {:.2f} bytes a token\n", options.output,
      counted(static_cast<std::int64_t>(result.num_files), "file"),
      counted(static_cast<std::int64_t>(result.bytes), "byte"),
      counted(result.train_tokens, "training token"), counted(result.train_documents, "document"),
      counted(result.held_out_tokens, "held-out token"),
      counted(result.held_out_documents, "document"), tokenizer.vocab_size(),
      static_cast<double>(result.bytes) / static_cast<double>(std::max<std::int64_t>(tokens, 1)));
  if (const std::string frame = train::describe_frame(tokenizer);
      !options.tokenizer.empty() && !frame.empty()) {
    fmt::print("  {}\n", frame);
  }
  return 0;
}

Action add(ArgumentParser& parser) {
  auto options = std::make_shared<Options>();  // lives as long as the parser and the action
  parser
      .add_option(
          "text", options->inputs,
          "Text, rows (*.jsonl, Parquet, Arrow, CSV, JSON arrays, tars), these compressed or "
          "not, and token *.bin files, directories searched for all but the last, or "
          "hf://datasets/ORG/NAME")
      .required();
  parser.add_option("-o,--out", options->output, "Directory to make").required();
  const Argument tokenizer = parser.add_option(
      "--tokenizer", options->tokenizer,
      "tokenizer.json, tokenizer.model, or a directory that holds one; else a new one is made");
  parser
      .add_option("--new-tokenizer", options->new_tokenizer,
                  "Kind of a new tokenizer: trained BPE, one token a byte, one token a character")
      .show_default()
      .one_of({"bpe", "byte", "char"})
      .excludes(tokenizer);
  parser.add_option("--chat-template", options->chat_template,
                    "Jinja file for messages; else the one beside the tokenizer");
  parser
      .add_option("--chat-train", options->chat_train,
                  "Answers of a conversation that are learnt: all, or the last one alone")
      .show_default()
      .one_of({"all", "last"});
  parser.add_flag("--chat-keep-thinking", options->chat.keep_thinking,
                  "Each answer has a text of its own where the template takes its thinking out "
                  "of longer ones");
  parser.add_flag("--chat-literal-content", options->chat.literal_content,
                  "Special tokens that a message spells are text");
  parser.add_option("--vocab-size", options->vocab_size, "Tokens of a tokenizer that is trained")
      .show_default()
      .range(257, 1 << 20)
      .excludes(tokenizer);
  parser
      .add_option(
          "--special-token", options->special_tokens,
          "Text that is a special token of a new tokenizer, such as <|im_end|>; several times")
      .one_value_each()
      .excludes(tokenizer);
  parser
      .add_option(
          "--field", options->fields,
          "FIELD=KEY, such as prompt=question: what a key of JSONL is called; several times")
      .one_value_each();
  parser.add_flag("--chat", options->tokenize.fields.chat,
                  "Prompts and completions of JSONL are messages, written with the chat template");
  parser.add_option("--held-out", options->tokenize.held_out, "Fraction kept from training")
      .show_default()
      .range(0.0, 0.5);
  parser.add_option("--shard-tokens", options->tokenize.shard_tokens, "Tokens in a shard, at most")
      .show_default()
      .range(std::int64_t{1}, std::int64_t{1} << 31);
  parser.add_flag("--blank-line", options->blank_line,
                  "Blank lines separate documents, not only ends of files");
  parser.add_flag("--overwrite", options->tokenize.overwrite, "Replace a corpus that is there");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command tokenize_command() {
  return {.name = "tokenize",
          .summary = "Turn text into shards of tokens for data.shards.",
          .example =
              "  atoll tokenize books/ --out corpus --vocab-size 8192\n"
              "  atoll train --data.shards=corpus --run.dir=runs/books",
          .add = add};
}

}  // namespace atl::cli
