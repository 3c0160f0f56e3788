#include "atoll/watch/metrics_line.h"

#include <simdjson.h>

#include <limits>

namespace atl::watch {

namespace {

// Whether `text` names a number that JSON does not have: NaN or an infinity.
bool read_special(std::string_view text, double& number) {
  if (text == "NaN") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else if (text == "Infinity") {
    number = std::numeric_limits<double>::infinity();
  } else if (text == "-Infinity") {
    number = -std::numeric_limits<double>::infinity();
  } else {
    return false;
  }
  return true;
}

void take(std::string_view name, const simdjson::dom::element& value, MetricsLine& line) {
  double number = 0;
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    if (read_special(text, number)) {
      line.numbers.emplace_back(name, number);
    } else {
      line.texts.emplace_back(name, text);
    }
  } else if (value.get(number) == simdjson::SUCCESS) {
    line.numbers.emplace_back(name, number);
  }
}

}  // namespace

struct MetricsLineParser::State {
  simdjson::dom::parser parser;
};

MetricsLineParser::MetricsLineParser() : state_(std::make_unique<State>()) {}

MetricsLineParser::~MetricsLineParser() = default;

bool MetricsLineParser::parse(std::string_view text, MetricsLine& line) {
  line.numbers.clear();
  line.texts.clear();
  line.time_s = 0;
  simdjson::dom::object object;
  if (state_->parser.parse(text.data(), text.size()).get(object) != simdjson::SUCCESS) return false;
  bool has_step = false;
  for (const auto field : object) {
    if (field.key == "step") {
      has_step = field.value.get(line.step) == simdjson::SUCCESS;
    } else if (field.key == "time") {
      if (field.value.get(line.time_s) != simdjson::SUCCESS) line.time_s = 0;
    } else {
      take(field.key, field.value, line);
    }
  }
  return has_step;
}

}  // namespace atl::watch
