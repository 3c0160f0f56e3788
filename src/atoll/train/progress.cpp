#include "atoll/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace atl::train {

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0);
       at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_step_line(const StepReport& report) {
  const std::string total = std::to_string(report.total_steps);
  std::string ranks;
  if (report.num_ranks > 1) {
    ranks = fmt::format("  comm {:.1f}%  slowest rank {} (+{:.0f}%)", 100 * report.exposed_fraction,
                        report.slowest_rank, 100 * report.slowest_excess);
  }
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  grad_norm {:.3f}  lr {:.2e}  {:>7} tok/s  MFU {:4.1f}%  {:.0f} "
      "ms  data {:.1f}%{}  left {}",
      report.step, total.size(), total, report.loss, report.grad_norm, report.lr,
      format_count(std::llround(report.tokens_per_s)), 100 * report.mfu, report.step_ms,
      100 * report.data_fraction, ranks, format_duration(report.seconds_left));
}

ProgressBar::ProgressBar(bool enabled) : active_(enabled && ::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::draw(const StepReport& report) {
  if (!active_) return;
  constexpr int kWidth = 30;
  const double part = static_cast<double>(report.step) /
                      static_cast<double>(std::max<std::int64_t>(report.total_steps, 1));
  const int filled = std::clamp(static_cast<int>(part * kWidth), 0, kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "━" : "─";
  // \r and erase-to-end rather than a cleared line first: no flicker.
  fmt::print(stderr, "\r{} {:3.0f}%  step {}/{}  loss {:.3f}  {} tok/s  left {}\x1b[K", bar,
             100 * part, report.step, report.total_steps, report.loss,
             format_count(std::llround(report.tokens_per_s)), format_duration(report.seconds_left));
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressBar::print(const std::string& line) {
  clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace atl::train
