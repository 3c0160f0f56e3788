#include "atoll/base/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Example {
  std::int64_t steps = 400;
  double lr = 0.003;
  double beta = 0.9;
  bool tensorboard = false;
  std::string schedule = "cosine";
  std::string dir = "runs/x";
  std::vector<std::string> text;
  std::vector<double> weights;
};

struct Fixture {
  Example example;
  Settings settings;

  Fixture() {
    settings.group("train", "One optimizer step after the other.");
    settings.add("train.steps", &example.steps, "How many steps the run takes.", at_least(1));
    settings.add("optim.lr", &example.lr, "The learning rate.", above(0));
    settings.add("optim.beta", &example.beta, "Decay of the mean.", from_below(0, 1));
    settings.add("optim.schedule", &example.schedule, "How it moves.",
                 one_of({"cosine", "linear", "constant"}));
    settings.add("log.tensorboard", &example.tensorboard, "Event files too.");
    settings.add("run.dir", &example.dir, "Where | what.");
    settings.add("data.text", &example.text, "Files.");
    settings.add("data.weights", &example.weights, "Shares.", above(0));
  }

  std::string toml_error(std::string_view text) {
    try {
      settings.load_toml_text(text, "r.toml");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "no error";
  }
  std::string override_error(std::string_view argument) {
    try {
      settings.override(argument);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "no error";
  }
};

TEST(Settings, EveryTypeIsReadFromToml) {
  Fixture f;
  f.settings.load_toml_text(R"(data.text = ["a.txt", "b"]
[train]
steps = 1_000
[optim]
lr = 1
schedule = "linear"
[log]
tensorboard = true
[run]
dir = 'runs\y')",
                            "r.toml");
  EXPECT_EQ(f.example.steps, 1000);
  EXPECT_EQ(f.example.lr, 1.0);
  EXPECT_EQ(f.example.schedule, "linear");
  EXPECT_TRUE(f.example.tensorboard);
  EXPECT_EQ(f.example.dir, "runs\\y");
  EXPECT_THAT(f.example.text, ElementsAre("a.txt", "b"));
}

TEST(Settings, EveryTypeIsReadFromTheCommandLine) {
  Fixture f;
  f.settings.override("--train.steps=2e6");
  f.settings.override("--optim.lr=3e-4");
  f.settings.override("--log.tensorboard=true");
  f.settings.override("--run.dir=a=b");
  f.settings.override("--data.text=a.txt,b.txt");
  EXPECT_EQ(f.example.steps, 2'000'000);
  EXPECT_EQ(f.example.lr, 3e-4);
  EXPECT_TRUE(f.example.tensorboard);
  EXPECT_EQ(f.example.dir, "a=b");
  EXPECT_THAT(f.example.text, ElementsAre("a.txt", "b.txt"));
}

TEST(Settings, AListIsATomlArrayOrOneString) {
  Fixture f;
  f.settings.override("--data.text=[\"a,b\", 'c']");
  EXPECT_THAT(f.example.text, ElementsAre("a,b", "c"));
  f.settings.load_toml_text("data.text = 'a,b'", "r.toml");
  EXPECT_THAT(f.example.text, ElementsAre("a,b"));
  f.settings.load_toml_text("data.text = []", "r.toml");
  EXPECT_TRUE(f.example.text.empty());
}

TEST(Settings, LaterSourcesWinAndOriginsSayWhich) {
  Fixture f;
  EXPECT_EQ(f.settings.find("optim.lr").origin, "default");
  f.settings.load_toml_text("[optim]\n\nlr = 0.5\nbeta = 0.5\n", "r.toml");
  f.settings.override("--optim.lr=0.25");
  EXPECT_EQ(f.example.lr, 0.25);
  EXPECT_EQ(f.settings.find("optim.lr").origin, "--optim.lr");
  EXPECT_EQ(f.settings.find("optim.beta").origin, "r.toml:4");
  EXPECT_TRUE(f.settings.find("train.steps").is_default());
}

TEST(Settings, UnknownKeysAreAnsweredWithTheNearest) {
  Fixture f;
  EXPECT_EQ(f.toml_error("\n\n[train]\nstep = 1"),
            "unknown key train.step in r.toml:4; did you mean train.steps?");
  EXPECT_EQ(f.toml_error("train.lr = 1"),
            "unknown key train.lr in r.toml:1; did you mean optim.lr?");
  EXPECT_EQ(f.toml_error("[nonsense]"),
            "unknown key nonsense in r.toml:1; `atoll config` lists all keys");
  EXPECT_EQ(f.override_error("--optim.lrr=1"), "unknown key --optim.lrr; did you mean --optim.lr?");
  EXPECT_EQ(f.toml_error("optim = 1"),
            "optim in r.toml:1 is a group of keys, not a key; it has optim.lr, optim.beta, "
            "optim.schedule");
}

TEST(Settings, WhatOthersCallAKeyIsAnsweredWithIt) {
  std::int64_t steps = 1;
  double lr = 1;
  Settings settings;
  settings.add("train.steps", &steps, "");
  settings.add("optim.lr", &lr, "");
  settings.known_elsewhere_as("optim.lr", {"learning_rate", "steps"});
  EXPECT_EQ(settings.nearest("learning-rate"), "optim.lr");
  EXPECT_EQ(settings.nearest("Train.Learning_Rate"), "optim.lr");
  EXPECT_EQ(settings.nearest("steps"), "train.steps") << "a key's own name comes first";
  EXPECT_EQ(settings.nearest("frobnicate"), "");
}

TEST(Settings, NamesOfOtherProgramsMayMeanAValueOrNothing) {
  std::string kind = "cpu";
  std::string text;
  bool bf16 = false;
  double dropout = 0;
  std::string data = "shared";
  Settings settings;
  settings.group("device", "");
  settings.add("device.kind", &kind, "", one_of({"cpu", "cuda"}));
  settings.add("device.bf16", &bf16, "");
  settings.group("data", "");
  settings.add("data.text", &text, "");
  settings.add("train.dropout", &dropout, "");
  settings.add("outer.data", &data, "");
  settings.known_elsewhere_as("device.kind", {"device"});
  settings.known_elsewhere_as("data.text", {"data"});
  settings.value_known_as("device.kind", "cuda", {"gpu", "bf16"});
  settings.nothing_known_as({"epochs"}, "a run is as long as train.steps says");
  settings.nothing_known_as({"lora.dropout"}, "adapters have no dropout");
  settings.word_elsewhere("device.kind", "cuda", {"gpu", "cuda:0"});
  const auto said = [&](const char* argument) -> std::string {
    try {
      settings.override(argument);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(said("--device.gpu=true"),
            "unknown key --device.gpu; did you mean --device.kind=cuda?");
  EXPECT_EQ(said("--train.bf16"), "unknown key --train.bf16; did you mean --device.kind=cuda?")
      << "a name that means a value comes before a key's own last part";
  EXPECT_EQ(said("--device=cpu"), "unknown key --device; did you mean --device.kind=cpu?");
  EXPECT_EQ(said("--device=GPU"), "unknown key --device; did you mean --device.kind=cuda?");
  EXPECT_EQ(said("--data=x"), "unknown key --data; did you mean --data.text?")
      << "a group's name is not another group's key";
  EXPECT_EQ(said("--train.epochs=3"),
            "unknown key --train.epochs; a run is as long as train.steps says");
  EXPECT_EQ(said("--lora.dropout=0"), "unknown key --lora.dropout; adapters have no dropout");
  EXPECT_EQ(said("--train.dropuot=0"),
            "unknown key --train.dropuot; did you mean --train.dropout?");
  EXPECT_EQ(said("--device.kind=gpu"),
            "--device.kind is \"gpu\"; it must be one of cpu, cuda; did you mean cuda?");
  try {
    settings.load_toml_text("device = 'gpu'", "r.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "unknown key device in r.toml:1; did you mean device.kind = \"cuda\"?");
  }
}

TEST(Settings, ANumberAsItIsWrittenElsewhereIsAnsweredWithOurs) {
  Fixture f;
  const std::pair<const char*, const char*> mistakes[] = {
      {"--train.steps=8k", "\"8k\"; did you mean 8000?"},
      {"--train.steps=1.5M", "\"1.5M\"; did you mean 1500000?"},
      {"--train.steps=1,000,000", "; did you mean 1000000?"},
      {"--optim.lr=0,001", "; did you mean 0.001?"},
      {"--optim.lr=.001", "; did you mean 0.001?"},
      {"--optim.lr=10%", "; did you mean 0.1?"},
      {"--optim.lr=1e-3e", "; numbers are written 1000, 1_000, 1e3 or 0.5"},
      {"--optim.lr=high", "not \"high\""},
  };
  for (const auto& [argument, advice] : mistakes) {
    EXPECT_THAT(f.override_error(argument), EndsWith(advice)) << argument;
  }
}

TEST(Settings, AnEmptyTableOfAKnownGroupIsNoMistake) {
  Fixture f;
  EXPECT_EQ(f.toml_error("[train]\n[optim]\nlr = 0.5"), "no error");
}

TEST(Settings, WrongTypesSayWhatIsWantedAndWhatWasWritten) {
  Fixture f;
  EXPECT_EQ(f.toml_error("[train]\nsteps = \"many\""),
            "r.toml:2: train.steps wants an integer, at least 1, not \"many\"");
  EXPECT_EQ(f.toml_error("train.steps = 1.5"),
            "r.toml:1: train.steps wants an integer, at least 1, not 1.5");
  EXPECT_EQ(f.toml_error("train.steps = true"),
            "r.toml:1: train.steps wants an integer, at least 1, not true");
  EXPECT_EQ(f.toml_error("log.tensorboard = 1"),
            "r.toml:1: log.tensorboard wants true or false, not 1");
  EXPECT_EQ(f.toml_error("run.dir = 2001-01-01"),
            "r.toml:1: run.dir wants a string, not 2001-01-01");
  EXPECT_EQ(f.toml_error("data.text = [\n1,\n2]"),
            "r.toml:1: data.text wants a list of strings, not [1, 2]");
  EXPECT_EQ(f.toml_error("optim.lr = nan"), "r.toml:1: optim.lr wants a number, above 0, not nan");
  EXPECT_EQ(f.override_error("--log.tensorboard=yes"),
            "--log.tensorboard wants true or false, not \"yes\"");
  EXPECT_EQ(f.override_error("--train.steps=1e-1"),
            "--train.steps wants an integer, at least 1, not 1e-1");
  for (const char* text : {"12x", "", "1__0", "_1", "1_", "--1", "0x10", "inf", "1e999"}) {
    EXPECT_THAT(f.override_error(std::string("--optim.lr=") + text), StartsWith("--optim.lr wants"))
        << text;
  }
}

TEST(Settings, TablesWhereAValueIsWantedAreUnknownKeys) {
  Fixture f;
  EXPECT_THAT(f.toml_error("[train.steps]\nx = 1"), HasSubstr("unknown key train.steps.x"));
  EXPECT_THAT(f.toml_error("[[train]]\nsteps = 1"), HasSubstr("train in r.toml:1 is a group"));
}

TEST(Settings, ValuesOutOfRangeSayTheRange) {
  Fixture f;
  EXPECT_EQ(f.toml_error("[train]\nsteps = 0"),
            "r.toml:2: train.steps is 0; it must be at least 1");
  EXPECT_EQ(f.override_error("--optim.lr=0"), "--optim.lr is 0; it must be above 0");
  EXPECT_EQ(f.override_error("--optim.beta=1"), "--optim.beta is 1; it must be from 0 to below 1");
  EXPECT_EQ(f.override_error("--optim.schedule=cosin"),
            "--optim.schedule is \"cosin\"; it must be one of cosine, linear, constant; did you "
            "mean cosine?");
  EXPECT_EQ(f.example.steps, 400);  // a refused value changes nothing
}

TEST(Settings, IntegersAreExact) {
  Fixture f;
  f.settings.load_toml_text("train.steps = 9007199254740993", "r.toml");
  EXPECT_EQ(f.example.steps, 9007199254740993);
  EXPECT_THAT(f.toml_error("train.steps = 1e19"), HasSubstr("wants an integer"));
}

TEST(Settings, SyntaxErrorsSayLineAndColumn) {
  Fixture f;
  EXPECT_THAT(f.toml_error("[train]\nsteps = = 3"), StartsWith("r.toml:2:9: "));
  EXPECT_THAT(f.toml_error("[train]\nsteps = 3\nsteps = 4"), StartsWith("r.toml:3:"));
  EXPECT_THAT(f.toml_error("[train]\nsteps = 3\nsteps = 4"), HasSubstr("cannot redefine"));
  EXPECT_THAT(f.toml_error("[train]\nsteps = 3\nsteps = 4"), HasSubstr("'steps'"));
}

TEST(Settings, OverridesAreWrittenOnceAndWithAValue) {
  Fixture f;
  EXPECT_EQ(f.override_error("--log.tensorboard"),
            "--log.tensorboard has no value; write --log.tensorboard=VALUE (true or false)");
  f.settings.override("--optim.lr=1");
  EXPECT_EQ(f.override_error("--optim.lr=2"),
            "--optim.lr is given twice on the command line; give it once");
  EXPECT_EQ(f.override_error("lr=2"), "unexpected argument lr=2; settings are written --key=value");
}

TEST(Settings, AnOverrideIsUtf8) {
  Fixture f;
  EXPECT_EQ(f.override_error("--run.dir=a\xff"
                             "b"),
            "--run.dir: invalid UTF-8 byte at index 1: 0xFF; settings are kept in files of UTF-8, "
            "so rename what it stands for");
  f.settings.override("--run.dir=\xc3\xa4");
  EXPECT_EQ(f.example.dir, "\xc3\xa4");
}

TEST(Settings, AMissingFileIsTheUsersMistake) {
  Fixture f;
  try {
    f.settings.load_toml("no/such.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("no/such.toml"));
  }
}

TEST(Settings, WhatToTomlWritesReadsBackTheSame) {
  Fixture f;
  f.example.dir = "a \"quoted\"\\ path\n\x7f\tü";
  f.example.text = {"", "#,[]", "b"};
  f.example.lr = 0.1 + 0.2;
  f.example.steps = 9007199254740993;
  f.example.tensorboard = true;
  f.settings.override("--optim.schedule=linear");
  Fixture g;
  g.settings.load_toml_text(f.settings.to_toml(), "again.toml");
  EXPECT_EQ(g.settings.key_values(), f.settings.key_values());
  EXPECT_EQ(g.example.dir, f.example.dir);
  EXPECT_EQ(g.example.lr, 0.1 + 0.2);
  EXPECT_THAT(f.settings.to_toml(), HasSubstr("schedule = \"linear\"  # --optim.schedule\n"));
}

TEST(Settings, DescribeSaysEveryValueAndItsOrigin) {
  Fixture f;
  f.settings.load_toml_text("optim.lr = 0.5", "r.toml");
  EXPECT_THAT(f.settings.describe(), HasSubstr("optim.lr         0.5       r.toml:1\n"));
  EXPECT_THAT(f.settings.describe(), HasSubstr("train.steps      400       default\n"));
}

TEST(Settings, TheReferenceHasEveryKeyAndItsDefault) {
  Fixture f;
  f.settings.override("--train.steps=7");  // the reference is of defaults
  const std::string text = f.settings.markdown_reference();
  EXPECT_THAT(text, StartsWith("## train\n\nOne optimizer step after the other.\n\n"));
  EXPECT_THAT(text, HasSubstr("| `train.steps` | an integer, at least 1 | `400` | How many"));
  EXPECT_THAT(text, HasSubstr("Where \\| what."));
  for (const Setting& setting : f.settings.all()) EXPECT_THAT(text, HasSubstr(setting.key));
}

TEST(Settings, AGroupWithinAGroupIsASectionOfTheReference) {
  std::int64_t order = 0, threads = 0;
  Settings settings;
  settings.group("device", "What it computes on.");
  settings.add("device.threads", &threads, "How many.");
  settings.group("device.fake", "For tests.");
  settings.add("device.fake_order", &order, "Which order.");
  const std::string text = settings.markdown_reference();
  EXPECT_THAT(text, HasSubstr("\n## device.fake\n\nFor tests.\n\n| key "));
  EXPECT_LT(text.find("device.threads"), text.find("## device.fake"));
  EXPECT_EQ(settings.to_toml().find("[device"), settings.to_toml().rfind("[device"));
}

TEST(Settings, ListsOfNumbersAreRead) {
  Fixture f;
  f.settings.load_toml_text("data.weights = [0.5, 2]", "r.toml");
  EXPECT_THAT(f.example.weights, ElementsAre(0.5, 2.0));
  f.settings.override("--data.weights=0.7,0.25, 1e-3");
  EXPECT_THAT(f.example.weights, ElementsAre(0.7, 0.25, 1e-3));
  Fixture g;
  g.settings.override("--data.weights=[3]");
  EXPECT_THAT(g.example.weights, ElementsAre(3.0));
  EXPECT_EQ(g.settings.find("data.weights").value(), SettingValue(std::vector<double>{3.0}));
  EXPECT_THAT(Fixture().override_error("--data.weights=1,x"), HasSubstr("a list of numbers"));
  EXPECT_THAT(Fixture().override_error("--data.weights=1,-1"), HasSubstr("must be above 0"));
  EXPECT_THAT(Fixture().toml_error("data.weights = [1, \"a\"]"), HasSubstr("a list of numbers"));
  Fixture h;
  h.settings.load_toml_text("data.weights = []", "r.toml");
  EXPECT_TRUE(h.example.weights.empty());
}

TEST(Settings, NumbersOnTheCommandLineAreTomlNumbers) {
  for (const char* bad : {"+-5", ".5", "5.", "007", "--5", "-", "1__0"}) {
    EXPECT_THAT(Fixture().override_error(std::string("--optim.lr=") + bad), HasSubstr("wants"))
        << bad;
  }
  Fixture f;
  f.settings.override("--optim.lr=+0.5");
  EXPECT_EQ(f.example.lr, 0.5);
}

}  // namespace
}  // namespace atl
