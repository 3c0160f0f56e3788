// The ledger of a coordinator, some bytes of which someone has changed: three bytes of the input
// say where (little-endian) and what.

#include "atoll/island/ledger/ledger.h"

#include "atoll/base/files/file.h"
#include "fuzz.h"

namespace {

using namespace atl::island;

// One record of every kind.
std::string whole_ledger(const std::filesystem::path& path) {
  Ledger ledger = Ledger::open(path, {"kjv", "1", "m", "t", "d", "s"});
  const LogContribution contribution = {
      {1, "10.0.0.1:7001", 1, 100},
      {{0, 10}, {20, 21}},
      3.5,
      0.1,
      {.step_seconds = 0.1, .learning_rate = 1e-3, .links = {{2, 1e6, 0.05}}}};
  const RoundSchedule schedule = {.inner_steps = 8, .codec = "int8", .outer_lr = 0.7};
  const std::vector<LogBody> bodies = {LogPolicy{{.policy = "auto", .base = schedule}},
                                       LogIsland{1, "lyon", "10.0.0.1:7001"},
                                       LogLease{1, {{0, 10}, {20, 30}}},
                                       LogReduce{0, 1, 0, {contribution}},
                                       LogCommit{0, 1, {7, 8}, 0.5, 2, schedule, "slower"},
                                       LogReturn{1, {{21, 30}}},
                                       LogVoid{0, "lost"},
                                       LogFinished{}};
  ledger.append(bodies);
  return atl::read_file(path);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  static const std::string whole = whole_ledger(directory / "whole.db");
  static const std::vector<LogRecord> records = read_ledger(directory / "whole.db").records;
  std::string changed = whole;
  for (; size >= 3; data += 3, size -= 3) {
    changed[(data[0] | std::size_t{data[1]} << 8) % changed.size()] = static_cast<char>(data[2]);
  }
  const std::filesystem::path path = directory.write("changed.db", changed);
  atl::fuzz::expect_result_or_refusal([&] {
    // What is taken must be what was written.
    if (read_ledger(path).records != records) std::abort();
  });
  return 0;
}
