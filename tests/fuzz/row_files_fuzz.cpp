// Arrays of JSON, CSV and tars: the same bytes as each of them.

#include "atoll/data/rows/csv.h"
#include "atoll/data/rows/json_array.h"
#include "atoll/data/rows/tar.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::fuzz::MemoryFile file(data, size);
  const auto read = [&](auto&& open) {
    atl::fuzz::expect_result_or_refusal([&] {
      const auto rows = open(atl::data::TextWindow(file.path()));
      while (rows->next()) {
      }
    });
  };
  read([](atl::data::TextWindow window) { return atl::data::open_json_array(std::move(window)); });
  read([](atl::data::TextWindow window) { return atl::data::open_tar(std::move(window)); });
  read([](atl::data::TextWindow window) {
    return atl::data::open_csv(std::move(window), [](std::string_view) { return true; });
  });
  return 0;
}
