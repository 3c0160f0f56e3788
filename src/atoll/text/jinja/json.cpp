// JSON into values, by events, so that the order of keys stays and no second tree is built.

#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view origin) : origin_(origin) {}

  bool null() override { return add(Value(None{})); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override {
    return add(Value(static_cast<std::int64_t>(value)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw user_error("{}: the number {} is too large (64 bits with a sign at most)", origin_,
                       value);
    }
    return add(Value(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(Value(value));
  }
  bool string(string_t& value) override { return add(Value(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(true); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(false); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    throw user_error("{}: not valid JSON: {}", origin_, json_reason(error));
  }

  Value result() { return std::move(result_); }

 private:
  struct Open {
    bool object;
    std::string key;
    Dict dict;
    Sequence list;
  };

  bool open(bool object) {
    open_.push_back({.object = object, .key = {}, .dict = {}, .list = {}});
    return true;
  }
  bool close() {
    Open top = std::move(open_.back());
    open_.pop_back();
    if (top.object) return add(Value(std::make_shared<const Dict>(std::move(top.dict))));
    return add(Value(List{std::make_shared<const Sequence>(std::move(top.list))}));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (Open& top = open_.back(); top.object) {
      top.dict.set(Value(top.key), top.key, std::move(value));
    } else {
      top.list.depth = std::max(top.list.depth, depth_of(value) + 1);
      top.list.items.push_back(std::move(value));
    }
    return true;
  }

  std::string_view origin_;
  std::vector<Open> open_;
  Value result_;
};

}  // namespace

Value parse_json(std::string_view json, std::string_view origin) {
  check_json(json, origin, {.max_depth = kMaxValueDepth / 2, .refusal = ErrorKind::kUser});
  Builder builder(origin);
  nlohmann::json::sax_parse(json, &builder);
  return builder.result();
}

}  // namespace atl::text::jinja
