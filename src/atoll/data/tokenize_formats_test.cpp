// Corpora made of JSONL and of other trainers' token files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/data/bin_tokens.h"
#include "atoll/data/testing.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

using Tokens = std::vector<std::int32_t>;

const Tokenizer& tokenizer() {
  static const Tokenizer trained = [] {
    const std::string_view text = "the answer to the question is the answer that was asked for";
    BpeTrainerOptions options;
    options.vocab_size = 270;
    return train_bpe(std::span(&text, 1), options);
  }();
  return trained;
}

Tokens all_tokens(const TokenSource& source) {
  Tokens tokens(static_cast<std::size_t>(source.num_tokens()));
  source.copy(0, tokens);
  return tokens;
}

// What is trained of a source, as text; the rest as one '_' for each stretch.
std::string trained_text(const TokenSource& source) {
  const Tokens tokens = all_tokens(source);
  std::vector<std::uint8_t> mask(tokens.size());
  source.copy_mask(0, mask);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (mask[i] != 0) {
      text += tokenizer().token_bytes(tokens[i]);
    } else if (text.empty() || text.back() != '_') {
      text += '_';
    }
  }
  return text;
}

class TokenizeFormats : public ::testing::Test {
 protected:
  TokenizeFormats() {
    options_.output = directory_ / "out";
    options_.held_out = 0;
  }
  void write(const char* name, std::string_view content) {
    write_file(directory_ / name, content);
    options_.inputs = {directory_ / name};
  }
  TokenizeResult run() { return tokenize_corpus(options_, tokenizer()); }
  std::string error() {
    return error_of([&] { run(); });
  }

  TemporaryDirectory directory_;
  TokenizeOptions options_;
};

// "u:" and "a:" before what is said, "<|endoftext|>" behind an answer, which is trained with it.
std::vector<RenderedChat> render(std::string_view json, std::string_view /*variables*/) {
  RenderedChat chat;
  std::size_t at = 0;
  while ((at = json.find("\"role\":\"", at)) != std::string_view::npos) {
    const bool assistant = json[at + 8] == 'a';
    const std::size_t begin = json.find("\"content\":\"", at) + 11;
    const std::size_t end = json.find('"', begin);
    chat.text += assistant ? "a:" : "u:";
    const std::size_t from = chat.text.size();
    chat.text += json.substr(begin, end - begin);
    if (assistant) {
      chat.text += "<|endoftext|>";
      chat.trained.emplace_back(from, chat.text.size());
    }
    chat.text += ';';
    at = end;
  }
  if (chat.text.empty()) throw user_error("there is no message");
  return {chat};
}

TEST_F(TokenizeFormats, WhatHasNoTokenIsNamedByItsPlace) {
  const std::string_view letters = "abc\n";
  const Tokenizer chars = make_char_tokenizer(std::span(&letters, 1));
  options_.block_bytes = 16;
  const auto refusal = [&] { return error_of([&] { tokenize_corpus(options_, chars); }); };
  write("a.txt", "abcabcabcabcabc\nabz");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a.txt, from byte 16 on: "), HasSubstr("\"z\""),
                               HasSubstr("at byte 2")));
  write("a.jsonl", "{\"text\": \"abc\"}\n{\"prompt\": \"a\", \"completion\": \"z\"}\n");
  EXPECT_THAT(refusal(), HasSubstr("a.jsonl line 2: the character"));
}

TEST_F(TokenizeFormats, RowsThatTeachNothingAreCounted) {
  options_.render_chat = render;
  const auto row = [](const char* role) {
    return fmt::format(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"was it?\"}}, {{\"role\": \"{}\", "
        "\"content\": \"the answer\"}}]}}\n",
        role);
  };
  write("a.jsonl", row("bot") + row("bot"));
  EXPECT_THAT(error(), AllOf(HasSubstr("none of the 2 rows teaches anything"),
                             HasSubstr("a.jsonl line 1, of the roles user, bot"),
                             HasSubstr("roles=NAME=assistant")));
  write("a.jsonl", row("bot"));
  EXPECT_THAT(error(), HasSubstr("a.jsonl line 1, of the roles user, bot, teaches nothing; "));
  write("a.jsonl", row("assistant") + "\n" + row("bot") + row("user"));
  ::testing::internal::CaptureStderr();
  run();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: 2 of 3 rows teach nothing"),
                    HasSubstr("a.jsonl line 3, of the roles user, bot")));
}

TEST_F(TokenizeFormats, BytesThatNoTextHasAreRefusedByTheirPlace) {
  const auto expect = [&](const std::string& content, const char* place, const char* remedy) {
    write("a.txt", content);
    const auto named = AllOf(HasSubstr("a.txt line "), HasSubstr(place), HasSubstr(remedy));
    EXPECT_THAT(error(), named);
    EXPECT_THAT(error_of([&] { tokenize_in_memory(options_, make_byte_tokenizer()); }), named);
    EXPECT_THAT(error_of([&] { for_each_text(options_, [](std::string_view) {}); }), named);
  };
  using namespace std::string_literals;
  expect("one\ntwo \xff three\n", "line 2 is not UTF-8 (byte 8 of the file)", "iconv");
  expect("caf\xe9", "line 1 is not UTF-8 (byte 3 of the file)", "iconv");
  expect("cut \xe2\x82", "line 1 is not UTF-8 (byte 4 of the file)", "iconv");
  expect("a surrogate \xed\xa0\x80", "line 1 is not UTF-8 (byte 12 of the file)", "iconv");
  expect("one\n\ntwo\0\n"s, "line 3 has a NUL byte (byte 8 of the file)", "take it out");
  expect("a\0b\0 \xff"s, "line 1 has a NUL byte (byte 1 of the file)", "UTF-16");
  expect("\xff \0"s, "line 1 is not UTF-8 (byte 0 of the file)", "iconv");
  write("a.txt", "\xff\xfeo\0n\0e\0"s);
  EXPECT_THAT(error(), AllOf(HasSubstr("a.txt is UTF-16 text"), HasSubstr("iconv -f UTF-16")));
  write("a.txt",
        "gr\xc3\xbc\xc3\x9f"
        "e \xf0\x9f\x98\x80\n\x01\x7f\n");
  EXPECT_EQ(error(), "");
}

TEST_F(TokenizeFormats, AFileWithoutTextIsRefusedAsThat) {
  write("a.jsonl", "{\"text\": \"\"}\n\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("14 bytes"), HasSubstr("no text was among them")));
}

TEST_F(TokenizeFormats, LineOfTextIsADocumentWithLossEverywhere) {
  write("a.jsonl",
        "{\"text\": \"the answer\"}\n{\"text\": \"\"}\n{\"text\": \"was <|endoftext|>\"}\n");
  const TokenizeResult result = run();
  const Corpus corpus(options_.output);
  EXPECT_EQ(result.train_documents, 2);
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_FALSE(corpus.train().has_mask());
  EXPECT_EQ(tokenizer().decode(all_tokens(corpus.train())),
            "the answer<|endoftext|>was <|endoftext|><|endoftext|>");
  const Tokens tokens = all_tokens(corpus.train());
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *tokenizer().end_of_text()), 2);
  EXPECT_EQ(corpus.manifest().sources[0].format, "jsonl");
}

TEST_F(TokenizeFormats, CompletionHasALossAndItsPromptHasNone) {
  write("a.jsonl",
        "{\"prompt\": \"question:\", \"completion\": \" answer\"}\n"
        "{\"text\": \"asked\"}\n"
        "{\"prompt\": \"for\", \"completion\": \"\"}\n");
  run();
  const Corpus corpus(options_.output);
  EXPECT_TRUE(corpus.train().has_mask());
  EXPECT_EQ(trained_text(corpus.train()), "_ answer<|endoftext|>asked<|endoftext|>_<|endoftext|>");
  EXPECT_EQ(corpus.train().document_starts().size(), 3U);
}

TEST_F(TokenizeFormats, TextIsTokenizedWholeAndATokenAcrossTheBorderIsThePrompts) {
  write("a.jsonl", "{\"prompt\": \"the ans\", \"completion\": \"wer was\"}\n");
  run();
  const Corpus corpus(options_.output);
  Tokens whole = tokenizer().encode("the answer was");
  whole.push_back(*tokenizer().end_of_text());
  EXPECT_EQ(all_tokens(corpus.train()), whole);
  ASSERT_EQ(tokenizer().encode(" answer").size(), 1U);  // else this shows nothing
  EXPECT_EQ(trained_text(corpus.train()), "_ was<|endoftext|>");
}

TEST_F(TokenizeFormats, NormalizationThatChangesTheLengthMovesNoLoss) {
  std::string json = tokenizer().to_json();
  ASSERT_EQ(json.find("NFC"), std::string::npos);
  const std::size_t none = json.find("\"normalizer\"");
  if (none != std::string::npos) json.replace(none, json.find(',', none) + 1 - none, "");
  json.insert(json.rfind("\"model\":"), R"("normalizer": {"type": "NFC"}, )");
  const Tokenizer composing = Tokenizer::from_json(json, "test");
  // Each pair of letter and accent becomes one letter of two bytes instead of three.
  const std::string prompt =
      "e\xCC\x81"
      "e\xCC\x81"
      "e\xCC\x81";
  write("a.jsonl",
        fmt::format("{{\"prompt\": \"{}\", \"completion\": \" the answer\"}}\n", prompt));
  tokenize_corpus(options_, composing);
  EXPECT_EQ(trained_text(Corpus(options_.output).train()), "_ the answer<|endoftext|>");
}

TEST_F(TokenizeFormats, NormalizationThatKeepsTheLengthMovesNoLossEither) {
  std::string json = tokenizer().to_json();
  const std::size_t none = json.find("\"normalizer\"");
  if (none != std::string::npos) json.replace(none, json.find(',', none) + 1 - none, "");
  json.insert(json.rfind("\"model\":"),
              R"("normalizer": {"type": "Sequence", "normalizers": [)"
              R"({"type": "Prepend", "prepend": "."},)"
              R"({"type": "Replace", "pattern": {"String": "  "}, "content": " "}]}, )");
  write("a.jsonl", "{\"prompt\": \"xyz\", \"completion\": \"q  r\"}\n");
  tokenize_corpus(options_, Tokenizer::from_json(json, "test"));
  EXPECT_EQ(trained_text(Corpus(options_.output).train()), "_q r<|endoftext|>");
}

// The same tokenizer as published ones are: <|endoftext|> goes before every text, and "!" ends it.
Tokenizer framing(const std::vector<std::string>& after = {}) {
  nlohmann::json json = nlohmann::json::parse(tokenizer().to_json());
  const auto piece = [](const std::string& token) {
    return nlohmann::json{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  };
  nlohmann::json single = {piece("<|endoftext|>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
  nlohmann::json special = nlohmann::json::object();
  for (const std::string& token : after) single.push_back(piece(token));
  for (const char* token : {"<|endoftext|>", "!", "?"}) {
    special[token] = {{"id", token}, {"ids", {*tokenizer().id_of(token)}}, {"tokens", {token}}};
  }
  json["post_processor"] = {
      {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
  const TemporaryDirectory directory;
  write_file(directory / "tokenizer.json", json.dump());
  write_file(directory / "tokenizer_config.json", R"({"eos_token": "!"})");
  return Tokenizer::load(directory.path());
}

TEST_F(TokenizeFormats, DocumentsBeginAndEndAsTheTokenizersTextsDo) {
  options_.render_chat = render;
  options_.documents = DocumentMode::kBlankLine;
  write("a.txt", "the answer\n\nwas\n");
  write("a.jsonl",
        "{\"text\": \"asked\"}\n{\"prompt\": \"for\", \"completion\": \" it\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"is it\"},"
        " {\"role\": \"assistant\", \"content\": \"so\"}]}\n");
  options_.inputs = {directory_ / "a.txt", directory_ / "a.jsonl"};
  tokenize_corpus(options_, framing());
  const Corpus corpus(options_.output);
  EXPECT_EQ(tokenizer().decode(all_tokens(corpus.train())),
            "<|endoftext|>the answer\n!<|endoftext|>was\n!<|endoftext|>asked!"
            "<|endoftext|>for it!u:is it;a:so<|endoftext|>;");
  EXPECT_EQ(trained_text(corpus.train()),
            "<|endoftext|>the answer\n!<|endoftext|>was\n!<|endoftext|>asked!_ it!_so"
            "<|endoftext|>_");
  EXPECT_EQ(corpus.train().document_starts().size(), 5U);
  EXPECT_EQ(all_tokens(tokenize_in_memory(options_, framing())), all_tokens(corpus.train()));
}

TEST_F(TokenizeFormats, WhatTheTokenizerPutsBehindATextStandsThereOnce) {
  write("a.jsonl", "{\"text\": \"asked\"}\n");
  const auto text_of = [&](const std::vector<std::string>& after) {
    return tokenizer().decode(all_tokens(tokenize_in_memory(options_, framing(after))));
  };
  EXPECT_EQ(text_of({"!"}), "<|endoftext|>asked!");
  EXPECT_EQ(text_of({"?"}), "<|endoftext|>asked?!");
}

TEST_F(TokenizeFormats, EveryPieceOfADocumentThatIsCutIsOne) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("the answer to question {:03}\n", i);
  write("a.txt", text);
  options_.held_out = 0.2;
  const TokenizeResult result = tokenize_corpus(options_, framing());
  ASSERT_GT(result.train_documents, 1);
  const Corpus corpus(options_.output);
  for (const TokenSplit* split : {&corpus.train(), &corpus.held_out()}) {
    const Tokens tokens = all_tokens(*split);
    std::vector<std::int64_t> starts = split->document_starts();
    starts.push_back(split->num_tokens());
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      EXPECT_EQ(tokens[static_cast<std::size_t>(starts[i])], *tokenizer().id_of("<|endoftext|>"));
      EXPECT_EQ(tokens[static_cast<std::size_t>(starts[i + 1] - 1)], *tokenizer().id_of("!"));
    }
  }
}

TEST_F(TokenizeFormats, ACorpusSaysWhatStandsRoundItsDocuments) {
  write("a.jsonl", "{\"text\": \"asked\"}\n");
  tokenize_corpus(options_, framing({"?"}));
  const Tokenizer back = Tokenizer::load(options_.output);
  EXPECT_EQ(back.end_of_text(), *tokenizer().id_of("!"));
  EXPECT_EQ(back.tokens_before(), framing().tokens_before());
  EXPECT_EQ(back.tokens_after(), framing({"?"}).tokens_after());
  options_.overwrite = true;
  options_.as_older_programs = true;
  tokenize_corpus(options_, framing({"?"}));
  const Corpus older(options_.output);
  EXPECT_FALSE(older.manifest().frame.has_value());
  EXPECT_EQ(tokenizer().decode(all_tokens(older.train())), "asked!");
}

TEST_F(TokenizeFormats, CorpusCarriesTheTokenizerUnderItsName) {
  write("a.jsonl", "{\"text\": \"asked\"}\n");
  run();
  const Corpus corpus(options_.output);
  EXPECT_EQ(corpus.tokenizer_path(), options_.output / tokenizer().file_name());
  EXPECT_EQ(read_file(corpus.tokenizer_path()), tokenizer().file_content());
  options_.overwrite = true;
  write_file(options_.output / "tokenizer.model", "another");
  EXPECT_THAT(error(), AllOf(HasSubstr("tokenizer.model"), HasSubstr("another tokenizer")));
}

TEST_F(TokenizeFormats, ChatTemplateSaysWhatIsTrainedAndSpellsSpecialTokens) {
  options_.render_chat = render;
  write("a.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"was it?\"},"
        " {\"role\": \"assistant\", \"content\": \"the answer\"},"
        " {\"role\": \"user\", \"content\": \"is it\"},"
        " {\"role\": \"assistant\", \"content\": \"asked\"}]}\n");
  run();
  const Corpus corpus(options_.output);
  EXPECT_EQ(trained_text(corpus.train()), "_the answer<|endoftext|>_asked<|endoftext|>_");
  const Tokens tokens = all_tokens(corpus.train());
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *tokenizer().end_of_text()), 2);
}

TEST_F(TokenizeFormats, SeveralTextsOfAConversationAreDocumentsOnOneSide) {
  options_.render_chat = [](std::string_view, std::string_view) {
    return std::vector<RenderedChat>{{.text = "was", .trained = {{0, 3}}}, {.text = "asked"}};
  };
  const std::string line = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  write("a.jsonl", line + line + line + line);
  options_.held_out = 0.5;
  const TokenizeResult result = run();
  EXPECT_EQ(result.train_documents, 4);
  EXPECT_EQ(result.held_out_documents, 4);
  EXPECT_EQ(trained_text(Corpus(options_.output).train()), "was_was_");
}

TEST_F(TokenizeFormats, SpelledSpecialTokensAreCountedAndMayBeText) {
  const auto rendered = [](std::vector<std::size_t> literal) {
    return [=](std::string_view json, std::string_view) {
      RenderedChat chat{.text = "was<|endoftext|>", .trained = {{0, 3}}};
      if (json.find("endoftext") != std::string_view::npos) {
        chat.spelled = "<|endoftext|>";
        chat.literal = literal;
      }
      return std::vector<RenderedChat>{chat};
    };
  };
  write("a.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<|endoftext|>\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<|endoftext|>\"}]}\n");
  const auto ends = [&] {
    const Tokens tokens = all_tokens(Corpus(options_.output).train());
    return std::count(tokens.begin(), tokens.end(), *tokenizer().end_of_text());
  };
  options_.overwrite = true;
  options_.render_chat = rendered({});
  ::testing::internal::CaptureStderr();
  run();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("2 of 3 conversations spell a special token in a message: first "
                              "\"<|endoftext|>\" in "),
                    HasSubstr("a.jsonl line 2; it becomes that token"),
                    HasSubstr("data.chat_literal_content = true")));
  EXPECT_EQ(ends(), 3);
  options_.render_chat = rendered({3});
  ::testing::internal::CaptureStderr();
  run();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("line 2; it is encoded as text"));
  EXPECT_EQ(ends(), 1);
}

TEST_F(TokenizeFormats, HoldsWholeLinesOut) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += fmt::format("{{\"text\": \"question {:03}\"}}\n", i);
  write("a.jsonl", lines);
  options_.held_out = 0.1;
  const TokenizeResult result = run();
  EXPECT_EQ(result.held_out_documents, 10);
  EXPECT_EQ(result.train_documents, 90);
  options_.held_out = 0.001;
  options_.overwrite = true;
  EXPECT_THAT(error(), HasSubstr("lines of JSONL"));
}

TEST_F(TokenizeFormats, ErrorsNameFileAndLine) {
  write("a.jsonl", "{\"text\": \"a\"}\n\n{\"messages\": []}\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("a.jsonl line 3"), HasSubstr("no chat template")));
  options_.render_chat = render;
  EXPECT_THAT(error(), HasSubstr("a.jsonl line 3: there is no message"));
  options_.render_chat = [](std::string_view, std::string_view) {
    return std::vector<RenderedChat>(1);
  };
  EXPECT_THAT(error(), HasSubstr("writes nothing"));
  EXPECT_FALSE(holds_corpus(options_.output));
}

TEST_F(TokenizeFormats, FindsJsonlInDirectoriesAndReportsProgressToTheLastByte) {
  fs::create_directories(directory_ / "in");
  write("in/b.jsonl", "{\"text\": \"asked\"}\n\n");
  write("in/a.txt", "was");
  write("in/c.bin", "xx");
  options_.inputs = {directory_ / "in"};
  TokenizeProgress last;
  tokenize_corpus(options_, tokenizer(), [&](const TokenizeProgress& now) { last = now; });
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(trained_text(Corpus(options_.output).train()), "was<|endoftext|>asked<|endoftext|>");
}

TEST_F(TokenizeFormats, InMemoryGivesTheSameTokensMaskAndDocuments) {
  write("a.jsonl",
        "{\"prompt\": \"question:\", \"completion\": \" answer\"}\n{\"text\": \"asked\"}\n");
  run();
  const Corpus corpus(options_.output);
  const TokenVector memory = tokenize_in_memory(options_, tokenizer());
  EXPECT_EQ(all_tokens(memory), all_tokens(corpus.train()));
  EXPECT_EQ(memory.document_starts(), corpus.train().document_starts());
  EXPECT_EQ(trained_text(memory), trained_text(corpus.train()));
  std::vector<std::string> texts;
  for_each_text(options_, [&](std::string_view text) { texts.emplace_back(text); });
  EXPECT_THAT(texts, ElementsAre("question: answer", "asked"));
}

TEST_F(TokenizeFormats, MaskSurvivesTheEndsOfShards) {
  write("a.jsonl",
        "{\"prompt\": \"the question: zzz\", \"completion\": \" the answer yyy\"}\n"
        "{\"prompt\": \"qqq\", \"completion\": \"xxx\"}\n");
  run();
  const std::string whole = trained_text(Corpus(options_.output).train());
  for (const std::uint64_t size : {2U, 7U}) {
    options_.output = directory_ / fmt::format("out-{}", size);
    options_.shard_tokens = size;
    run();
    EXPECT_EQ(trained_text(Corpus(options_.output).train()), whole);
  }
}

TEST_F(TokenizeFormats, OpensThroughACache) {
  write("a.jsonl", "{\"prompt\": \"question\", \"completion\": \" answer\"}\n");
  run();
  const ShardCache cache(directory_ / "cache", 1 << 20);
  const Corpus cached(options_.output, &cache);
  EXPECT_EQ(trained_text(cached.train()), trained_text(Corpus(options_.output).train()));
  EXPECT_GT(cache.bytes(), 0U);
  EXPECT_THAT(error_of([&] {
                const ShardCache small(directory_ / "small", 10);
                const Corpus corpus(options_.output, &small);
              }),
              HasSubstr("train-00000"));
}

template <typename Token>
std::string bytes_of(const std::vector<Token>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)};
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::array<std::int32_t, 256> header = {magic, version, count};
  return {reinterpret_cast<const char*>(header.data()), sizeof(header)};
}

TEST_F(TokenizeFormats, NanoGptTokensEndDocumentsWithTheirDelimiter) {
  const auto end = static_cast<std::uint16_t>(*tokenizer().end_of_text());
  write("a.bin", bytes_of<std::uint16_t>({5, 6, end, 7, end, 8}));
  run();
  const Corpus corpus(options_.output);
  EXPECT_THAT(all_tokens(corpus.train()), ElementsAre(5, 6, end, 7, end, 8));
  EXPECT_THAT(corpus.train().document_starts(), ElementsAre(0, 3, 5));
  EXPECT_EQ(corpus.manifest().sources[0].format, "bin");
}

TEST_F(TokenizeFormats, LlmcTokensBeginDocumentsWithTheirDelimiter) {
  const auto end = static_cast<std::uint16_t>(*tokenizer().end_of_text());
  const std::string small = bytes_of<std::uint16_t>({5, end, 6, 7, end, 8});
  const std::string large = bytes_of<std::uint32_t>({5, end, 6, 7, end, 8});
  for (const std::string& content :
       {llmc_header(20240520, 1, 6) + small, llmc_header(20240801, 7, 6) + large}) {
    // Blocks of at most 16 bytes: two, four and eight tokens.
    for (const std::uint64_t block : {16U, 1000U}) {
      write("a.bin", content);
      options_.block_bytes = block;
      options_.overwrite = true;
      const TokenizeResult result = run();
      const Corpus corpus(options_.output);
      EXPECT_THAT(all_tokens(corpus.train()), ElementsAre(5, end, 6, 7, end, 8));
      EXPECT_THAT(corpus.train().document_starts(), ElementsAre(0, 1, 4));
      EXPECT_EQ(result.bytes, content.size());
    }
  }
}

TEST_F(TokenizeFormats, ManyShortDocumentsOfABinFileAreAllThere) {
  // A block is 32,768 tokens: to copy one for each of these documents would take minutes.
  constexpr std::int64_t kDocuments = 3'000'000;
  const auto end = static_cast<std::uint16_t>(*tokenizer().end_of_text());
  write("a.bin", bytes_of(std::vector<std::uint16_t>(kDocuments, end)));
  EXPECT_EQ(run().train_documents, kDocuments);
}

TEST_F(TokenizeFormats, BinFileIsHeldOutInBlocks) {
  std::vector<std::uint16_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.push_back(static_cast<std::uint16_t>(10 + i % 200));
  write("a.bin", bytes_of(tokens));
  options_.held_out = 0.1;
  options_.block_bytes = 40;
  const TokenizeResult result = run();
  EXPECT_EQ(result.held_out_tokens, 100);
  EXPECT_EQ(result.held_out_documents, 5);
  EXPECT_EQ(result.train_tokens, 900);
  EXPECT_EQ(result.train_documents, 6);
}

TEST_F(TokenizeFormats, RefusesATokenFileThatLies) {
  const std::string two = bytes_of<std::uint16_t>({5, 6});
  const auto expect = [&](const std::string& content, const char* what) {
    write("a.bin", content);
    EXPECT_THAT(error(), AllOf(HasSubstr("a.bin"), HasSubstr(what)));
  };
  expect("xyz", "has 3 bytes");
  expect(bytes_of<std::uint16_t>({5, 60000}), "token 60000 at byte 2");
  expect(llmc_header(20240520, 1, 3) + two, "has 3 tokens of 2 bytes, and 4 bytes follow");
  expect(llmc_header(20240520, 1, -1) + two, "has -1 tokens");
  expect(llmc_header(20240520, 1, 2147483647) + two, "has 2147483647 tokens");
  expect(llmc_header(20240520, 2, 2) + two, "version 2");
  expect(llmc_header(20240801, 7, 1) + bytes_of<std::uint32_t>({0xFFFFFFFFU}), "at byte 1024");
  expect(llmc_header(20240520, 1, 2).substr(0, 100), "ends at byte 100");
  write("a.bin", bytes_of<std::uint16_t>({5, 6}));
  EXPECT_THAT(error_of([&] { for_each_text(options_, [](std::string_view) {}); }),
              HasSubstr("holds tokens and no text"));
}

}  // namespace
}  // namespace atl::data
