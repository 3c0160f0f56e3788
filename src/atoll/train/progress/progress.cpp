#include "atoll/train/progress/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "atoll/base/terminal.h"
#include "atoll/train/progress/interrupt.h"

namespace atl::train {

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_preferences(const PreferenceReport& report) {
  return fmt::format("reward margin {:.3f} (chosen {:.3f}, rejected {:.3f})  accuracy {:.1f}%",
                     report.margin, report.chosen, report.rejected, 100 * report.accuracy);
}

std::string format_step_line(const StepReport& report) {
  const std::string total = std::to_string(report.total_steps);
  std::string ranks;
  if (report.num_ranks > 1) {
    ranks = fmt::format("  comm {:.1f}%  sent {:.2f} MB  slowest rank {} (+{:.0f}%)",
                        100 * report.exposed_fraction, 1e-6 * report.sent_bytes,
                        report.slowest_rank, 100 * report.slowest_excess);
  }
  std::string experts;
  if (report.experts) {
    experts = fmt::format("  busiest expert {:.2f}x (block {})", report.experts->most_over_mean,
                          report.experts->block);
    if (report.experts->dropped_fraction > 0) {
      experts += fmt::format("  dropped {:.1f}%", 100 * report.experts->dropped_fraction);
    }
  }
  const std::string preferences =
      report.preferences ? "  " + format_preferences(*report.preferences) : "";
  const std::string mfu = report.mfu ? fmt::format("  MFU {:4.1f}%", 100 * *report.mfu) : "";
  const std::string skipped =
      report.without_loss > 0 ? fmt::format("  without loss {}", report.without_loss) : "";
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}{}  grad_norm {:.3f}  lr {:.2e}  {:>7} tok/s{}  {:.0f} "
      "ms  data {:.1f}%{}{}{}{}  left {}",
      report.step, total.size(), total, report.loss, preferences, report.grad_norm, report.lr,
      format_count(std::llround(report.tokens_per_s)), mfu, report.step_ms,
      100 * report.data_fraction, ranks, experts, skipped, report.rewards,
      format_duration(report.seconds_left));
}

std::string format_bar(const StepReport& report, int columns) {
  constexpr std::ptrdiff_t kWidth = 30, kShortest = 4;
  const double part = static_cast<double>(report.step) /
                      static_cast<double>(std::max<std::int64_t>(report.total_steps, 1));
  const std::array<std::string, 5> parts = {
      fmt::format("{:3.0f}%", 100 * part),
      fmt::format("step {}/{}", report.step, report.total_steps),
      fmt::format("loss {:.3f}", report.loss),
      fmt::format("{} tok/s", format_count(std::llround(report.tokens_per_s))),
      fmt::format("left {}", format_duration(report.seconds_left))};
  std::array<bool, 5> is_shown = {true, true, true, true, true};
  std::string text;
  const auto join = [&] {
    text.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (is_shown[i]) text += (text.empty() ? "" : "  ") + parts[i];
    }
  };
  join();
  for (const std::size_t least : {3U, 2U, 4U, 1U}) {  // what is missed least goes first
    if (std::ssize(text) <= columns) break;
    is_shown[least] = false;
    join();
  }
  if (std::ssize(text) > columns) return text.substr(0, static_cast<std::size_t>(columns));
  const std::ptrdiff_t cells = std::min(kWidth, columns - std::ssize(text) - 1);
  if (cells < kShortest) return text;
  const auto filled = static_cast<std::ptrdiff_t>(part * static_cast<double>(cells));
  std::string bar;
  for (std::ptrdiff_t i = 0; i < cells; ++i) bar += i < filled ? "━" : "─";
  return bar + " " + text;
}

ProgressBar::ProgressBar(bool enabled) : active_(enabled && terminal_columns(STDERR_FILENO) > 0) {}

void ProgressBar::draw(const StepReport& report) {
  if (!active_) return;
  // In the last column a terminal would be about to begin another line.
  const int columns = std::max(1, terminal_columns(STDERR_FILENO) - 1);
  // \r and erase-to-end rather than a cleared line first: no flicker.
  put_error(fmt::format("\r{}\x1b[K", format_bar(report, columns)));
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  put_error("\r\x1b[K");
  drawn_ = false;
}

void ProgressBar::print(const std::string& line) {
  clear();
  const std::string whole = line + "\n";
  const bool is_written = std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size() &&
                          std::fflush(stdout) == 0;
  if (!is_written && reader_is_gone(STDOUT_FILENO)) request_stop(SIGPIPE);
}

}  // namespace atl::train
