#pragma once

#include <vector>

#include "atoll/cli/command.h"

namespace atl::cli {

/// Every command, in the order `atoll help` lists them.
const std::vector<Command>& commands();

/// The commands themselves; each is defined in the file of its name.
Command train_command();
Command rl_command();
Command launch_command();
Command coordinator_command();
Command tune_command();
Command server_command();
Command eval_command();
Command generate_command();
Command chat_command();
Command serve_command();
Command stage_command();
Command tokenize_command();
Command plan_command();
Command simulate_command();
Command get_command();
Command import_command();
Command export_command();
Command doctor_command();
Command certs_command();
Command runs_command();
Command watch_command();
Command trace_command();
Command bench_command();
Command config_command();
Command config_reference_command();
Command completions_command();
Command manual_command();

}  // namespace atl::cli
