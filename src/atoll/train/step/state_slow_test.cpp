// What a process that trains has in memory, as the system counts it.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "atoll/base/processes/resident.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using testing::Bench;

bool is_sanitized() {
  return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
         ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
}

// The same of a process that does nothing but train.
std::size_t peak_of_training(const StateOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    Bench bench(options);
    for (std::int64_t step = 0; step < 2; ++step) bench.step({.step = step, .lr = 0.01});
    const std::size_t peak = peak_resident_bytes();
    ::_exit(::write(ends[1], &peak, sizeof peak) == sizeof peak ? 0 : 1);
  }
  ::close(ends[1]);
  std::size_t peak = 0;
  const bool was_read = ::read(ends[0], &peak, sizeof peak) == sizeof peak;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return was_read ? peak : 0;
}

TEST(TrainState, AProcessHasThePlanInMemoryAndLittleMore) {
  if (is_sanitized()) GTEST_SKIP() << "a sanitizer's own memory would be counted";
  StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 2, .context = 64};
  options.model.vocab_size = 8000;
  options.model.hidden_size = 384;
  options.model.heads = {.num_heads = 6, .num_kv_heads = 3, .head_dim = 64};
  options.model.intermediate_size = 1024;
  options.model.max_positions = 64;
  options.model.tie_embeddings = true;
  options.model.num_layers = 8;
  const MemoryPlan plan = TrainState(options).memory();
  const std::size_t planned = plan.total_bytes();
  ASSERT_GT(planned, std::size_t{250} << 20);
  const std::size_t peak = peak_of_training(options);
  RecordProperty("planned_mib", static_cast<int>(planned >> 20));
  RecordProperty("peak_mib", static_cast<int>(peak >> 20));
  // Code, libraries, oneDNN's kernels and the test itself.
  constexpr std::size_t kBeside = std::size_t{24} << 20;
  EXPECT_LT(peak, planned + planned / 20 + kBeside);
  // Scratch is planned for whichever way a product is computed, and not every way needs it.
  EXPECT_GT(peak, planned - plan.peak_bytes("scratch")) << "a plan that is not used is no plan";
}

}  // namespace
}  // namespace atl::train
