#pragma once

// What is on the other side of a descriptor that a person may look at.

#include <string_view>

namespace atl {

/// Columns of the terminal behind `fd`, as it is now; 80 where it does not say; 0 where there is no
/// terminal.
int terminal_columns(int fd);

/// Whether colours are wanted there: on a terminal that has them, unless the environment variable
/// NO_COLOR (no-color.org) is set to something.
bool wants_color(int fd);

/// Whether what is written to the pipe or socket `fd` reaches nobody any more: its reader has
/// closed it, as `| head` does. Never true of a file or a terminal.
bool reader_is_gone(int fd);

/// Writes to standard error. What cannot be written is lost, as when the terminal is closed: that
/// must not end what the process does.
void put_error(std::string_view text);

}  // namespace atl
