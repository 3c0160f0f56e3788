#pragma once

// Runs a program that is not trusted: without network, with limits, and gone when it is over.

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

/// What a program may use.
struct SandboxLimits {
  double seconds = 10;                ///< of the clock, and of a CPU for each process
  std::int64_t memory_mib = 1024;     ///< address space of each process, and of files it writes
  std::int64_t processes = 32;        ///< at once; not kept to for the superuser, see below
  std::int64_t output_bytes = 65536;  ///< of standard output
};

/// How a program ended.
struct SandboxResult {
  enum class End {
    kExited,     ///< by itself; `status` is its exit code
    kSignalled,  ///< by a signal, `status`
    kTime,       ///< it took too long
    kOutput,     ///< it wrote too much
    kNotRun,     ///< there is no such program; `errors` says why
  };
  End end = End::kNotRun;
  int status = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< the beginning of standard error
};

/// Whether this system lets programs have namespaces of their own. Where it does, a program sees no
/// network and no /run, has no rights of the superuser, may write only below $TMPDIR (memory_mib in
/// all, gone afterwards), sees no other process where /proc may be mounted anew, and whatever it
/// has started is gone when it is over. Where it does not, limits and the process group are all
/// that holds it, which run_in_sandbox does not hide: ask here and tell people.
bool has_sandbox();

/// Runs `command` with `input` as its standard input, and returns when it and all that it has
/// started is over. It goes when this process dies. Any thread may call it, several at once. Throws
/// Error(kIo) when the system starts no more processes. The superuser's processes are not counted
/// by the kernel: for it `processes` bounds nothing, and the time does.
SandboxResult run_in_sandbox(const std::vector<std::string>& command, const std::string& input,
                             const SandboxLimits& limits);

}  // namespace atl
