#pragma once

// Files that are being written, under the name "<final name>.tmp-<number>", and what a process that
// was killed leaves of them.

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace atl {

/// The name that the unfinished file `name` would have got: "a.txt" for "a.txt.tmp-123". Nothing
/// for a name that no AtomicFile makes.
std::optional<std::string_view> finished_name(std::string_view name);

/// Makes an unfinished file of `path` and opens it for writing; `temporary` becomes its path. Until
/// the descriptor is closed it holds the file by flock(2), in any process on any machine that
/// shares the storage, so that sweep_unfinished leaves the file alone. Returns -1 with errno set
/// when it cannot be made.
int open_unfinished(const std::filesystem::path& path, std::filesystem::path& temporary);

/// Removes the unfinished files in `directory` that nobody writes any more. `is_ours` is asked with
/// the final name: a name such as x.tmp-1 can also be a user's. What cannot be removed stays, and
/// so does all where the file system has no locks.
void sweep_unfinished(const std::filesystem::path& directory,
                      const std::function<bool(std::string_view)>& is_ours);

/// Holds a file that this process has just made: nobody takes it for abandoned until `fd` is
/// closed. Waits for whoever looks at the file now; false when that one has removed it. True, too,
/// where the file system has no locks.
bool hold_unfinished(int fd);

/// True when nobody holds the regular file at `path`, of which `fd` is a descriptor; `fd` holds the
/// file then. False where the file system has no locks.
bool is_abandoned(int fd, const std::filesystem::path& path);

}  // namespace atl
