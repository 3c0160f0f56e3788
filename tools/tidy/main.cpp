// tidy [root]: the rules of the house, checked. Exits with 1 when one is broken.

#include <fmt/format.h>

#include "atoll/base/error.h"
#include "tidy/rules.h"

int main(int argc, char** argv) {
  try {
    const atl::tidy::Tree tree = atl::tidy::load_tree(argc > 1 ? argv[1] : ".");
    const atl::tidy::Findings findings = atl::tidy::check_all(tree);
    fmt::print("{}", atl::tidy::report(tree));
    for (const auto& [path, line, rule, message] : findings) {
      fmt::print("{}{}: {} [{}]\n", path, line > 0 ? fmt::format(":{}", line) : "", message, rule);
    }
    fmt::print("tidy: {} files, {} findings\n", tree.files.size(), findings.size());
    return findings.empty() ? 0 : 1;
  } catch (const atl::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  }
}
