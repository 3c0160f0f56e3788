// Ranks that share a model evaluate it and generate with it, as threads and as processes.

#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Layout {
  std::string ranks;
  std::vector<std::string> settings;
};

const std::vector<Layout> kLayouts = {{"2", {"--parallel.tp=2"}},
                                      {"2", {"--parallel.pp=2"}},
                                      {"4", {"--parallel.tp=2", "--parallel.pp=2"}},
                                      {"4", {"--parallel.tp=4"}},
                                      {"2", {"--parallel.tp=2", "--backend=tcp"}},
                                      {"2", {"--parallel.pp=2", "--backend=gloo"}}};

class SharedModel : public Train {
 protected:
  static std::vector<std::string> with(std::vector<std::string> words, const Layout& layout) {
    words.insert(words.end(), {"-n", layout.ranks});
    words.insert(words.end(), layout.settings.begin(), layout.settings.end());
    return words;
  }
  static std::string said(const std::vector<std::string>& words) {
    const Finished finished = atoll(words);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.out;
  }
  static std::string refused(const std::vector<std::string>& words) {
    const Finished finished = atoll(words);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    return error_line(finished);
  }
  // All but the last line, which has the seconds.
  static std::string shares(const std::string& report) {
    return report.substr(0, report.rfind("\n  ", report.size() - 2));
  }
};

TEST_F(SharedModel, SaysWhatOneRankSays) {
  trained("run", {"--train.dropout=0"});
  write_file(path("task.jsonl"),
             "{\"prompt\": \"the sea is\", \"choices\": [\" xqzj\", \" wide\"], \"answer\": 1}\n"
             "{\"prompt\": \"a ring of\", \"answer\": \" islands\"}\n");
  const std::vector<std::string> greedy = {"generate", path("run"),    "--prompt", "the sea",
                                           "--greedy", "--max-tokens", "60"};
  const std::vector<std::string> sampled = {"generate",       path("run"), "--prompt",
                                            "a ring",         "--seed=7",  "--num-samples=2",
                                            "--max-tokens=25"};
  const std::vector<std::string> text = {"eval", path("run"), "--micro-batch=2"};
  const std::vector<std::string> task = {"eval", path("run"), "--task", path("task.jsonl"),
                                         "--max-tokens=6"};
  const std::string made = said(greedy), drawn = said(sampled), loss = said(text),
                    answers = said(task);
  EXPECT_THAT(loss, HasSubstr("nats a token"));
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.ranks + " " + layout.settings.front() + " " + layout.settings.back());
    EXPECT_EQ(said(with(greedy, layout)), made);
    EXPECT_EQ(said(with(sampled, layout)), drawn);
    EXPECT_EQ(shares(said(with(text, layout))), shares(loss));
    EXPECT_EQ(shares(said(with(task, layout))), shares(answers));
  }
}

// Parts of sequences, and other windows, are for text alone.
TEST_F(SharedModel, TextIsSharedByContextAndDataToo) {
  trained("run", {"--train.dropout=0", "--train.steps=5"});
  const std::vector<std::string> text = {"eval", path("run"), "--micro-batch=1"};
  const std::string loss = said(text);
  EXPECT_EQ(shares(said(with(text, {"2", {"--parallel.cp=2"}}))), shares(loss));
  EXPECT_EQ(shares(said(with(text, {"3", {}}))), shares(loss));
  EXPECT_EQ(shares(said(with(text, {"4", {"--parallel.pp=2"}}))), shares(loss));
}

TEST_F(SharedModel, ExpertsAreShared) {
  trained("run", {"--train.steps=10", "--model.family=mixtral", "--model.num_experts=4",
                  "--model.num_experts_per_tok=2"});
  const std::vector<std::string> greedy = {"generate", path("run"),    "--prompt", "the sea",
                                           "--greedy", "--max-tokens", "40"};
  const std::vector<std::string> text = {"eval", path("run"), "--micro-batch=1"};
  const std::string made = said(greedy), loss = said(text);
  for (const Layout& layout :
       {Layout{"2", {"--parallel.ep=2"}}, Layout{"4", {"--parallel.ep=2", "--parallel.pp=2"}},
        Layout{"4", {"--parallel.ep=2", "--parallel.tp=2"}},
        Layout{"8", {"--parallel.ep=2", "--parallel.tp=2", "--parallel.pp=2"}}}) {
    EXPECT_EQ(said(with(greedy, layout)), made);
    EXPECT_EQ(shares(said(with(text, layout))), shares(loss));
  }
  EXPECT_EQ(shares(said(with(text, {"4", {"--parallel.ep=2", "--parallel.cp=2"}}))), shares(loss));
}

TEST_F(SharedModel, WhatCannotBeIsRefusedByName) {
  trained("run", {"--train.steps=1"});
  const std::vector<std::string> words = {"generate", path("run"), "--prompt=a"};
  EXPECT_THAT(refused(with(words, {"2", {"--parallel.cp=2"}})),
              AllOf(HasSubstr("parallel.cp = 2"), HasSubstr("--parallel.pp=2")));
  EXPECT_THAT(refused(with(words, {"4", {"--parallel.tp=2"}})),
              HasSubstr("share a model among 2 ranks, and there are 4"));
  EXPECT_THAT(refused(with(words, {"3", {"--parallel.tp=3"}})), HasSubstr("choose a divisor of 4"));
  EXPECT_THAT(refused(with(words, {"8", {"--parallel.pp=8"}})), HasSubstr("choose at most 4"));
  EXPECT_THAT(refused(with(words, {"2", {"--parallel.ep=2"}})), HasSubstr("has no experts"));
  EXPECT_THAT(refused(with(words, {"1", {"--optim.lr=1"}})),
              HasSubstr("reads no recipe, so it takes no --optim.lr=1"));
  EXPECT_THAT(refused({"eval", path("run"), "--context=31", "-n", "2", "--parallel.tp=2"}),
              HasSubstr("--context=30"));
}

}  // namespace
}  // namespace atl
