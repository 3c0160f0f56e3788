#include "atoll/base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace atl {
namespace {

// A terminal, and the side that a person would sit at.
struct PseudoTerminal {
  int person = -1;
  int program = -1;

  PseudoTerminal() { EXPECT_EQ(::openpty(&person, &program, nullptr, nullptr, nullptr), 0); }
  ~PseudoTerminal() {
    ::close(person);
    ::close(program);
  }
  void resize(unsigned short columns) const {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(person, TIOCSWINSZ, &size), 0);
  }
};

TEST(Terminal, HasTheWidthItHasNow) {
  const PseudoTerminal terminal;
  EXPECT_EQ(terminal_columns(terminal.program), 80) << "one that does not say";
  for (const int columns : {132, 40, 7}) {
    terminal.resize(static_cast<unsigned short>(columns));
    EXPECT_EQ(terminal_columns(terminal.program), columns);
  }
  const int file = ::open("/dev/null", O_WRONLY);
  EXPECT_EQ(terminal_columns(file), 0);
  ::close(file);
}

TEST(Terminal, ColoursAreForTerminalsWhoseUserDidNotRefuseThem) {
  const PseudoTerminal terminal;
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(wants_color(terminal.program));
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(wants_color(terminal.program)) << "an empty one counts as none";
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_color(terminal.program));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(wants_color(terminal.program));
  ::setenv("TERM", "xterm", 1);
  const int file = ::open("/dev/null", O_WRONLY);
  EXPECT_FALSE(wants_color(file));
  ::close(file);
}

TEST(Terminal, AReaderIsGoneWhenItHasClosedThePipe) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(reader_is_gone(ends[1]));
  ::close(ends[0]);
  EXPECT_TRUE(reader_is_gone(ends[1]));
  ::close(ends[1]);
  const int file = ::open("/dev/null", O_WRONLY);
  EXPECT_FALSE(reader_is_gone(file));
  ::close(file);
}

}  // namespace
}  // namespace atl
