#include "atoll/train/config/written_settings.h"

#include "atoll/metrics/alert.h"

namespace atl::train {

namespace {

constexpr const char* kSecret = "alerts.webhook";

std::string secret_of(const Settings& settings) {
  return std::get<std::string>(settings.find(kSecret).value());
}

std::string written(const std::string& url) {
  return url.substr(0, url.find("://") + 3) + metrics::host_of_url(url) + "/...";
}

}  // namespace

std::string written_toml(const Settings& settings) {
  std::string text = settings.to_toml();
  const std::string secret = secret_of(settings);
  if (secret.empty()) return text;
  const std::string before = to_toml(SettingValue(secret));
  const std::string after = to_toml(SettingValue(written(secret)));
  for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at)) {
    text.replace(at, before.size(), after);
    at += after.size();
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> written_key_values(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> values = settings.key_values();
  const std::string secret = secret_of(settings);
  for (auto& [key, value] : values) {
    if (key == kSecret && !secret.empty()) value = to_toml(SettingValue(written(secret)));
  }
  return values;
}

}  // namespace atl::train
