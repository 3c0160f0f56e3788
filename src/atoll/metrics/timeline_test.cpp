#include "atoll/metrics/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::metrics {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

const Span::Clock::time_point kStart(std::chrono::seconds(1000));

json events_of(const Timeline& timeline, const TimelineOwner& owner) {
  return json::parse("[" + to_trace_events(timeline, owner) + "]");
}

TEST(Timeline, IsEventsInMicrosecondsOfACommonTime) {
  Timeline timeline;
  timeline.add({"all_reduce",
                "collective",
                Span::Track::kCollectives,
                kStart + nanoseconds(1500),
                kStart + nanoseconds(4000),
                {{"bytes", std::int64_t{12}}, {"where", "step.cpp:3"}}});
  const json events =
      events_of(timeline, {.rank = 3, .name = "rank 3", .origin = kStart - nanoseconds(500)});
  const json& span = events.back();
  EXPECT_EQ(span.at("ph"), "X");
  EXPECT_EQ(span.at("name"), "all_reduce");
  EXPECT_EQ(span.at("cat"), "collective");
  EXPECT_EQ(span.at("pid"), 3);
  EXPECT_EQ(span.at("tid"), 1);
  EXPECT_EQ(span.at("ts"), 2.0);
  EXPECT_EQ(span.at("dur"), 2.5);
  EXPECT_EQ(span.at("args"), json({{"bytes", 12}, {"where", "step.cpp:3"}}));
}

TEST(Timeline, NamesItsRankAndTracks) {
  json names;
  for (const json& event : events_of({}, {.rank = 2, .name = "rank 2", .remark = "a host"})) {
    EXPECT_EQ(event.at("ph"), "M");
    EXPECT_EQ(event.at("pid"), 2);
    names[event.at("name").get<std::string>()].push_back(event.at("args").begin().value());
  }
  EXPECT_EQ(names, json({{"process_name", {"rank 2"}},
                         {"process_sort_index", {2}},
                         {"process_labels", {"a host"}},
                         {"thread_name", {"main", "collectives"}}}));
}

TEST(Timeline, HoldsAnyName) {
  Timeline timeline;
  timeline.add({"a \"quoted\"\n\x01 name \xff", "step", Span::Track::kMain, kStart, kStart});
  EXPECT_EQ(events_of(timeline, {}).back().at("name"), "a \"quoted\"\n\x01 name \ufffd");
}

TEST(Timeline, IsBoundedAndCountsWhatItLost) {
  Timeline timeline;
  for (std::size_t i = 0; i < Timeline::kMost + 3; ++i) timeline.add({});
  EXPECT_EQ(timeline.spans().size(), Timeline::kMost);
  EXPECT_EQ(timeline.num_lost(), 3);
}

TEST(ScopedSpan, LastsAsLongAsItsBlock) {
  Timeline timeline;
  const auto before = Span::Clock::now();
  {
    const ScopedSpan outer(&timeline, "outer");
    const ScopedSpan inner(&timeline, "inner", "pass");
    const ScopedSpan nowhere(nullptr, "nowhere");
  }
  const std::vector<Span> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "inner");
  EXPECT_STREQ(spans[0].category, "pass");
  EXPECT_EQ(spans[1].name, "outer");
  EXPECT_LE(before, spans[1].begin);
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].end);
}

}  // namespace
}  // namespace atl::metrics
