#include <malloc.h>

#include <csignal>

#include "atoll/cli/program.h"
#include "atoll/simd/instruction_sets.h"

int main(int argc, char** argv) {
  if (!atl::simd::limit_instruction_sets_by_environment()) return 2;
  // What is large and freed goes back to the system, as what is planned does: glibc would otherwise
  // raise this by itself and keep pieces of files that were read.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  // `atoll train | head` must not kill the run before it has saved, nor any command before it has
  // removed what it leaves half made: writing then fails, and the command ends without a word.
  std::signal(SIGPIPE, SIG_IGN);
  // Beyond `ulimit -f` writing fails in the same way, with a message.
  std::signal(SIGXFSZ, SIG_IGN);
  return atl::cli::run_program({argv + 1, argv + argc});
}
