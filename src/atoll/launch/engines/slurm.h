#pragma once

// What Slurm leaves to what it starts.

#include <string>

namespace atl::launch {

/// Whether somebody has called this at a shell with a terminal.
bool is_in_shell();

/// Whether that shell is one that `srun --pty` has started: the shell is the task, and what is
/// called there is none.
bool is_in_shell_of_task();

/// The first host of a list as Slurm writes it: "n01" of "n[01-04,07]-x,m2" plus what follows the
/// bracket ("n01-x"). Throws Error(kUser) for a list that is damaged.
std::string first_slurm_host(const std::string& list);

}  // namespace atl::launch
