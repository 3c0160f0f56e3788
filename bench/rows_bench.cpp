// How fast rows of files are read: ./rows_bench FILE. bench/rows.py reads the same with pyarrow.
//
// --json prints the rows instead, one a line: tests/oracle/columns.py compares them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/data/input_format.h"
#include "atoll/data/parquet/parquet_file.h"
#include "atoll/data/rows/row_files.h"

namespace {

namespace data = atl::data;

// All columns, or those that are named.
data::IsRead reads(const std::vector<std::string>& columns) {
  return [&columns](std::string_view name) {
    return columns.empty() || std::find(columns.begin(), columns.end(), name) != columns.end();
  };
}

void print_rows(const std::filesystem::path& file, const std::vector<std::string>& columns) {
  const auto rows = data::open_rows(file, data::input_format(file), reads(columns));
  while (const auto row = rows->next()) {
    std::string line(row->json);
    // Within strings JSON has none of them.
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    fmt::print("{}\n", line);
  }
}

double seconds_of(const std::function<void()>& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const std::filesystem::path& file, const std::vector<std::string>& columns) {
  const data::InputFormat format = data::input_format(file);
  std::size_t rows = 0;
  std::size_t bytes = 0;
  const double as_rows = seconds_of([&] {
    const auto source = data::open_rows(file, format, reads(columns));
    while (const auto row = source->next()) {
      ++rows;
      bytes += row->json.size();
    }
  });
  double as_columns = 0;
  if (format == data::InputFormat::kParquet) {
    as_columns = seconds_of([&] { data::count_parquet_values(file, reads(columns)); });
  }
  fmt::print("rows {} json_bytes {} rows_s {:.4f} columns_s {:.4f}\n", rows, bytes, as_rows,
             as_columns);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads the rows of a file");
  std::filesystem::path file;
  std::vector<std::string> columns;
  bool prints = false;
  app.add_option("FILE", file)->required();
  app.add_option("--column", columns, "Only these");
  app.add_flag("--json", prints, "Print the rows");
  CLI11_PARSE(app, argc, argv);
  try {
    if (prints) {
      print_rows(file, columns);
    } else {
      measure(file, columns);
    }
  } catch (const atl::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
