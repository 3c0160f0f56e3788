#include "atoll/hub/retry.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/log.h"

namespace atl::hub {

namespace {

// The whole number that `text` is; nothing for anything else, or for one beyond a day.
std::optional<std::chrono::seconds> seconds_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return std::chrono::seconds(std::min<std::int64_t>(value, 86400));
}

// The number behind ";name=" of RateLimit.
std::optional<std::chrono::seconds> parameter(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  return seconds_in(text.substr(0, text.find_first_not_of("0123456789")));
}

}  // namespace

bool is_passing(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

std::optional<std::chrono::seconds> asked_wait(const HttpResponse& response, std::int64_t now) {
  if (const std::string* limit = response.field("ratelimit")) {
    const auto left = parameter(*limit, ";r=");
    const auto reset = parameter(*limit, ";t=");
    if (left && left->count() == 0 && reset) return reset;
  }
  const std::string* after = response.field("retry-after");
  if (after == nullptr) return std::nullopt;
  if (const auto seconds = seconds_in(*after)) return seconds;
  const std::time_t date = curl_getdate(after->c_str(), nullptr);
  if (date == -1) return std::nullopt;
  const std::int64_t ahead = static_cast<std::int64_t>(date) - now;
  return std::chrono::seconds(std::clamp<std::int64_t>(ahead, 0, 86400));
}

bool Retries::wait(const std::string& why, std::optional<std::chrono::seconds> asked) {
  ++failures_;
  if (failures_ >= policy_.attempts || (asked && *asked > policy_.longest_asked)) return false;
  std::chrono::milliseconds wait = policy_.first_wait;
  for (int i = 1; i < failures_ && wait < policy_.longest_wait; ++i) wait *= 2;
  wait = std::min(wait, policy_.longest_wait);
  if (asked) wait = std::max<std::chrono::milliseconds>(wait, *asked);
  log::info("{}: {}; tried again in {:.1f} s", what_, why,
            std::chrono::duration<double>(wait).count());
  constexpr std::chrono::milliseconds kStep{100};
  while (wait.count() > 0) {
    if (stops_ != nullptr && stops_->load()) return false;
    const std::chrono::milliseconds step = std::min(wait, kStep);
    std::this_thread::sleep_for(step);
    wait -= step;
  }
  return true;
}

HttpResponse get_patiently(HttpClient& client, const HubSettings& settings, const std::string& url,
                           const std::string& what) {
  Retries retries(settings.retry, what, nullptr);
  for (;;) {
    HttpOutcome outcome = client.get({.url = url});
    const bool is_whole = outcome.failure.empty();
    if (is_whole && !is_passing(outcome.response.status)) return std::move(outcome.response);
    const std::string why =
        is_whole ? fmt::format("the hub answers {}", outcome.response.status) : outcome.failure;
    const auto asked = is_whole ? asked_wait(outcome.response, std::time(nullptr)) : std::nullopt;
    // Nobody of that name is there the next second either.
    if (!outcome.is_unreachable && retries.wait(why, asked)) continue;
    if (is_whole) {
      throw make_error(ErrorKind::kIo,
                       "{}: {}{}; try again later, with a token (HF_TOKEN) if it is "
                       "asked too often",
                       what, why,
                       asked ? fmt::format(" and asks to wait {} s", asked->count()) : "");
    }
    throw make_error(ErrorKind::kIo,
                     "{}: {} does not answer ({}); without a network set HF_HUB_OFFLINE=1, which "
                     "takes what is in {}",
                     what, settings.endpoint, why, settings.cache.string());
  }
}

}  // namespace atl::hub
