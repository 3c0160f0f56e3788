// The page in a real browser, where there is one: watch_page.py says what is looked at.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "atoll/island/ledger/ledger.h"
#include "program.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;

// A ledger of so many islands that have made `steps` outer steps together. Island 3 takes twice as
// long for a step as the others, and the link from island 2 to island 1 is the slowest.
void write_ledger(const fs::path& dir, int islands, int steps, bool is_finished) {
  using namespace island;
  fs::create_directories(dir);
  Ledger ledger = Ledger::open(dir / kLedgerFile, {"kjv", "1", "model", "tokens", "data", "set"});
  std::vector<LogBody> bodies;
  const auto id = [](int number) { return static_cast<IslandId>(number); };
  for (int i = 1; i <= islands; ++i) {
    bodies.emplace_back(LogIsland{id(i), fmt::format("island-{}", i),
                                  fmt::format("10.0.{}.{}:7001", i / 250, i % 250)});
  }
  std::int64_t batch = 0;
  for (int step = 0; step < steps; ++step) {
    LogReduce reduce{.outer_step = step, .attempt = 1};
    for (int i = 1; i <= islands; ++i) {
      const std::vector<BatchRange> ranges = {{batch, batch + 10}};
      batch += 10;
      bodies.emplace_back(LogLease{id(i), ranges});
      LogContribution contribution{
          .participant = {.island = id(i), .weight = 1.0 / islands, .tokens = 10 * 512 + i},
          .consumed = ranges,
          .loss = 3.5 - .05 * step + .01 * (i % 7),
          .norm = .5,
          .measured = {.step_seconds = i == 3 ? .2 : .1, .exchange_seconds = 1.5}};
      const int most = std::min(islands, 5);
      for (int other = 1; other <= most; ++other) {
        if (other == i) continue;
        const bool is_slow = other == 2 && i == 1;
        contribution.measured.links.push_back(
            {id(other), is_slow ? 1e6 : 5e6 + 1e6 * other, is_slow ? .12 : .02});
      }
      reduce.contributions.push_back(contribution);
    }
    bodies.emplace_back(reduce);
    bodies.emplace_back(LogCommit{.outer_step = step,
                                  .attempt = 1,
                                  .hash = {0x1000u + static_cast<unsigned>(step), 7},
                                  .exchange_seconds = 1.6,
                                  .round_seconds = 3.7});
  }
  if (is_finished) bodies.emplace_back(LogFinished{});
  ledger.append(bodies);
}

TEST(WatchPage, HoldsInChromium) {
  const TemporaryDirectory ledgers;
  write_ledger(ledgers.path / "few", 5, 12, /*is_finished=*/true);
  write_ledger(ledgers.path / "many", 1000, 3, /*is_finished=*/false);
  const fs::path script = test_source_dir() / "tests" / "e2e" / "watch_page.py";
  const int status = std::system(fmt::format("python3 '{}' '{}' --ledgers '{}'", script.string(),
                                             test_program().string(), ledgers.path.string())
                                     .c_str());
  constexpr int kSkipped = 77;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) {
    GTEST_SKIP() << "there is no Chromium; apt-get install chromium-headless-shell";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace atl::e2e
