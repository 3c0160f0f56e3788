#include <csignal>

#include "atoll/cli/program.h"

int main(int argc, char** argv) {
  // `atoll train | head` must not kill the run before it has saved: writing then fails, and is
  // told.
  std::signal(SIGPIPE, SIG_IGN);
  return atl::cli::run_program({argv + 1, argv + argc});
}
