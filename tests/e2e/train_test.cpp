// The promises of the whole program: train, evaluate, generate, export, stop and go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include "atoll/base/files/test_paths.h"
#include "atoll/metrics/jsonl_sink.h"
#include "terminal.h"
#include "train_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Program;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Train, ThenEvaluateGenerateAndExport) {
  const Finished run = trained("run");
  EXPECT_THAT(run.out, AllOf(HasSubstr("step 40/40  loss "), HasSubstr("held-out loss ")));

  const Finished eval = atoll({"eval", path("run")});
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
  // Both measure the held-out text with the same windows.
  const std::size_t at = run.out.find("held-out loss ") + 14;
  EXPECT_THAT(eval.out, HasSubstr(run.out.substr(at, 6) + " nats a token"));
  EXPECT_THAT(eval.out, HasSubstr("bits per byte"));

  const std::string text = generated("run", {"--seed", "1"});
  EXPECT_EQ(generated("run", {"--seed", "1"}), text);
  EXPECT_NE(generated("run", {"--seed", "2"}), text);
  const std::string greedy = generated("run", {"--greedy"});
  EXPECT_EQ(generated("run", {"--greedy", "--seed", "2"}), greedy);
  EXPECT_EQ(generated("run", {"--greedy", "--threads", "1"}), greedy);

  const Finished exported = atoll({"export", path("run"), "--out", path("model")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(generated("model", {"--seed", "1"}), text);
  EXPECT_EQ(generated("model", {"--greedy"}), greedy);
  EXPECT_FALSE(fs::exists(root_.path / "model" / "optimizer.safetensors"));
  EXPECT_EQ(atoll({"export", path("run"), "--out", path("model")}).exit_code, 2)
      << "nothing is overwritten";
}

// A checkpoint has whole tensors: one rank evaluates, generates and scores as if it had trained.
TEST_F(Train, InALayoutOfRanksThenEvaluateAndGenerateOnOneRank) {
  const std::vector<std::string> layout = {"-n4", "--parallel.tp=2", "--parallel.pp=2",
                                           "--train.micro_batch=1"};
  const Finished run = trained("run", layout);
  EXPECT_THAT(run.err, HasSubstr("pipeline: 2 ranks"));
  const Finished eval = atoll({"eval", path("run")});
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
  // The ranks' own evaluation, whose sums go in another order.
  const double loss = std::stod(run.out.substr(run.out.find("held-out loss ") + 14, 6));
  const double again = std::stod(eval.out.substr(eval.out.find("loss") + 4));
  EXPECT_NEAR(again, loss, 2e-4);
  const std::string greedy = generated("run", {"--greedy"});
  EXPECT_EQ(atoll({"export", path("run"), "--out", path("model")}).exit_code, 0);
  EXPECT_EQ(generated("model", {"--greedy"}), greedy);
  write_file(root_.path / "task.jsonl",
             "{\"prompt\": \"the sea is\", \"choices\": [\" xqzj\", \" wide\"], \"answer\": 1}\n");
  const Finished task = atoll({"eval", path("run"), "--task", path("task.jsonl")});
  EXPECT_EQ(task.exit_code, 0) << task.err;
}

TEST_F(Train, WithSpacesInItsTokensKeepsTheOneAfterAPrompt) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "the sea is wide, the sea is deep, ";
  write_file(root_.path / "text.txt", text);
  const Finished run = atoll(
      {"train", "--run.dir=" + path("run"), "--data.text=" + path("text.txt"),
       "--data.tokenizer=" + (test_source_dir() / "src/atoll/text/testdata/llama2.json").string(),
       "--model.hidden_size=32", "--model.num_hidden_layers=2", "--train.steps=40",
       "--train.batch_size=4", "--train.micro_batch=4", "--train.context=32", "--optim.lr=0.01"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(generated("run", {"--greedy"}), StartsWith("the sea is "));
  const Finished rest = atoll({"generate", path("run"), "--prompt", "the sea", "--greedy",
                               "--max-tokens", "8", "--no-prompt"});
  EXPECT_THAT(rest.out, StartsWith(" is "));
}

TEST_F(Train, SaysWhatMultipliesBf16WhichThreadsDoNotChange) {
  const std::vector<std::string> settings = {"--train.dtype=bf16", "--train.steps=4"};
  for (const std::string wanted : {"auto", "f32"}) {
    std::vector<std::string> one = settings, two = settings;
    one.insert(one.end(), {"--device.bf16=" + wanted, "--device.threads=1"});
    two.push_back("--device.threads=2");
    const Finished run = trained(wanted + "-1", one);
    std::string chosen = "f32";
    for (const std::string faster : {"library", "amx"}) {
      const bool is_said = run.err.find("bf16 products: " + faster) != run.err.npos;
      if (wanted == "auto" && is_said) chosen = faster;
    }
    EXPECT_THAT(run.err, HasSubstr("bf16 products: " + chosen + " (device.bf16=" + wanted + ";"));
    two.push_back("--device.bf16=" + chosen);  // another run would measure for itself
    trained(wanted + "-2", two);
    EXPECT_EQ(tensors(wanted + "-1", 4), tensors(wanted + "-2", 4));
  }
  // What is stored in bf16 is the same model kept so.
  EXPECT_EQ(generated("f32-1", {"--greedy", "--weights=bf16"}), generated("f32-1", {"--greedy"}));
  const auto megabytes = [&](const std::string& weights) {
    const std::string said =
        atoll({"generate", path("f32-1"), "--prompt", "the sea", "--stats", "--weights", weights})
            .err;
    return std::strtod(said.c_str() + said.find("each reads ") + 11, nullptr);
  };
  EXPECT_NEAR(megabytes("bf16") / megabytes("f32"), 0.5, 0.05);
  EXPECT_THAT(trained("plain", {"--train.steps=1"}).err, Not(HasSubstr("bf16 products")));
}

TEST_F(Train, WritesMetricsForPeopleAndPrograms) {
  trained("run", {"--log.every=1"});
  const auto log = metrics::read_jsonl(root_.path / "run" / "metrics.jsonl");
  ASSERT_EQ(log.size(), 41U) << "forty steps and an evaluation";
  EXPECT_EQ(log.front().step, 1);
  EXPECT_EQ(log.back().step, 40);
  std::size_t events = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_.path / "run")) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      ++events;
      EXPECT_GT(entry.file_size(), 40U * 50);
    }
  }
  EXPECT_EQ(events, 1U);
  trained("quiet", {"--log.tensorboard=false"});
  for (const fs::directory_entry& entry : fs::directory_iterator(root_.path / "quiet")) {
    EXPECT_THAT(entry.path().filename().string(), Not(StartsWith("events.")));
  }
}

TEST_F(Train, PlainTextWhenNoOneWatches) {
  const Finished run = trained("run");
  EXPECT_THAT(run.out + run.err, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
}

TEST_F(Train, ATerminalShowsAProgressBar) {
  e2e::TerminalProgram text(command("run", {"--log.every=20"}), 80);
  const Finished watched = text.wait();
  EXPECT_EQ(watched.exit_code, 0);
  EXPECT_THAT(watched.out, AllOf(HasSubstr("\r━"), HasSubstr("left "), HasSubstr("\x1b[K")));
  e2e::TerminalProgram json(command("json", {"--log.format=json"}), 80);
  EXPECT_THAT(json.wait().out, AllOf(HasSubstr("{\"step\":40,"), Not(HasSubstr("━"))));
}

TEST_F(Train, ASecondProcessInTheSameRunIsRefusedAtOnce) {
  const std::vector<std::string> endless = {"--train.steps=10000000", "--device.threads=1"};
  const Program first(command("run", endless));
  ASSERT_TRUE(trains_soon("run"));
  const Finished second = train("run", endless);
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(error_line(second),
              AllOf(HasSubstr(path("run")), HasSubstr(fmt::format("process {} ", first.pid()))));
}

TEST_F(Train, ADamagedCheckpointIsPassedOverWithAWarning) {
  const std::vector<std::string> saving = {"--checkpoint.every=20"};
  trained("run", saving);
  const std::string expected = tensors("run", 40);
  const fs::path damaged = checkpoint("run", 40) / "optimizer.safetensors";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file(damaged, bytes);

  const Finished doctor = atoll({"doctor", path("run")});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(error_line(doctor), HasSubstr("optimizer.safetensors"));
  // A model that cannot be trusted is not used silently either.
  EXPECT_THAT(atoll({"generate", path("run"), "--prompt", "the"}).err,
              AllOf(HasSubstr("warning"), HasSubstr("optimizer.safetensors")));

  const Finished again = trained("run", saving);
  EXPECT_THAT(again.err, AllOf(HasSubstr("warning"), HasSubstr("optimizer.safetensors"),
                               HasSubstr("(step 20)")));
  EXPECT_EQ(tensors("run", 40), expected);
}

TEST_F(Train, OutputThatCannotBeWrittenIsAFailure) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const Finished finished = atoll(command("run"), "/dev/full");
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("\nerror: some of what was written to standard output"));
  EXPECT_TRUE(fs::exists(checkpoint("run", 40))) << "a lost line ends no training";
}

// A small file system of its own.
class SmallDisk {
 public:
  SmallDisk(const fs::path& at, const std::string& size) : at_(at) {
    fs::create_directories(at);
    mounted_ = ::mount("tmpfs", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    error_ = errno;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string problem() const { return std::generic_category().message(error_); }

 private:
  fs::path at_;
  bool mounted_ = false;
  int error_ = 0;
};

TEST_F(Train, AFullDiskKeepsTheCheckpointBefore) {
  const SmallDisk disk(root_.path / "disk", "1500k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs: " << disk.problem();
  const std::vector<std::string> saving = {"--checkpoint.every=10", "--checkpoint.keep=100",
                                           "--log.tensorboard=false"};
  const Finished finished = train("disk/run", saving);
  EXPECT_EQ(finished.exit_code, 1);
  const std::string last = finished.err.substr(finished.err.rfind("error: "));
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << last;
  EXPECT_THAT(last, AllOf(HasSubstr(".safetensors"), HasSubstr("bytes"),
                          HasSubstr("No space left on device")));
  const Finished doctor = atoll({"doctor", path("disk/run")});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.err;
  EXPECT_THAT(doctor.out, HasSubstr(": whole\n"));
  EXPECT_EQ(atoll({"generate", path("disk/run"), "--prompt", "the"}).exit_code, 0);
}

TEST_F(Train, AReadOnlyPlaceForTheRunIsTheUsersMistake) {
  const SmallDisk disk(root_.path / "disk", "100k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs: " << disk.problem();
  fs::create_directories(root_.path / "disk" / "run");
  ASSERT_EQ(::mount(nullptr, path("disk").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  for (const char* run : {"disk/new", "disk/run"}) {
    const Finished finished = train(run);
    EXPECT_EQ(finished.exit_code, 2) << run;
    EXPECT_THAT(error_line(finished), AllOf(HasSubstr(path(run)), HasSubstr("Read-only")));
  }
}

TEST_F(Train, AContextLongerThanTheDataIsTheUsersMistake) {
  const Finished finished = train("run", {"--train.context=20000"});
  EXPECT_EQ(finished.exit_code, 2);
  // How many tokens there are is known only after tokenizing, which says so in lines of its own.
  EXPECT_THAT(finished.err, HasSubstr("\nerror: "));
  EXPECT_THAT(finished.err.substr(finished.err.find("\nerror: ")),
              HasSubstr("a context of 20000 tokens needs 20001 tokens of text"));
}

TEST_F(Train, MistakesExitWithTwoAndSayWhatIsMeant) {
  const auto refused = [&](const std::vector<std::string>& more) {
    const Finished finished = train("run", more);
    EXPECT_EQ(finished.exit_code, 2);
    return error_line(finished);
  };
  EXPECT_THAT(refused({"--train.stepz=4"}), HasSubstr("did you mean --train.steps?"));
  EXPECT_THAT(refused({"--train.steps=many"}), AllOf(HasSubstr("train.steps"), HasSubstr("many")));
  EXPECT_THAT(refused({"--model.num_attention_heads=5"}), HasSubstr("num_attention_heads"));
  const std::string whole = read_file(recipe());
  write_file(recipe(), whole + "evry = 3\n");
  EXPECT_THAT(refused({}), AllOf(HasSubstr("recipe.toml:"), HasSubstr("log.evry"),
                                 HasSubstr("did you mean log.every?")));
  write_file(recipe(), whole + "format = 3\n");
  EXPECT_THAT(refused({}), AllOf(HasSubstr("recipe.toml:"), HasSubstr("log.format")));
}

TEST_F(Train, ALimitOfFileSizesIsNamed) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64 << 10;  // tokens are shorter, a checkpoint is longer
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Program program(command("run", {"--train.steps=2"}));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const Finished finished = program.wait();
  EXPECT_EQ(finished.exit_code, 1) << "a signal would be 128 + SIGXFSZ";
  EXPECT_THAT(finished.err, HasSubstr(", cannot write to "));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("safetensors"), HasSubstr("at most 65,536 bytes"),
                                  HasSubstr("`ulimit -f unlimited`")));
}

TEST_F(Train, ADirectoryWhoseNameIsNoUtf8IsRefusedInOneLine) {
  const Finished finished = train("run\xff");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(error_line(finished), HasSubstr("--run.dir: invalid UTF-8 byte at index "));
}

}  // namespace
}  // namespace atl
