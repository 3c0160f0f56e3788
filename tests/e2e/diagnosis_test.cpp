// What several ranks say of themselves: where their time goes.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::Finished;
using e2e::Ranks;
using nlohmann::json;
using ::testing::HasSubstr;

// Whether the spans of a collective overlap on all ranks: none can end before all have begun.
void expect_overlap(const std::string& file, std::size_t ranks) {
  struct Call {
    std::size_t ranks = 0;
    double latest_begin = -1e300, earliest_end = 1e300;
  };
  std::map<std::string, Call> calls;
  for (const json& event : json::parse(read_file(file))) {
    if (event.at("ph") != "X" || event.at("cat") != "collective") continue;
    const json& args = event.at("args");
    const std::string op = event.at("name");
    if (op != "all_reduce" && op != "all_gather") continue;
    Call& call = calls[op + args.at("group").get<std::string>() + args.at("sequence").dump()];
    const double begin = event.at("ts").get<double>();
    ++call.ranks;
    call.latest_begin = std::max(call.latest_begin, begin);
    call.earliest_end = std::min(call.earliest_end, begin + event.at("dur").get<double>());
  }
  EXPECT_GT(calls.size(), 50U);
  constexpr double kClocks = 1000;  // microseconds that they may be off by, on a busy machine
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(call.ranks, ranks) << name;
    EXPECT_LT(call.latest_begin, call.earliest_end + kClocks) << name;
  }
}

TEST_F(Ranks, ATraceHasEveryRankOnOneClock) {
  for (const char* backend : {"threads", "gloo"}) {
    const std::string name = backend;
    const Finished finished =
        run_ranks(name, {"-n", "2", "--backend=" + name, "--trace=" + path(name + ".json")});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("a trace is in " + path(name + ".json")));
    expect_overlap(path(name + ".json"), 2);
  }
}

}  // namespace
}  // namespace atl
