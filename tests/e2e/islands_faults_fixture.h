#pragma once

// What the tests share in which islands and their coordinator are started one by one, and go wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "islands_fixture.h"

namespace atl::e2e {

/// A coordinator and islands that are started one by one.
class IslandFaults : public Islands {
 protected:
  std::vector<std::string> coordinator(const std::string& listen,
                                       std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"coordinator", "--dir", path("ledger"), "--listen", listen});
    return more;
  }
  /// Of islands started one by one.
  std::vector<std::string> one_of(int islands, int steps, const std::string& name,
                                  const std::string& place,
                                  std::vector<std::string> more = {}) const {
    more.push_back(fmt::format("--outer.islands={}", islands));
    more.push_back(fmt::format("--train.steps={}", steps));
    return joining(name, name, place, more);
  }
  /// The same with steps of some milliseconds on any machine, so that a run does not end before
  /// what is to happen in it has happened.
  std::vector<std::string> slow_one_of(int islands, int steps, const std::string& name,
                                       const std::string& place,
                                       std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--model.hidden_size=64", "--train.context=128"});
    return one_of(islands, steps, name, place, more);
  }
  /// Each batch is once in what was committed, and all of it is there.
  void expect_whole(const std::string& ledger) const {
    const Finished shown = atoll({"runs", "show", path(ledger)});
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out,
                ::testing::AllOf(::testing::HasSubstr("; finished"),
                                 ::testing::HasSubstr("audit       proved"),
                                 ::testing::HasSubstr(" 0 leased, 0 given back and free")));
  }
  /// The batches that are committed so far; an island trains one a step.
  std::int64_t committed(const std::string& ledger) const {
    const std::string shown = atoll({"runs", "show", path(ledger)}).out;
    const std::size_t end = shown.find(" consumed, ");
    EXPECT_NE(end, shown.npos) << shown;
    if (end == shown.npos) return 0;
    const std::size_t begin = shown.rfind(' ', end - 1) + 1;
    std::string digits = shown.substr(begin, end - begin);
    std::erase(digits, ',');
    return std::stoll(digits);
  }
  std::size_t outer_steps(const std::string& run) const { return values(run, "outer_step").size(); }
  /// Waits until `run` has done so many outer steps, or more of them, with all of `islands`.
  bool all_took_part(const std::string& run, std::size_t after, int islands) const {
    return soon(
        [&] {
          const std::vector<double> members = values(run, "outer_members");
          return members.size() > after + 1 && members.back() == islands;
        },
        kLongest);
  }
  /// Waits until `run` has had a part in an outer step after so many.
  bool contributed(const std::string& run, std::size_t after) const {
    return soon(
        [&] {
          const std::vector<double> own = values(run, "outer_contributed");
          return own.size() > after && std::find(own.begin() + static_cast<std::ptrdiff_t>(after),
                                                 own.end(), 1) != own.end();
        },
        kLongest);
  }
  /// Those that there are ascend: none was seen twice. One that was away may have missed some.
  void expect_outer_steps_once(const std::string& run) const {
    const std::vector<double> seen = values(run, "outer_step");
    EXPECT_TRUE(std::adjacent_find(seen.begin(), seen.end(), std::greater_equal<>()) == seen.end());
  }
  /// 1, 2, ... as many as there are: none was lost or seen twice.
  void expect_every_outer_step(const std::string& run) const {
    const std::vector<double> seen = values(run, "outer_step");
    std::vector<double> all(seen.size());
    std::iota(all.begin(), all.end(), 1);
    EXPECT_THAT(seen, ::testing::ElementsAreArray(all));
  }
  // An outer step has up to 40 inner steps; at a load of 40 on two cores one took half a second.
  static constexpr std::chrono::minutes kLongest{10};
  static void pause(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace atl::e2e
