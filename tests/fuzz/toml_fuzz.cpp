#include "atoll/base/settings/settings.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::int64_t steps = 1;
  double lr = 1;
  bool flag = false;
  std::string name;
  std::vector<std::string> texts;
  std::vector<double> weights;
  atl::Settings settings;
  settings.add("train.steps", &steps, "Steps.", atl::at_least(1));
  settings.add("optim.lr", &lr, "Rate.", atl::above(0));
  settings.add("log.flag", &flag, "Flag.");
  settings.add("run.dir", &name, "Name.");
  settings.add("data.text", &texts, "Texts.");
  settings.add("data.weights", &weights, "Weights.", atl::above(0));
  atl::fuzz::expect_result_or_refusal([&] {
    settings.load_toml_text(atl::fuzz::text(data, size), "input");
    // What was accepted, written out, must be accepted again and mean the same.
    const std::string written = settings.to_toml();
    settings.load_toml_text(written, "again");
    if (settings.key_values().empty()) std::abort();
  });
  return 0;
}
