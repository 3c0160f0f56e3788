// What ranks that share products, sequences or experts send, against the formulas of
// docs/tensor-parallel.md, docs/context-parallel.md and docs/expert-parallel.md.

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "atoll/comm/collectives/call_check.h"
#include "atoll/parallel/draw_testing.h"

namespace atl::parallel {
namespace {

using layout_test::Layout;
using layout_test::small_model;
using layout_test::Task;

// Elements that all ranks together send in calls of one source file. layout_test::train makes two
// steps, and an evaluation after each.
double elements_sent(const Task& task, const Layout& layout, const std::string& file) {
  std::uint64_t bytes = 0;
  std::mutex mutex;
  train(task, layout, {.timeout_s = 60, .leaves_out = [&](const comm::Collective& call) {
                         if (std::filesystem::path(call.where.file_name()).filename() == file) {
                           const std::lock_guard lock(mutex);
                           bytes += comm::bytes_of_call(call).sent;
                         }
                         return false;
                       }});
  return static_cast<double>(bytes) / sizeof(double);
}

Task task_of(std::int64_t layers) {
  Task task = {.model = small_model("llama", 4, 4), .length = 12};
  task.model.num_layers = layers;
  return task;
}

// B T C of all micro-batches of a step.
double activations(const Task& task) {
  return static_cast<double>(task.micro_batches * task.batch * task.length *
                             task.model.hidden_size);
}

TEST(Traffic, OfSharedProductsIsTheFormula) {
  for (const int t : {2, 4}) {
    const Layout layout = {.tensor = t};
    const double of_a_block = elements_sent(task_of(3), layout, "tensor_parallel.cpp") -
                              elements_sent(task_of(2), layout, "tensor_parallel.cpp");
    // Forward 4 B T C, backward 6, and the forward of the evaluation; (t - 1)/t of it by each rank.
    EXPECT_EQ(of_a_block, 2 * (4 + 6 + 4) * activations(task_of(1)) * (t - 1)) << t;
  }
}

// Every token goes through every expert, so that how many rows move does not depend on the router.
TEST(Traffic, OfSharedExpertsIsTheFormula) {
  for (const Layout& layout :
       {Layout{.expert = 2}, Layout{.expert = 4}, Layout{.tensor = 2, .expert = 2},
        Layout{.context = 2, .expert = 2}, Layout{.tensor = 2, .context = 2, .expert = 2}}) {
    Task task = task_of(3);
    task.model = small_model("mixtral", 4, 4);
    task.model.experts.top_k = task.model.experts.num_experts;
    const auto experts = static_cast<double>(task.model.experts.num_experts);
    const int e = layout.expert, t = layout.tensor;
    const auto tokens = static_cast<double>(task.micro_batches * task.batch * task.length);
    // Of each token and choice: a row there and back forward and in B and as in W twice there; a
    // number there and back in B; and what the evaluation after the step sends as the step does.
    const double rows = (2 + 2 + 2 + 2) * static_cast<double>(task.model.hidden_size) + 2;
    // Each rank of a product sends the same.
    const double moved = t * tokens * experts * (e - 1) / e * rows;
    // How many: (e, E + 1) numbers of half an element, in the step's forward and the evaluation's.
    const double passes = 2.0 * static_cast<double>(task.micro_batches) * layout.context * t;
    const double counts = passes * (e - 1) * (experts + 1) / 2;
    EXPECT_EQ(elements_sent(task, layout, "expert_parallel.cpp"), 2 * 3 * (moved + counts))
        << layout.name();
  }
}

TEST(Traffic, OfSharedSequencesIsTheFormula) {
  for (const int c : {2, 4}) {
    const Layout layout = {.context = c, .attention = nn::ContextAttention::kUlysses};
    const Task task = task_of(3);
    // Each rank (c - 1)/c of B T/c (2 H + 2 K) D, here 4 B T/c C, each way and in the evaluation.
    EXPECT_EQ(elements_sent(task, layout, "ulysses.cpp"),
              3 * 2 * 3 * 4 * activations(task) * (c - 1) / c)
        << c;
  }
}

}  // namespace
}  // namespace atl::parallel
