#include "atoll/data/arrow/arrow_file.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::fuzz::MemoryFile file(data, size);
  const atl::data::IsRead all = [](std::string_view) { return true; };
  atl::fuzz::expect_result_or_refusal([&] {
    const auto rows = atl::data::open_arrow(file.path(), all);
    // A batch of nulls may have a billion rows.
    for (int i = 0; i < 10000 && rows->next(); ++i) {
    }
  });
  return 0;
}
