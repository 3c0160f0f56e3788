#include "atoll/serve/task.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    for (const auto& item : atl::serve::read_task(atl::fuzz::text(data, size), "input")) {
      if (item.is_multiple_choice() ? item.answer >= item.choices.size() : item.answers.empty()) {
        std::abort();
      }
    }
  });
  return 0;
}
