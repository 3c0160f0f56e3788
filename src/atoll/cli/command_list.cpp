#include "atoll/cli/commands.h"

namespace atl::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      train_command(),
      rl_command(),
      launch_command(),
      coordinator_command(),
      server_command(),
      tune_command(),
      eval_command(),
      generate_command(),
      chat_command(),
      serve_command(),
      stage_command(),
      tokenize_command(),
      plan_command(),
      simulate_command(),
      get_command(),
      import_command(),
      export_command(),
      doctor_command(),
      certs_command(),
      runs_command(),
      watch_command(),
      trace_command(),
      bench_command(),
      config_command(),
      config_reference_command(),
      completions_command(),
      manual_command(),
  };
  return list;
}

}  // namespace atl::cli
