#include "atoll/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace atl {

namespace {

// A pass of its own: the library's parser with a callback looks through all members of an object
// each time that one inside it ends.
class Guard final : public nlohmann::json::json_sax_t {
 public:
  Guard(std::string_view origin, const JsonRules& rules, std::size_t max_keys)
      : origin_(origin), rules_(rules), max_keys_(max_keys) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& key) override {
    const bool is_new = keys_.back().insert(key).second;
    if (keys_.back().size() > max_keys_) refuse("an object of more than {} keys", max_keys_);
    if (is_new) return true;
    constexpr std::size_t kMaxShown = 80;
    refuse("\"{}{}\" stands there twice", std::string_view(key).substr(0, kMaxShown),
           key.size() > kMaxShown ? "..." : "");
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*size*/) override { return enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    refuse("not valid JSON: {}", json_reason(error));
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw make_error(rules_.refusal, "{}: {}", origin_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool enter() {
    if (++depth_ <= rules_.max_depth) return true;
    refuse("nested more than {} levels deep", rules_.max_depth);
  }

  std::string_view origin_;
  JsonRules rules_;
  std::size_t max_keys_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

void check(std::string_view text, std::string_view origin, const JsonRules& rules,
           std::size_t max_keys) {
  Guard guard(origin, rules, max_keys);
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    const std::string_view before = text.substr(0, nul);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = nul - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    guard.refuse("not valid JSON: line {}, column {}: a NUL byte", line, column);
  }
  nlohmann::json::sax_parse(text.begin(), text.end(), &guard);
}

template <typename Json>
Json parse(std::string_view text, std::string_view origin, const JsonRules& rules,
           std::size_t max_keys) {
  check(text, origin, rules, max_keys);
  try {
    return Json::parse(text);
  } catch (const typename Json::exception& error) {  // a number too large for a double
    throw make_error(rules.refusal, "{}: not valid JSON: {}", origin, json_reason(error));
  }
}

// Of the library's kinds, so that one handler says in which file it was.
template <typename Json>
std::int64_t whole_number_of(const Json& value, std::int64_t least, std::int64_t most) {
  constexpr int kNoWholeNumber = 302;  // as for a type that is not what was asked for
  if (!value.is_number_integer()) {
    throw Json::type_error::create(
        kNoWholeNumber,
        value.dump(-1, ' ', false, Json::error_handler_t::replace) + " is no whole number",
        nullptr);
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool fits = !value.is_number_unsigned() || value.template get<std::uint64_t>() <= kMost;
  const auto number = fits ? value.template get<std::int64_t>() : 0;
  if (!fits || number < least || number > most) {
    throw Json::type_error::create(
        kNoWholeNumber, fmt::format("{} is not from {} to {}", value.dump(), least, most), nullptr);
  }
  return number;
}

}  // namespace

std::int64_t whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
  return whole_number_of(value, least, most);
}

std::int64_t whole_number(const nlohmann::ordered_json& value, std::int64_t least,
                          std::int64_t most) {
  return whole_number_of(value, least, most);
}

std::string json_reason(const std::exception& error) {
  constexpr std::size_t kMaxShown = 300;  // the library quotes what it read last, however long
  std::string_view reason = error.what();
  if (reason.starts_with("[json.exception.")) {
    reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
  }
  constexpr std::string_view kPlace = "parse error at ";
  if (reason.starts_with(kPlace)) reason.remove_prefix(kPlace.size());
  if (reason.size() <= kMaxShown) return std::string(reason);
  return std::string(reason.substr(0, kMaxShown)) + "...";
}

void check_json(std::string_view text, std::string_view origin, const JsonRules& rules) {
  check(text, origin, rules, text.size());
}

nlohmann::json parse_json(std::string_view text, std::string_view origin, const JsonRules& rules) {
  return parse<nlohmann::json>(text, origin, rules, text.size());
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view origin,
                                          const JsonRules& rules) {
  constexpr std::size_t kMaxKeys = 1 << 15;
  return parse<nlohmann::ordered_json>(text, origin, rules, kMaxKeys);
}

}  // namespace atl
