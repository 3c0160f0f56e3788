// Whole runs of a tiny model: what must repeat bitwise, and what must survive.

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "atoll/metrics/finished.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(TrainerTest, LearnsTheText) {
  const TrainOutcome outcome = train("run", {"--train.steps=60", "--optim.lr=0.01"});
  ASSERT_TRUE(outcome.held_out.has_value());
  // 300 tokens at random cost 5.7 nats; eleven equally likely words, ln 11 = 2.4 a word.
  EXPECT_LT(outcome.held_out->loss, 3.0);
  EXPECT_GT(outcome.held_out->loss, 1.0);
}

TEST_F(TrainerTest, FiftyAndFiftyStepsEqualAHundred) {
  const std::vector<std::string> hundred = {"--train.steps=100"};
  const TrainOutcome whole = train("whole", hundred);
  const TrainOutcome half = train("halves", hundred, 50);
  EXPECT_EQ(half.signal, SIGTERM);
  EXPECT_EQ(half.step, 50);
  EXPECT_FALSE(half.held_out.has_value());
  EXPECT_EQ(metrics::finished_step(root_ / "halves"), -1);
  const TrainOutcome rest = train("halves", hundred);
  EXPECT_EQ(rest.step, 100);
  EXPECT_EQ(metrics::finished_step(root_ / "halves"), 100);
  EXPECT_EQ(tensors(rest.checkpoint), tensors(whole.checkpoint));
  EXPECT_EQ(rest.held_out->loss, whole.held_out->loss);
  // And the log reads as if nothing had happened.
  const auto log = metrics::read_jsonl(root_ / "halves" / "metrics.jsonl");
  ASSERT_EQ(log.size(), 101U);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(log[i].step, static_cast<std::int64_t>(i) + 1);
}

TEST_F(TrainerTest, ARunHasFinishedWhenNothingIsLeftToDo) {
  EXPECT_EQ(train("run", {"--train.stop_after=5"}).step, 5);
  EXPECT_EQ(metrics::finished_step(root_ / "run"), -1);
  // No loss is lower than this by so much.
  const TrainOutcome early =
      train("run", {"--train.early_stop=1", "--train.early_stop_delta=100", "--eval.every=1"});
  EXPECT_LT(early.step, 20);
  EXPECT_EQ(metrics::finished_step(root_ / "run"), early.step);
}

TEST_F(TrainerTest, SameSeedSameBitsWhateverTheThreads) {
  const std::string two = tensors(train("a").checkpoint);
  EXPECT_EQ(tensors(train("b").checkpoint), two);
  EXPECT_EQ(tensors(train("c", {"--device.threads=1"}).checkpoint), two);
  EXPECT_EQ(tensors(train("d", {"--device.threads=3"}).checkpoint), two);
  EXPECT_EQ(tensors(train("e", {"--train.recompute=full"}).checkpoint), two);
  EXPECT_NE(tensors(train("f", {"--run.seed=2"}).checkpoint), two);
}

TEST_F(TrainerTest, AFinishedRunIsEvaluatedAgainAndNotTrained) {
  const TrainOutcome first = train("run");
  const std::string before = tensors(first.checkpoint);
  const TrainOutcome again = train("run");
  EXPECT_EQ(again.step, 20);
  EXPECT_EQ(again.checkpoint, first.checkpoint);
  EXPECT_EQ(again.held_out->loss, first.held_out->loss);
  EXPECT_EQ(tensors(again.checkpoint), before);
  EXPECT_EQ(metrics::read_jsonl(root_ / "run" / "metrics.jsonl").size(), 21U);
}

TEST_F(TrainerTest, KeepsTheNewestCheckpoints) {
  train("run", {"--checkpoint.every=5", "--checkpoint.keep=3"});
  EXPECT_EQ(ckpt::checkpoint_steps(root_ / "run" / "checkpoints"),
            (std::vector<std::int64_t>{10, 15, 20}));
}

TEST_F(TrainerTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  const TrainOutcome whole = train("run", {"--checkpoint.every=10"});
  const std::string expected = tensors(whole.checkpoint);
  std::string bytes = read_file(whole.checkpoint / "model.safetensors");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(whole.checkpoint / "model.safetensors", bytes);
  const TrainOutcome again = train("run", {"--checkpoint.every=10"});
  EXPECT_EQ(tensors(again.checkpoint), expected) << "steps 11 to 20 were taken again";
}

TEST_F(TrainerTest, ADamagedCheckpointDoesNotStopTheNextOnesFromBeingSaved) {
  const TrainOutcome half = train("run", {"--checkpoint.every=5"}, 10);
  std::string bytes = read_file(half.checkpoint / "optimizer.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(half.checkpoint / "optimizer.safetensors", bytes);
  const TrainOutcome whole = train("run", {"--checkpoint.every=1"});
  EXPECT_EQ(whole.step, 20);
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "damaged-step-00000010"));
}

TEST_F(TrainerTest, NeverRemovesWhatIsNotItsOwn) {
  fs::create_directories(root_ / "run" / "data");
  write_file(root_ / "run" / "data" / "notes.md", "precious");
  EXPECT_THAT(error_of([&] { train("run"); }, ErrorKind::kUser),
              AllOf(HasSubstr("notes.md"), HasSubstr("another run.dir")));
  EXPECT_EQ(read_file(root_ / "run" / "data" / "notes.md"), "precious");
  // A run directory beside its text, which is a directory too.
  fs::create_directories(root_ / "books");
  fs::rename(root_ / "text.txt", root_ / "books" / "a.txt");
  const std::vector<std::string> books = {"--data.text=" + (root_ / "books").string()};
  train("books", books);
  EXPECT_EQ(train("books", books).step, 20);
  EXPECT_TRUE(fs::exists(root_ / "books" / "a.txt"));
}

TEST_F(TrainerTest, AFullDiskLosesNothingThatWasSaved) {
  train("run", {"--train.steps=20"}, 10);
  for (const auto call : {io_fault::Call::kOpen, io_fault::Call::kWrite, io_fault::Call::kSync,
                          io_fault::Call::kRename}) {
    const std::string message = error_of(
        [&] {
          io_fault::arm(call, 4, ENOSPC);  // settings.toml is the first, then a checkpoint's files
          train("run", {"--train.steps=20", "--checkpoint.every=2", "--log.every=100"});
        },
        ErrorKind::kIo);
    io_fault::disarm();
    EXPECT_THAT(message, HasSubstr("No space left on device"));
    const auto newest = ckpt::newest_verified(root_ / "run" / "checkpoints");
    ASSERT_TRUE(newest.has_value());
    EXPECT_GE(newest->step, 10);
  }
  const TrainOutcome whole = train("whole", {"--train.steps=20"});
  EXPECT_EQ(tensors(train("run", {"--train.steps=20"}).checkpoint), tensors(whole.checkpoint));
}

TEST_F(TrainerTest, RefusesToGoOnWithOtherDataOrOrder) {
  train("run");
  EXPECT_THAT(error_of([&] { train("run", {"--run.seed=2"}); }, ErrorKind::kUser),
              AllOf(HasSubstr("run.seed is 2 and was 1"), HasSubstr("another run.dir")));
  EXPECT_THAT(error_of([&] { train("run", {"--train.batch_size=8"}); }, ErrorKind::kUser),
              HasSubstr("train.batch_size is 8 and was 4"));
  EXPECT_THAT(error_of([&] { train("run", {"--train.steps=10"}); }, ErrorKind::kUser),
              HasSubstr("has taken 20 steps already, and train.steps is 10"));
  EXPECT_THAT(error_of(
                  [&] {
                    train("b", {"--data.held_out=0", "--eval.every=5"});
                  },
                  ErrorKind::kUser),
              HasSubstr("no text is held out"));
  EXPECT_THAT(error_of([&] { train("run", {"--model.hidden_size=64"}); }, ErrorKind::kUser),
              HasSubstr("another model"));
  write_text(root_ / "text.txt", 2);
  EXPECT_THAT(error_of([&] { train("run"); }, ErrorKind::kUser), HasSubstr("data changed since"));
}

TEST_F(TrainerTest, ARunDirectoryInUseIsRefused) {
  fs::create_directories(root_ / "run");
  const ckpt::RunLock lock(root_ / "run");
  EXPECT_THAT(error_of([&] { train("run"); }, ErrorKind::kUser),
              HasSubstr(std::to_string(::getpid())));
}

TEST_F(TrainerTest, SaysWhatIsWrongWithTheData) {
  EXPECT_THAT(error_of([&] { train("a", {"--data.text=" + (root_ / "no.txt").string()}); },
                       ErrorKind::kUser),
              HasSubstr("no.txt"));
  write_file(root_ / "empty.txt", "");
  EXPECT_THAT(error_of([&] { train("b", {"--data.text=" + (root_ / "empty.txt").string()}); },
                       ErrorKind::kUser),
              HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { train("c", {"--train.context=100000"}); }, ErrorKind::kUser),
              HasSubstr("100000"));
}

TEST_F(TrainerTest, ANewTokenizerLearnsWhatTheTemplateMakesOfMessages) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += R"({"messages": [{"role": "user", "content": "aa"}, )"
             R"({"role": "assistant", "content": "bb"}]})"
             "\n";
  }
  write_file(root_ / "chat.jsonl", lines);
  write_file(root_ / "chat.jinja",
             "{% for m in messages %}{{ m.content }}{{ eos_token }}\n{% endfor %}");
  const std::vector<fs::path> text = {root_ / "chat.jsonl"};
  const fs::path file = root_ / "chat.jinja";
  EXPECT_EQ(make_tokenizer(text, "char", 0, file).vocab_size(), 3);  // a, b and the newline
  EXPECT_TRUE(make_tokenizer(text, "bpe", 260, file).id_of("<|endoftext|>").has_value());
  EXPECT_THAT(error_of([&] { make_tokenizer(text, "char", 0, {}); }, ErrorKind::kUser),
              HasSubstr("data.chat_template"));
}

std::string chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += fmt::format(R"({{"messages": [{{"role": "user", "content": "say {0}"}}, )"
                         R"({{"role": "assistant", "content": "{0} it is"}}]}})"
                         "\n",
                         i);
  }
  return lines;
}

TEST_F(TrainerTest, ANewTokenizerHasTheSpecialTokensItIsGiven) {
  write_file(root_ / "chat.jsonl", chats(40));
  write_file(root_ / "chat.jinja",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
             "{% endfor %}");
  const std::vector<fs::path> text = {root_ / "chat.jsonl"};
  const std::vector<std::string> special = {"<|im_start|>", "<|im_end|>"};
  for (const char* kind : {"bpe", "byte", "char"}) {
    SCOPED_TRACE(kind);
    const Tokenizer made = make_tokenizer(text, kind, 280, root_ / "chat.jinja", special);
    for (const std::string& token : special) {
      ASSERT_TRUE(made.id_of(token).has_value());
      EXPECT_TRUE(made.is_special(*made.id_of(token)));
    }
    EXPECT_EQ(made.end_of_text(), made.id_of("<|endoftext|>"));
    // Nothing is learnt of how a special token is spelled.
    EXPECT_FALSE(made.id_of("im_end").has_value());
    EXPECT_FALSE(made.id_of("<|").has_value());
  }
}

TEST_F(TrainerTest, AChatModelStopsWhereItsTemplateEndsAnAnswer) {
  write_file(root_ / "chat.jsonl", chats(200));
  write_file(root_ / "chat.jinja",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
             "{% endfor %}");
  const std::vector<std::string> chat = {"--data.text=" + (root_ / "chat.jsonl").string(),
                                         "--data.chat_template=" + (root_ / "chat.jinja").string(),
                                         "--train.steps=1", "--optim.warmup_steps=0"};
  const auto stops_of = [&](const std::string& run, std::vector<std::string> more) {
    more.insert(more.begin(), chat.begin(), chat.end());
    train(run, more);
    const fs::path checkpoint = root_ / run / "checkpoints" / "step-00000001";
    return model_dir::stop_tokens(checkpoint, Tokenizer::load(checkpoint));
  };
  // <|endoftext|> is token 0, and these follow.
  EXPECT_EQ(stops_of("special", {"--data.special_tokens=<|im_start|>,<|im_end|>"}),
            (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(stops_of("plain", {}), std::vector<std::int32_t>{0});
  const Tokenizer plain = Tokenizer::load(root_ / "plain/data");
  const ChatTemplate chat_template = model_dir::find_chat_template(root_ / "chat.jinja", {}, plain);
  EXPECT_THAT(model_dir::problem_of(model_dir::end_of_turn(chat_template, plain)),
              AllOf(HasSubstr("\"<|im_end|>\", which is no special token"),
                    HasSubstr("data.special_tokens")));
  const Tokenizer special = Tokenizer::load(root_ / "special/data");
  EXPECT_EQ(model_dir::problem_of(model_dir::end_of_turn(chat_template, special)), "");
}

TEST(GenerationConfig, TakesAStopTokenOnce) {
  const std::string one =
      model_dir::with_stop_token(R"({"_from_model_config": true, "eos_token_id": 2})", 7);
  EXPECT_EQ(one, "{\n  \"eos_token_id\": [\n    7,\n    2\n  ]\n}\n");
  EXPECT_EQ(model_dir::with_stop_token(one, 2), one);
  EXPECT_EQ(model_dir::with_stop_token("", 7), "{\n  \"eos_token_id\": 7\n}\n");
  // What config.json says counts in transformers as long as the file has none.
  EXPECT_EQ(model_dir::with_stop_token("", 7, {7, 8}), "");
  EXPECT_EQ(model_dir::with_stop_token(one, 2, {9}), one);
  const auto ids = [](const std::string& config) {
    return nlohmann::json::parse(config).at("eos_token_id");
  };
  EXPECT_EQ(ids(model_dir::with_stop_token("", 7, {8, 9})), nlohmann::json::parse("[7, 8, 9]"));
  EXPECT_EQ(ids(model_dir::with_stop_token("{}", 7, {8, 7})), nlohmann::json::parse("[8, 7]"));
}

// Documents end with a token that the model's own files call no end.
TEST_F(TrainerTest, AFineTunedModelStopsWhereItsDocumentsEnd) {
  train("base", {"--train.steps=1", "--optim.warmup_steps=0"});
  const fs::path base = root_ / "base/checkpoints/step-00000001";
  const fs::path model = root_ / "model";
  fs::create_directory(model);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy_file(base / name, model / name);
  }
  write_file(model / "generation_config.json", R"({"eos_token_id": [1, 2]})");
  write_file(model / "tokenizer_config.json", R"({"eos_token": "e"})");
  inline_model_ = false;
  train("tuned", {"--train.steps=1", "--optim.warmup_steps=0", "--model.from=" + model.string()});
  const fs::path tuned = root_ / "tuned/checkpoints/step-00000001";
  const Tokenizer tokenizer = Tokenizer::load(tuned);
  const std::int32_t end = *tokenizer.id_of("e");
  EXPECT_EQ(tokenizer.end_of_text(), end);
  EXPECT_THAT(model_dir::stop_tokens(tuned, tokenizer), ::testing::ElementsAre(1, 2, end));
  EXPECT_EQ(Tokenizer::load(root_ / "tuned/data").end_of_text(), end);
}

TEST_F(TrainerTest, ADirectoryIsNoTemplate) {
  EXPECT_THAT(
      error_of([&] { train("run", {"--data.chat_template=" + root_.string()}); }, ErrorKind::kUser),
      HasSubstr("name the Jinja file in it"));
}

TEST_F(TrainerTest, ARunDirectoryThatCannotBeMadeIsTheUsersMistake) {
  write_file(root_ / "file", "x");
  EXPECT_THAT(error_of([&] { train("file/run"); }, ErrorKind::kUser), HasSubstr("run.dir"));
  EXPECT_THAT(error_of([&] { train("a", {"--run.dir=/proc/atoll"}); }, ErrorKind::kUser),
              HasSubstr("/proc/atoll"));
}

TEST_F(TrainerTest, ANaNNamesItsSamplesAndChangesNothing) {
  const std::vector<std::string> untied = {"--model.tie_word_embeddings=false"};
  const TrainOutcome clean = train("clean", untied);
  const Tokenizer tokenizer = Tokenizer::load(clean.checkpoint);
  const std::int32_t token = tokenizer.encode(" islands").front();
  poison(clean.checkpoint, root_ / "bad", "model.embed_tokens.weight", token * 32);

  // Which of the first step's samples read that token is known from the sampler alone.
  const data::Corpus corpus(root_ / "clean" / "data");
  const data::Sampler sampler(1, corpus.train().num_tokens(), 32);
  std::vector<std::string> expected;
  std::vector<std::string> numbers;
  for (std::int64_t sample = 0; sample < 4; ++sample) {
    std::vector<std::int32_t> window(32);
    const std::int64_t first = sampler.sample(sample).first_token;
    corpus.train().copy(first, window);
    if (std::count(window.begin(), window.end(), token) > 0) {
      expected.push_back(fmt::format("{} (tokens {} to {} of", sample, first, first + 31));
      numbers.push_back(std::to_string(sample));
    }
  }
  ASSERT_FALSE(expected.empty());

  inline_model_ = false;
  const std::vector<std::string> bad = {"--model.from=" + (root_ / "bad").string()};
  const std::string message = error_of([&] { train("run", bad); }, ErrorKind::kNumeric);
  // What to do comes first; where the samples are in the text is for the log.
  EXPECT_THAT(message, StartsWith("step 1: loss nan, grad_norm "));
  EXPECT_THAT(message, HasSubstr(". Lower optim.lr, or set train.on_nonfinite=skip. No parameter "
                                 "changed; there is no checkpoint yet. Sample"));
  EXPECT_THAT(message, Not(HasSubstr("tokens ")));
  for (std::size_t i = 0; i < std::min<std::size_t>(numbers.size(), 3); ++i) {
    EXPECT_THAT(message.substr(message.find(". Sample")), HasSubstr(numbers[i]));
  }
  const std::string log = read_file(root_ / "run" / "metrics.jsonl");
  EXPECT_THAT(message, HasSubstr("metrics.jsonl says where"));
  for (const std::string& sample : expected) EXPECT_THAT(log, HasSubstr(sample));

  std::vector<std::string> skip = bad;
  skip.emplace_back("--train.on_nonfinite=skip");
  EXPECT_THAT(error_of([&] { train("run2", skip); }, ErrorKind::kNumeric),
              HasSubstr("10 steps in a row"));
}

}  // namespace
}  // namespace atl::train
