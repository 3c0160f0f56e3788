#include "atoll/cli/program.h"

int main(int argc, char** argv) {
  return atl::cli::run_program({argv + 1, argv + argc});
}
