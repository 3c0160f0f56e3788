#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "atoll/base/terminal.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/setting_lists.h"

namespace atl::cli {

namespace {

Action add(ArgumentParser& parser) {
  const auto words = std::make_shared<std::vector<std::string>>();
  parser.add_option(
      "word", *words,
      "Part of a name, a meaning or a default, or what another program calls a setting; "
      "without it all are listed");
  return [words](const Invocation&) {
    constexpr std::size_t kColumns = 100;
    const int terminal = terminal_columns(STDOUT_FILENO);
    const std::size_t columns =
        terminal > 0 ? std::min(static_cast<std::size_t>(terminal), kColumns) : kColumns;
    fmt::print("{}", find_settings(*words, columns));
    return 0;
  };
}

}  // namespace

Command config_command() {
  return {.name = "config",
          .summary = "Find settings by a word, with type, default and meaning; or list all.",
          .example =
              "  atoll config warmup\n"
              "  atoll config optim.           # a group\n"
              "  atoll config learning rate    # those that have both words\n"
              "  atoll config gradient_accumulation_steps",
          .add = add};
}

}  // namespace atl::cli
