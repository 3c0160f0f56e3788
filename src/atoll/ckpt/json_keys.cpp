#include "atoll/ckpt/json_keys.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/error.h"

namespace atl::ckpt {

namespace {

// A pass of its own: the library's parser with a callback looks through all members of an object
// each time that one inside it ends.
class KeyGuard final : public nlohmann::json::json_sax_t {
 public:
  explicit KeyGuard(int max_depth) : max_depth_(max_depth) {}

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
    if (!keys_.back().insert(key).second) throw damaged_error("\"{}\" stands there twice", key);
    return true;
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
    throw damaged_error("{}", error.what());
  }

 private:
  bool enter() {
    if (++depth_ > max_depth_) throw damaged_error("nested more than {} levels deep", max_depth_);
    return true;
  }

  int max_depth_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

void check_json_keys(std::string_view text, int max_depth) {
  KeyGuard guard(max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &guard);
}

}  // namespace atl::ckpt
