// data.*: what the model learns from.

#include "atoll/base/error.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

void check_source(const TrainConfig& config, const Settings& s) {
  const bool text = !config.data.text.empty();
  const bool shards = !config.data.shards.empty();
  if (text && shards) {
    throw user_error(
        "{} and {} are both given; a run has one source: empty the other with {}",
        named(s, "data.text"), named(s, "data.shards"),
        s.find("data.shards").origin.starts_with("--") ? "--data.text=" : "--data.shards=");
  }
  if (text || shards || config.rl.is_given()) return;
  throw user_error(
      "no data: give data.text (text files or directories) or data.shards (a directory made by "
      "`atoll tokenize`), e.g. --data.text=book.txt");
}

void check_weights(const TrainConfig& config, const Settings& s) {
  const DataSettings& data = config.data;
  if (data.weights.empty() || data.weights.size() == data.shards.size()) return;
  throw user_error("{} has {} shares for the {} directories of {}; give one for each",
                   named(s, "data.weights"), data.weights.size(), data.shards.size(),
                   named(s, "data.shards"));
}

void check_field_names(const TrainConfig& config, const Settings&) {
  data::check_fields(config.data.fields, "data.fields.");
}

}  // namespace

void add_data(SettingRegistry& settings, TrainConfig& c) {
  DataSettings& d = c.data;
  constexpr const char* kShardsHave = "shards have settled that already";
  settings.group("data",
                 "What the model learns from: `data.text` or `data.shards`. Paths are relative to "
                 "the directory the command is called in.",
                 Scope::kIsland);
  settings.add(
      "data.text", &d.text,
      "Files, or directories searched for them: text (*.txt), rows with text, prompt and "
      "completion, or messages (*.jsonl, Parquet, Arrow, CSV, JSON arrays, tars), these "
      "compressed or not, and token files (*.bin of llm.c and nanoGPT). Tokenized into the "
      "run directory.");
  settings.add("data.shards", &d.shards, "Directories made by `atoll tokenize`.")
      .checked("Either data.text or data.shards.", check_source);
  settings
      .add("data.weights", &d.weights,
           "Shares of the samples that the directories of data.shards give, in their order; empty: "
           "in proportion to their tokens.",
           above(0))
      .fixed()
      .only_with("data.shards", changed("DIRECTORY"))
      .checked("One for each directory of data.shards.", check_weights);
  settings
      .add("data.packing", &d.packing,
           "stream: sequences are cut from the tokens end to end. masked: the same, but attention "
           "does not cross documents and positions restart. documents: whole documents are packed "
           "into sequences, and the rest is padding. Where it is not given, a run whose data has "
           "prompts or conversations takes documents.",
           one_of({"stream", "masked", "documents"}))
      .fixed()
      .settled_by("train.objective", Values({"dpo", "orpo", "kto"}),
                  "each answer that is compared has a sequence of its own");
  settings
      .add("data.tokenizer", &d.tokenizer,
           "tokenizer.json, SentencePiece's tokenizer.model, or a directory that holds one; empty: "
           "the one of model.from, or else a new one is made of data.text.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.new_tokenizer", &d.new_tokenizer,
           "Kind of a new tokenizer: trained byte-level BPE, one token a byte, or one token a "
           "character of data.text.",
           one_of({"bpe", "byte", "char"}))
      .settled_by("data.shards", kShardsHave)
      .settled_by("data.tokenizer", "a tokenizer has its own vocabulary")
      .settled_by("model.from", "a model has its own vocabulary");
  settings
      .add("data.vocab_size", &d.vocab_size, "Tokens of a BPE tokenizer that is trained.",
           between(257, 1 << 20))
      .settled_by("data.shards", kShardsHave)
      .settled_by("data.tokenizer", "a tokenizer has its own vocabulary")
      .settled_by("model.from", "a model has its own vocabulary")
      .settled_by("data.new_tokenizer", {"byte", "char"}, "the text decides its vocabulary");
  settings
      .add("data.special_tokens", &d.special_tokens,
           "Texts that are special tokens, such as those that a chat template marks turns with, "
           "<|im_start|> and <|im_end|>. A new tokenizer has them beside <|endoftext|>; that of "
           "data.tokenizer or model.from gets those that it lacks, and the model of model.from a "
           "row for each in its embedding and head, which begins as the mean of the other rows.")
      .settled_by("data.shards", kShardsHave);
  settings.add(
      "data.chat_template", &d.chat_template,
      "Jinja file that turns messages into text, or the name of one of model.from's templates; "
      "empty: its default. The model carries it, also where data.shards were made with it before.");
  settings
      .add("data.chat_train", &d.chat_train,
           "Answers of a conversation that are learnt: all, or the last one alone.",
           one_of({"all", "last"}))
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.chat_keep_thinking", &d.chat_keep_thinking,
           "Where the chat template leaves the thinking out of earlier answers, each answer is "
           "learnt from a text of its own, which ends with it and has its thinking.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.chat_literal_content", &d.chat_literal_content,
           "Special tokens that a message spells, such as <|im_end|>, are text. Otherwise they "
           "become these tokens, as in transformers.")
      .settled_by("data.shards", kShardsHave);
  data::Fields& f = d.fields;
  settings
      .add("data.fields.text", &f.text,
           "JSON lines: the key that holds a text, or a text with keys in braces, such as "
           "\"{title}\\n\\n{body}\"; {{ and }} are braces.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.prompt", &f.prompt,
           "JSON lines: the same of a prompt, such as \"Question: {question}\\nAnswer:\".")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.completion", &f.completion,
           "JSON lines: the same of what completes the prompt, such as \" {answer}\".")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.chosen", &f.chosen, "JSON lines: the same of the better of two answers.")
      .only_with("train.objective", Values({"dpo", "orpo"}));
  settings.add("data.fields.rejected", &f.rejected, "JSON lines: the same of the worse one.")
      .only_with("train.objective", Values({"dpo", "orpo"}));
  settings
      .add("data.fields.label", &f.label,
           "JSON lines: the key that says whether a completion is good.")
      .only_with("train.objective", Values({"kto"}));
  settings
      .add("data.fields.chat", &f.chat,
           "JSON lines: prompt and completion are messages of a user and the assistant, written "
           "with the chat template.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.messages", &f.messages,
           "JSON lines: the key that holds a conversation; ShareGPT has conversations.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.role", &f.role,
           "JSON lines: the key of a message that says who speaks; ShareGPT has from.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.content", &f.content,
           "JSON lines: the key of a message that holds its text; ShareGPT has value.")
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.fields.roles", &f.roles,
           "JSON lines: who speaks, and what the chat template calls that: [\"human=user\", "
           "\"gpt=assistant\"], which is also meant when it is empty and data.fields.role is from. "
           "Others stay as they are.")
      .settled_by("data.shards", kShardsHave)
      .checked("Keys are not empty; data.fields.messages, role and content name one each.",
               check_field_names);
  settings
      .add("data.held_out", &d.held_out,
           "Fraction of data.text that is kept from training, for evaluation.", between(0, 0.5))
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.documents", &d.documents,
           "What separates documents in data.text: files, or blank lines in them.",
           one_of({"file", "blank-line"}))
      .settled_by("data.shards", kShardsHave);
  settings
      .add("data.cache_dir", &d.cache_dir,
           "Directory on a local disk to copy data.shards to and read them from; empty: read them "
           "where they are.")
      .with_scope(Scope::kHost)
      .only_with("data.shards", changed("DIRECTORY"));
  settings
      .add("data.cache_gib", &d.cache_gib,
           "GiB that data.cache_dir may take; what was used longest ago goes first.", above(0))
      .only_with("data.shards", changed("DIRECTORY"))
      .only_with("data.cache_dir", changed("DIRECTORY"));
}

}  // namespace atl::train
