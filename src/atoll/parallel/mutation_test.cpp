// What each collective and each action of a schedule is there for: with any one left out, a step
// fails or has another result. So no test that compares layouts passes without it.

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "atoll/parallel/draw_testing.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"

namespace atl::parallel {
namespace {

using layout_test::kExperts;
using layout_test::kRing;
using layout_test::Layout;
using layout_test::Outcome;
using layout_test::small_model;
using layout_test::Task;

// A call in the code, as those of one group make it: "all_reduce of tp at tensor_parallel.cpp:31".
std::string site_of(const comm::Collective& call) {
  return fmt::format("{} of {} at {}:{}", comm::op_name(call.op), call.group,
                     std::filesystem::path(call.where.file_name()).filename().string(),
                     call.where.line());
}

// The sites of a step.
std::set<std::string> sites_of(const Task& task, const Layout& layout, Outcome& outcome) {
  std::set<std::string> sites;
  std::mutex mutex;
  outcome = train(task, layout, {.timeout_s = 60, .leaves_out = [&](const auto& call) {
                                   const std::lock_guard lock(mutex);
                                   sites.insert(site_of(call));
                                   return false;
                                 }});
  return sites;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool same(const Outcome& a, const Outcome& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.evaluated, b.evaluated) &&
         same_bits(a.grad_norm, b.grad_norm) && a.values == b.values && a.gradients == b.gradients;
}

// Whether a step without the calls of a site fails, or is another.
bool is_noticed(const Task& task, const Layout& layout, const std::string& site,
                const Outcome& expected) {
  testing::TestPartResultArray failures;
  Outcome outcome;
  try {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    // A rank that waits for a message which nobody sends gives up soon.
    outcome = train(task, layout, {.timeout_s = 1, .leaves_out = [&](const auto& call) {
                                     return site_of(call) == site;
                                   }});
  } catch (const std::exception&) {
    return true;
  }
  return failures.size() > 0 || !same(outcome, expected);
}

struct Case {
  std::string name;
  Task task;
  Layout layout;
};

Task task_of(const std::string& family, std::int64_t heads, std::int64_t kv_heads, bool tied) {
  Task task = {.model = small_model(family, heads, kv_heads)};
  task.model.num_layers = 2;
  task.model.tie_embeddings = tied;
  return task;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, Task task, Layout layout) {
    all.push_back({name, std::move(task), std::move(layout)});
  };
  add("SharedProducts", task_of("gpt2", 4, 4, false), {.tensor = 2});
  add("CopiedKeys", task_of("qwen3", 4, 2, true), {.tensor = 4});
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
    const std::string stage = std::to_string(static_cast<int>(zero));
    add("Data" + stage, task_of("llama", 2, 2, false), {.shard = 2, .zero = zero});
    if (zero == Zero::kNone) continue;
    add("Copies" + stage, task_of("llama", 2, 2, false), {.shard = 2, .replicas = 2, .zero = zero});
  }
  Task sequences = task_of("llama", 4, 4, false);
  sequences.length = 12;
  sequences.documents = true;
  add("Ulysses", sequences, {.context = 2, .attention = nn::ContextAttention::kUlysses});
  add("Ring", sequences, {.context = 3, .attention = kRing});
  Task experts = task_of("mixtral", 4, 4, false);
  experts.build.experts = kExperts;
  add("Experts", experts, {.expert = 2});
  add("ExpertsOfCopies", experts, {.shard = 2, .expert = 2, .zero = Zero::kParameters});
  add("ExpertsOfSequences", experts, {.context = 2, .attention = kRing});
  Task copied = task_of("qwen3_moe", 4, 2, true);
  copied.build.experts = kExperts;
  add("ExpertsOfProducts", copied, {.tensor = 4, .expert = 2});
  add("ExpertsOfProductsAndSequences", experts,
      {.tensor = 2, .context = 2, .attention = kRing, .expert = 2});
  add("Stages", task_of("llama", 2, 2, false), {.pipeline = 2});
  add("TiedStages", task_of("llama", 2, 2, true), {.pipeline = 2, .schedule = "zb-h1"});
  add("TiedStagesOfProducts", task_of("llama", 4, 2, true),
      {.tensor = 2, .pipeline = 2, .shard = 2, .zero = Zero::kGradients});
  return all;
}

class Mutation : public testing::TestWithParam<Case> {};

TEST_P(Mutation, WithoutAnyOneCollectiveAStepIsAnother) {
  const auto& [name, task, layout] = GetParam();
  Outcome expected;
  const std::set<std::string> sites = sites_of(task, layout, expected);
  ASSERT_FALSE(sites.empty());
  for (const std::string& site : sites) {
    const bool noticed = is_noticed(task, layout, site, expected);
    EXPECT_TRUE(noticed) << layout.name() << " does without " << site;
    // ATOLL_MUTATIONS=1 lists them.
    if (std::getenv("ATOLL_MUTATIONS") != nullptr) {
      std::cout << "mutation: " << name << ": " << site << (noticed ? ": noticed" : ": SURVIVED")
                << "\n";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Mutation, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Of every list of every schedule: each is checked before a step by running all lists against each
// other.
TEST(Mutations, WithoutAnyOneActionASchedulesListsDoNotFit) {
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    for (const int ranks : {2, 3, 4}) {
      Pipeline pipeline = {ranks, 2 * ranks, {0}, schedule.folded};
      for (int c = 1; c <= ranks * schedule.min_chunks; ++c) {
        pipeline.bounds.push_back(static_cast<std::size_t>(c));
      }
      auto lists = actions_of_ranks(schedule, pipeline);
      EXPECT_NO_THROW(rank_schedule(pipeline, lists, 0));
      std::int64_t removed = 0;
      for (std::vector<Action>& list : lists) {
        for (std::size_t i = 0; i < list.size(); ++i, ++removed) {
          const Action action = list[i];
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_THROW(rank_schedule(pipeline, lists, 0), Error)
              << schedule.name << ": " << action_name(action.kind) << " of stage " << action.stage
              << ", micro-batch " << action.micro_batch;
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), action);
        }
      }
      if (std::getenv("ATOLL_MUTATIONS") != nullptr) {
        std::cout << "mutation: " << schedule.name << " on " << ranks << " ranks: " << removed
                  << " actions, each noticed\n";
      }
    }
  }
}

}  // namespace
}  // namespace atl::parallel
