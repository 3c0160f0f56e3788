#include "atoll/launch/report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <new>
#include <utility>

#include "atoll/base/processes/memory_error.h"
#include "atoll/comm/world.h"
#include "atoll/train/model/memory_check.h"

namespace atl::launch {

namespace {

constexpr char kMark = '\x1e';  // ASCII's record separator: in no log line

constexpr std::array<std::pair<ErrorKind, std::string_view>, 7> kKinds = {
    {{ErrorKind::kUser, "user"},
     {ErrorKind::kIo, "io"},
     {ErrorKind::kDamaged, "damaged"},
     {ErrorKind::kResource, "resource"},
     {ErrorKind::kNumeric, "numeric"},
     {ErrorKind::kPeer, "peer"},
     {ErrorKind::kInternal, "internal"}}};

std::string_view take_word(std::string_view& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(std::min(space + 1, text.size()));
  return word;
}

template <typename T>
bool take_number(std::string_view& text, T& value) {
  const std::string_view word = take_word(text);
  const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && stopped == word.data() + word.size();
}

}  // namespace

std::string report_line(const RankReport& report) {
  if (report.step >= 0) return fmt::format("{}{} step {}\n", kMark, report.rank, report.step);
  if (report.begun >= 0) return fmt::format("{}{} begun {}\n", kMark, report.rank, report.begun);
  if (report.pid > 0) return fmt::format("{}{} pid {}\n", kMark, report.rank, report.pid);
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                 [&](const auto& entry) { return entry.first == report.kind; });
  return fmt::format("{}{} error {} {} {}\n", kMark, report.rank, kind->second, report.peer,
                     report.error);
}

std::optional<RankReport> parse_report(std::string_view line) {
  if (line.empty() || line.front() != kMark) return std::nullopt;
  line.remove_prefix(1);
  RankReport report;
  if (!take_number(line, report.rank)) return std::nullopt;
  const std::string_view what = take_word(line);
  if (what == "step") {
    if (!take_number(line, report.step) || report.step < 0) return std::nullopt;
    return report;
  }
  if (what == "begun") {
    if (!take_number(line, report.begun) || report.begun < 0) return std::nullopt;
    return report;
  }
  if (what == "pid") {
    if (!take_number(line, report.pid) || report.pid <= 0) return std::nullopt;
    return report;
  }
  if (what != "error") return std::nullopt;
  const std::string_view kind = take_word(line);
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const auto& entry) { return entry.second == kind; });
  if (found == kKinds.end() || !take_number(line, report.peer)) return std::nullopt;
  report.kind = found->first;
  report.error = line;
  return report;
}

void RankReporter::begin() {
  if (enabled()) write({.rank = rank_, .pid = ::getpid()});
}

void RankReporter::step(std::int64_t step) {
  last_step_ = step;
  if (enabled()) write({.rank = rank_, .step = step});
}

void RankReporter::begun(std::int64_t step) {
  last_step_ = step;
  if (enabled()) write({.rank = rank_, .begun = step});
}

int RankReporter::error(const std::exception& error) {
  RankReport report = {.rank = rank_, .error = error.what()};
  if (const auto* known = dynamic_cast<const Error*>(&error)) report.kind = known->kind();
  if (const auto* peer = dynamic_cast<const comm::PeerError*>(&error)) report.peer = peer->rank();
  if (dynamic_cast<const MemoryError*>(&error) != nullptr) {
    report.error += fmt::format("; {}", train::kTrainingMemoryAdvice);
  } else if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    report.kind = ErrorKind::kResource;
    report.error = fmt::format("out of memory; {}", train::kTrainingMemoryAdvice);
  } else if (dynamic_cast<const Error*>(&error) == nullptr) {
    std::replace(report.error.begin(), report.error.end(), '\n', ' ');
  }
  if (enabled()) write(report);
  return report.kind == ErrorKind::kUser ? 2 : 1;
}

void RankReporter::write(const RankReport& report) {
  const std::string line = report_line(report);
  const std::lock_guard lock(mutex_);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the reader is gone, and this process will be ended too
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace atl::launch
