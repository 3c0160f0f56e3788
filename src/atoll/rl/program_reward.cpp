#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/sandbox.h"
#include "atoll/rl/rewards.h"

namespace atl::rl {

namespace {

std::string first_line(const std::string& text) {
  const std::size_t last = text.find_last_not_of("\r\n \t");
  if (last == std::string::npos) return "";
  // The last line of a traceback says what went wrong.
  const std::size_t begin = text.rfind('\n', last);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     last - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

std::optional<double> number_in(const std::string& output) {
  const std::size_t begin = output.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return std::nullopt;
  double value = 0;
  const char* const end = output.data() + output.size();
  const auto [stop, error] = std::from_chars(output.data() + begin, end, value);
  const bool is_alone =
      std::string_view(stop, static_cast<std::size_t>(end - stop)).find_first_not_of(" \t\r\n") ==
      std::string_view::npos;
  if (error != std::errc() || !is_alone || !std::isfinite(value)) return std::nullopt;
  return value;
}

class ProgramReward final : public Reward {
 public:
  explicit ProgramReward(const train::RlSettings& settings)
      : command_(settings.program),
        limits_({.seconds = settings.program_s,
                 .memory_mib = settings.program_mib,
                 .processes = settings.program_processes}) {
    if (!has_sandbox()) {
      log::warning(
          "rl.program: this system gives programs no namespaces of their own, so {} runs with "
          "limits of time and memory, and with the network and the files that atoll has",
          command_.at(0));
    }
  }
  std::string_view name() const override { return "program"; }

  double of(const Rewarded& completion) const override {
    nlohmann::ordered_json row = nlohmann::ordered_json::parse(completion.prompt->row);
    row["completion"] = completion.text;
    row["finished"] = completion.is_whole;
    const std::string line =
        row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const SandboxResult result = run_in_sandbox(command_, line, limits_);
    if (result.end == SandboxResult::End::kExited && result.status == 0) {
      if (const std::optional<double> value = number_in(result.output)) return *value;
    }
    tell(problem_of(result), completion.prompt->origin);
    return 0;
  }

 private:
  std::string problem_of(const SandboxResult& result) const {
    switch (result.end) {
      case SandboxResult::End::kTime:
        return fmt::format("takes longer than rl.program_s = {} s", limits_.seconds);
      case SandboxResult::End::kOutput:
        return fmt::format("prints more than {} bytes", limits_.output_bytes);
      case SandboxResult::End::kSignalled:
        return fmt::format("is ended by signal {}", result.status);
      case SandboxResult::End::kNotRun:
        throw user_error("rl.program: cannot run {}: {}", command_.at(0),
                         first_line(result.errors));
      case SandboxResult::End::kExited:
        break;
    }
    if (result.status != 0) {
      const std::string why = first_line(result.errors);
      return fmt::format("fails with exit code {}{}{}", result.status, why.empty() ? "" : ": ",
                         why);
    }
    return fmt::format("prints \"{}\" where a number is to be", first_line(result.output));
  }

  // Each kind of problem once: a step has hundreds of completions.
  void tell(const std::string& problem, const std::string& origin) const {
    constexpr std::size_t kMostTold = 20;
    const std::lock_guard lock(mutex_);
    if (told_.size() >= kMostTold || !told_.insert(problem).second) return;
    log::warning("rl.program {}; the completion earns 0 (first for {}; told once)", problem,
                 origin);
  }

  std::vector<std::string> command_;
  SandboxLimits limits_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> told_;
};

}  // namespace

std::unique_ptr<Reward> program_reward(const train::RlSettings& settings) {
  return std::make_unique<ProgramReward>(settings);
}

}  // namespace atl::rl
