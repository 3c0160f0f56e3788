// What a person at a terminal sees, and what `| head` ends.

#include "terminal.h"

#include <cstdlib>
#include <regex>

#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::atoll_with_head;
using e2e::Finished;
using e2e::TerminalProgram;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// What was drawn over and over in one line, in the order in which it was.
std::vector<std::string> drawn_lines(const std::string& text) {
  static const std::regex line("\r([^\r\n\x1b]+)\x1b\\[K");
  std::vector<std::string> lines;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    lines.push_back((*at)[1]);
  }
  return lines;
}

// Columns: all bytes but those that go on with a character.
std::ptrdiff_t columns_of(const std::string& line) {
  return std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
}

std::ptrdiff_t widest(const std::vector<std::string>& lines) {
  std::ptrdiff_t most = 0;
  for (const std::string& line : lines) most = std::max(most, columns_of(line));
  return most;
}

class Terminal : public Train {};

TEST_F(Terminal, TheBarFitsIt) {
  for (const int columns : {200, 80, 60, 12}) {
    TerminalProgram program(command(fmt::format("run-{}", columns), {"--log.every=20"}), columns);
    const Finished finished = program.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.out;
    const std::vector<std::string> lines = drawn_lines(finished.out);
    ASSERT_GE(lines.size(), 40U) << finished.out;
    EXPECT_LT(widest(lines), columns) << "the last column is where a terminal begins a new line";
    EXPECT_THAT(finished.out, HasSubstr("\r━")) << "few parts rather than no bar";
  }
}

TEST_F(Terminal, TheBarFollowsItsWidth) {
  TerminalProgram program(command("run", {"--train.steps=400", "--log.every=400"}), 80);
  program.read_until([](const std::string& text) { return !drawn_lines(text).empty(); });
  program.resize(40);
  std::size_t seen = 0;
  program.read_until([&](const std::string& text) {
    seen = drawn_lines(text).size();
    return seen > 0 && columns_of(drawn_lines(text).back()) < 40;
  });
  const std::vector<std::string> lines = drawn_lines(program.wait().out);
  ASSERT_GT(lines.size(), seen);
  EXPECT_GT(columns_of(lines.front()), 60);
  EXPECT_LT(widest({lines.begin() + static_cast<std::ptrdiff_t>(seen), lines.end()}), 40);
}

// A run that takes long enough to be stopped.
const std::vector<std::string> kLong = {"--train.steps=10000000", "--device.threads=1",
                                        "--log.every=1000"};

TEST_F(Terminal, CtrlCSaysAtOnceWhatHappensAndASecondOneChangesNothing) {
  TerminalProgram program(command("run", kLong), 80);
  program.read_until([](const std::string& text) { return !drawn_lines(text).empty(); });
  program.type("\x03\x03");
  const Finished finished = program.wait();
  EXPECT_EQ(finished.exit_code, 130) << finished.out;
  const std::size_t said = finished.out.find("Ctrl-C: the run saves after this step and ends; ");
  const std::size_t done = finished.out.find("stopped by Ctrl-C after step ");
  ASSERT_NE(said, std::string::npos) << finished.out;
  EXPECT_LT(said, done);
  EXPECT_EQ(ckpt::checkpoint_steps(root_.path / "run" / "checkpoints").size(), 1U);
}

TEST_F(Terminal, ThatIsClosedEndsARunWithACheckpoint) {
  for (const bool has_ranks : {false, true}) {
    const std::string name = has_ranks ? "ranks" : "one";
    std::vector<std::string> arguments = command(name, kLong);
    if (has_ranks) arguments.insert(arguments.end(), {"-n2", "--backend=tcp"});
    TerminalProgram program(arguments, 80);
    program.read_until([](const std::string& text) { return !drawn_lines(text).empty(); });
    program.hang_up();
    program.wait();
    EXPECT_EQ(ckpt::checkpoint_steps(root_.path / name / "checkpoints").size(), 1U);
  }
}

TEST_F(Terminal, ColoursAreLeftOutOnRequest) {
  ::setenv("TERM", "xterm", 1);
  TerminalProgram coloured(command("a", {"--train.steps=1"}), 80);
  EXPECT_THAT(coloured.wait().out, HasSubstr("\x1b[32minfo"));
  ::setenv("NO_COLOR", "1", 1);
  TerminalProgram plain(command("b", {"--train.steps=1"}), 80);
  const std::string text = plain.wait().out;
  ::unsetenv("NO_COLOR");
  EXPECT_THAT(text, AllOf(HasSubstr("info: "), Not(HasSubstr("\x1b[3")), Not(HasSubstr("\x1b[0"))));
}

// What `atoll ... 2>&1` puts into one file.
std::string together(const std::vector<std::string>& arguments) {
  const e2e::TemporaryDirectory directory;
  const std::string file = (directory.path / "both").string();
  std::string line = "'" + test_program().string() + "'";
  for (const std::string& argument : arguments) line += " '" + argument + "'";
  EXPECT_EQ(std::system((line + " >'" + file + "' 2>&1").c_str()), 0);
  return read_file(file);
}

TEST_F(Terminal, AnInfoLineBeginsALineOfItsOwn) {
  trained("run", {"--train.steps=1"});
  const std::string text =
      together({"generate", path("run"), "--prompt=the sea", "--max-tokens=5", "--stats"});
  EXPECT_THAT(text, StartsWith("the sea"));
  EXPECT_THAT(text, HasSubstr("\ninfo: 5 tokens in "));
}

TEST_F(Terminal, OneOfAThingIsNoPluralAndTheFormulaIsInTheHelp) {
  const Finished run =
      trained("run", {"--train.steps=1", "--train.micro_batch=4", "--optim.warmup_steps=0",
                      "--model.num_hidden_layers=1", "--device.threads=1"});
  EXPECT_THAT(run.err, AllOf(HasSubstr(": 1 layer, "), HasSubstr(" in 1 step\n"),
                             Not(HasSubstr("MFU")), HasSubstr("GFLOP/s measured")));
  EXPECT_THAT(atoll({"train", "--help"}).out, HasSubstr("tok/s x FLOPs/token / peak"));
}

TEST_F(Terminal, AClosedPipeEndsEveryCommandWithoutAWord) {
  trained("run", {"--train.steps=1"});
  const std::string text = path("text.txt");
  const std::vector<std::vector<std::string>> commands = {
      {"help"},
      {"--version"},
      {"train", "--help"},
      {"doctor"},
      {"doctor", path("run")},
      {"config-reference"},
      {"plan", recipe()},
      {"eval", path("run")},
      {"tokenize", text, "--out", path("corpus"), "--vocab-size=300"},
      {"generate", path("run"), "--max-tokens=100000000", "--prompt=the"},
      {"simulate", recipe(), "--islands=3", "--outer-steps=20", "--trace"}};
  for (const std::vector<std::string>& arguments : commands) {
    const Finished finished = atoll_with_head(arguments, 0);
    EXPECT_EQ(finished.exit_code, 128 + SIGPIPE) << arguments[0];
    EXPECT_THAT(finished.err, Not(HasSubstr("error"))) << arguments[0];
  }
  const Finished some =
      atoll_with_head({"generate", path("run"), "--max-tokens=100000000", "--prompt=the"}, 100);
  EXPECT_EQ(some.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(some.err, IsEmpty());
}

TEST_F(Terminal, ARunWhoseOutputNobodyReadsSavesAndEnds) {
  const std::vector<std::string> endless = {"--train.steps=10000000", "--log.every=1",
                                            "--device.threads=1"};
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
           {}, {"-n", "2", "--backend=threads"}, {"-n", "2", "--backend=tcp"}}) {
    const std::string name = "run-" + (how.empty() ? "alone" : how.back().substr(10));
    std::vector<std::string> more = endless;
    more.insert(more.end(), how.begin(), how.end());
    const Finished finished = atoll_with_head(command(name, more), 200);
    EXPECT_EQ(finished.exit_code, 128 + SIGPIPE) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("stopped as nobody reads its output"),
                                    Not(HasSubstr("error")), Not(HasSubstr("warning"))));
    EXPECT_FALSE(ckpt::checkpoint_steps(path(name) + "/checkpoints").empty()) << name;
  }
}

TEST_F(Terminal, IslandsWhoseOutputNobodyReadsSaveAndEnd) {
  const Finished finished = atoll_with_head(
      command("run", {"--train.steps=10000000", "--log.every=1", "--islands=2"}), 200);
  EXPECT_EQ(finished.exit_code, 128 + SIGPIPE) << finished.err;
  EXPECT_THAT(finished.err, AllOf(Not(HasSubstr("error")), Not(HasSubstr("starting it again"))));
}

}  // namespace
}  // namespace atl
