// What becomes of the tokens in a run's directory when they are damaged, gone or half made.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/train/corpus/corpus.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string lines(int from, int count) {
  std::string text;
  for (int i = from; i < from + count; ++i)
    text += fmt::format("{} times {} is {}.\n", i, i, i * i);
  return text;
}

class CorpusCache : public ::testing::Test {
 protected:
  CorpusCache() {
    std::string pattern = fs::temp_directory_path() / "atoll-cache-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    write_file(root_ / "text.txt", lines(0, 600));
  }
  ~CorpusCache() override { fs::remove_all(root_); }

  CorpusOptions options() const {
    return {.text = {root_ / "text.txt"}, .vocab_size = 300, .cache = root_ / "run/data"};
  }
  // Of a run that has checkpoints of these tokens.
  CorpusOptions trained() const {
    CorpusOptions result = options();
    result.cache_is_final = true;
    result.trained_hash = hash_;
    return result;
  }
  void make() { hash_ = prepare_corpus(options()).hash(); }
  fs::path data() const { return root_ / "run/data"; }
  // The first file whose name begins so.
  fs::path file(const std::string& begin) const {
    for (const auto& entry : fs::directory_iterator(data())) {
      if (entry.path().filename().string().starts_with(begin)) return entry.path();
    }
    ADD_FAILURE() << "no " << begin;
    return {};
  }
  static void flip(const fs::path& path, std::size_t at) {
    std::string content = read_file(path);
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
  }
  static std::string error_of(const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  fs::path root_;
  std::string hash_;
};

// Everything that can be lost or damaged in the directory.
const std::vector<std::pair<const char*, std::function<void(const fs::path&)>>>& harms() {
  static const auto flip_in = [](const std::string& begin, std::size_t at) {
    return [=](const fs::path& data) {
      for (const auto& entry : fs::directory_iterator(data)) {
        if (!entry.path().filename().string().starts_with(begin)) continue;
        std::string content = read_file(entry.path());
        const std::size_t where = std::min(at, content.size() - 1);
        content[where] = static_cast<char>(content[where] ^ 1);
        write_file(entry.path(), content);
      }
    };
  };
  static const auto remove = [](const std::string& begin) {
    return [=](const fs::path& data) {
      std::vector<fs::path> found;
      for (const auto& entry : fs::directory_iterator(data)) {
        if (entry.path().filename().string().starts_with(begin)) found.push_back(entry.path());
      }
      for (const fs::path& path : found) fs::remove(path);
    };
  };
  static const std::vector<std::pair<const char*, std::function<void(const fs::path&)>>> all = {
      {"everything removed", [](const fs::path& data) { fs::remove_all(data); }},
      {"no request", remove("corpus.request")},
      {"no corpus.json", remove("corpus.json")},
      {"no tokenizer", remove("tokenizer.json")},
      {"no training shard", remove("train-")},
      {"no held-out shard", remove("heldout-")},
      {"a shard without magic", flip_in("train-", 0)},
      {"a damaged header", flip_in("train-", 40)},
      {"damaged tokens", flip_in("train-", 2000)},
      {"damaged held-out tokens", flip_in("heldout-", 300)},
      {"a damaged tokenizer", flip_in("tokenizer.json", 100)},
      {"a damaged corpus.json", flip_in("corpus.json", 0)},
      {"an empty request", [](const fs::path& data) { write_file(data / "corpus.request", ""); }},
      {"a damaged request", flip_in("corpus.request", 60)},
      {"a request with a damaged hash", flip_in("corpus.request", 20)},
      {"a cut shard",
       [](const fs::path& data) {
         for (const auto& entry : fs::directory_iterator(data)) {
           if (entry.path().extension() == ".atsh") fs::resize_file(entry.path(), 100);
         }
       }},
  };
  return all;
}

TEST_F(CorpusCache, IsMadeAgainWhateverHappenedToIt) {
  for (const bool is_trained : {false, true}) {
    for (const auto& [what, harm] : harms()) {
      SCOPED_TRACE(fmt::format("{}, {}", what, is_trained ? "trained" : "not trained"));
      make();
      harm(data());
      EXPECT_EQ(prepare_corpus(is_trained ? trained() : options()).hash(), hash_);
      EXPECT_TRUE(is_cached(options()));
      EXPECT_EQ(prepare_corpus(trained()).hash(), hash_);
    }
  }
}

TEST_F(CorpusCache, IsNotReplacedByOtherTokensThanTheRunWasTrainedOn) {
  for (const auto& [what, harm] : harms()) {
    SCOPED_TRACE(what);
    write_file(root_ / "text.txt", lines(0, 600));
    make();
    write_file(root_ / "text.txt", lines(1, 600));
    harm(data());
    EXPECT_THAT(error_of([&] { prepare_corpus(trained()); }),
                AllOf(HasSubstr("give back the same text and data.* settings"),
                      Not(HasSubstr("atoll tokenize"))));
    write_file(root_ / "text.txt", lines(0, 600));
    EXPECT_EQ(prepare_corpus(trained()).hash(), hash_);
  }
}

TEST_F(CorpusCache, OfAnotherTextOrSettingIsRefusedWhenSomethingWasTrained) {
  make();
  CorpusOptions other = trained();
  other.held_out = 0.1;
  EXPECT_THAT(error_of([&] { prepare_corpus(other); }), HasSubstr("changed since"));
  fs::remove(data() / "corpus.request");
  EXPECT_THAT(error_of([&] { prepare_corpus(other); }),
              AllOf(HasSubstr("other tokens"), HasSubstr(hash_)));
  EXPECT_EQ(prepare_corpus(trained()).hash(), hash_);
}

TEST_F(CorpusCache, TakesRequestsOfOlderPrograms) {
  make();
  const std::string request = read_file(data() / "corpus.request");
  write_file(data() / "corpus.request", request.substr(request.find('\n') + 1));
  EXPECT_TRUE(is_cached(options()));
}

// Each of the settings is in the request, and changes what is made.
TEST_F(CorpusCache, KnowsWhatIsLearntOfConversations) {
  std::string rows;
  for (int i = 0; i < 100; ++i) {
    rows += fmt::format(
        R"({{"messages": [{{"role": "user", "content": "{0}<|im_end|>"}}, )"
        R"({{"role": "assistant", "content": "<t>{0}</t>a"}}, {{"role": "user", "content": "b"}}, )"
        R"({{"role": "assistant", "content": "<t>{0}</t>c"}}]}})",
        i);
    rows += '\n';
  }
  write_file(root_ / "chat.jsonl", rows);
  write_file(root_ / "chat.jinja",
             "{% for m in messages %}{{ m.role }}:{{ m.content if loop.last else "
             "m.content.split('</t>')[-1] }}<|im_end|>{% endfor %}"
             "{% if add_generation_prompt %}assistant:{% endif %}");
  CorpusOptions how = {.text = {root_ / "chat.jsonl"},
                       .new_tokenizer = "byte",
                       .special_tokens = {"<|im_end|>"},
                       .chat_template = root_ / "chat.jinja",
                       .cache = root_ / "run/data"};
  std::set<std::string> hashes = {prepare_corpus(how).hash()};
  for (const ChatTraining& chat :
       {ChatTraining{.last_only = true}, {.keep_thinking = true}, {.literal_content = true}}) {
    how.chat = chat;
    EXPECT_FALSE(is_cached(how));
    hashes.insert(prepare_corpus(how).hash());
    EXPECT_TRUE(is_cached(how));
  }
  EXPECT_EQ(hashes.size(), 4U);
}

// A tokenizer whose texts begin with a token, and whose end its neighbour names.
class FramedCorpusCache : public CorpusCache {
 protected:
  FramedCorpusCache() {
    auto json = nlohmann::json::parse(make_byte_tokenizer().to_json());
    json["post_processor"] = nlohmann::json::parse(
        R"({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "A", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"A": {"id": "A", "ids": [65], "tokens": ["A"]}}})");
    fs::create_directory(root_ / "tokenizer");
    write_file(root_ / "tokenizer/tokenizer.json", json.dump());
  }
  CorpusOptions options() const {
    CorpusOptions result = CorpusCache::options();
    result.tokenizer = root_ / "tokenizer";
    return result;
  }
  CorpusOptions trained() const {
    CorpusOptions result = options();
    result.cache_is_final = true;
    result.trained_hash = hash_;
    return result;
  }
  void make() { hash_ = prepare_corpus(options()).hash(); }
  // As programs left it that put the end of text behind a document, and nothing before it.
  void make_as_older_programs() {
    make();
    std::string request = read_file(data() / "corpus.request");
    request.erase(0, request.find('\n') + 1);
    const std::size_t frame = request.find("frame ");
    request.erase(frame, request.find('\n', frame) + 1 - frame);
    const Tokenizer tokenizer = Tokenizer::from_bytes(read_file(root_ / "tokenizer/tokenizer.json"),
                                                      "tokenizer.json", "test");
    hash_ = data::tokenize_corpus({.inputs = {root_ / "text.txt"},
                                   .output = data(),
                                   .overwrite = true,
                                   .as_older_programs = true},
                                  tokenizer)
                .hash;
    write_file(data() / "corpus.request", request);
  }
};

TEST_F(FramedCorpusCache, IsMadeAgainWhenTheEndOfATextIsAnotherToken) {
  const PreparedCorpus before = prepare_corpus(options());
  EXPECT_EQ(before.tokenizer.tokens_before(), std::vector<std::int32_t>{65});
  EXPECT_TRUE(is_cached(options()));
  write_file(root_ / "tokenizer/config.json", R"({"eos_token_id": 66})");
  EXPECT_FALSE(is_cached(options()));
  const PreparedCorpus after = prepare_corpus(options());
  EXPECT_NE(after.hash(), before.hash());
  EXPECT_EQ(after.tokenizer.end_of_text(), 66);
  EXPECT_EQ(Tokenizer::load(data()).end_of_text(), 66);
}

TEST_F(FramedCorpusCache, OfOlderProgramsStaysWhatARunWasTrainedOn) {
  make();
  const std::string now = hash_;
  make_as_older_programs();
  ASSERT_NE(hash_, now);
  write_file(root_ / "tokenizer/config.json", R"({"eos_token_id": 66})");
  EXPECT_TRUE(is_cached(options()));
  const auto end = make_byte_tokenizer().end_of_text();
  const auto expect_unchanged = [&] {
    const PreparedCorpus again = prepare_corpus(trained());
    EXPECT_EQ(again.hash(), hash_);
    EXPECT_EQ(again.tokenizer.end_of_text(), end) << "that of the model's config.json too";
  };
  expect_unchanged();
  for (const auto& [what, harm] : harms()) {
    SCOPED_TRACE(what);
    harm(data());
    expect_unchanged();
    expect_unchanged();
  }
}

TEST_F(CorpusCache, KnowsATextThatWasMoved) {
  make();
  fs::create_directory(root_ / "elsewhere");
  fs::rename(root_ / "text.txt", root_ / "elsewhere/same.txt");
  CorpusOptions moved = trained();
  moved.text = {root_ / "elsewhere"};
  EXPECT_TRUE(is_cached(moved));
  EXPECT_EQ(prepare_corpus(moved).hash(), hash_);
  fs::rename(root_ / "elsewhere/same.txt", root_ / "elsewhere/same.jsonl");
  EXPECT_FALSE(is_cached(moved));  // the same bytes are no text there
}

TEST_F(CorpusCache, GoesOnAfterAKillAtAnyPoint) {
  make();
  const fs::path shard = file("train-").filename();
  fs::remove_all(data());
  const std::vector<std::string> left = {
      shard.string() + ".tmp-1", "heldout-00000-01234567.atsh.tmp-77.1", "tokenizer.json.tmp-1",
      "corpus.json.tmp-1", "corpus.request.tmp-1"};
  for (const std::string& name : left) {
    fs::create_directories(data());
    write_file(data() / name, "half of it");
    EXPECT_EQ(prepare_corpus(options()).hash(), hash_) << name;
    EXPECT_FALSE(fs::exists(data() / name)) << name;
    fs::remove(data() / "corpus.request");
    write_file(data() / name, "half of it");
    EXPECT_EQ(prepare_corpus(trained()).hash(), hash_) << name;
    fs::remove_all(data());
  }
}

TEST_F(CorpusCache, LeavesWhatIsNotAtolls) {
  fs::create_directories(data());
  for (const char* name : {"notes.tmp-1", "train-notes.atsh.tmp", "corpus.json.tmp-mine"}) {
    write_file(data() / name, "mine");
    EXPECT_THAT(error_of([&] { prepare_corpus(options()); }),
                AllOf(HasSubstr(name), HasSubstr("is not atoll's")));
    EXPECT_EQ(read_file(data() / name), "mine");
    fs::remove(data() / name);
  }
}

// Ranks that join make it where they are, possibly several at once.
TEST_F(CorpusCache, IsMadeByOneAndTheOthersWait) {
  make();
  fs::remove_all(data());
  std::vector<std::string> hashes(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& hash : hashes) {
      threads.emplace_back([&] { hash = prepare_corpus(options()).hash(); });
    }
  }
  EXPECT_THAT(hashes, ::testing::Each(hash_));
}

}  // namespace
}  // namespace atl::train
