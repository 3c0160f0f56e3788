// main() of every test program. With ATOLL_SIMD tests run as on a CPU with fewer instructions.

#include <gtest/gtest.h>

#include <csignal>

#include "atoll/simd/instruction_sets.h"

namespace {

// Parameters of tests, and tests themselves, ask Highway what this CPU has.
class WithinTheLimit : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { atl::simd::choose_kernels(); }
};

}  // namespace

int main(int argc, char** argv) {
  // A shell that starts a command in the background has it ignore these, and tests raise them.
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP}) std::signal(signal, SIG_DFL);
  if (!atl::simd::limit_instruction_sets_by_environment()) return 2;
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new WithinTheLimit);
  return RUN_ALL_TESTS();
}
