// Tables that pyarrow wrote, row by row as pyarrow reads them; tools/golden/columns.py made both.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/data/input_format.h"
#include "atoll/data/rows/row_files.h"
#include "atoll/data/testing.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Columns : public ::testing::TestWithParam<const char*> {};

std::vector<Json> rows_of(const fs::path& path, const IsRead& is_read) {
  std::vector<Json> rows;
  const auto source = open_rows(path, input_format(path), is_read);
  while (const auto row = source->next()) rows.push_back(Json::parse(row->json));
  return rows;
}

std::vector<Json> expected_rows(const fs::path& path) {
  std::vector<Json> rows;
  std::istringstream lines(read_file(path.string() + ".jsonl"));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

TEST_P(Columns, AreTheRowsThatPyarrowReads) {
  const fs::path path = test_source_dir() / "tests/golden/columns" / GetParam();
  const std::vector<Json> expected = expected_rows(path);
  const std::vector<Json> rows = rows_of(path, [](std::string_view) { return true; });
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], expected[i]) << i;
}

TEST_P(Columns, ThatNobodyReadsAreNotDecoded) {
  const fs::path path = test_source_dir() / "tests/golden/columns" / GetParam();
  const std::vector<Json> expected = expected_rows(path);
  const std::string only = expected[0].begin().key();
  const std::vector<Json> rows =
      rows_of(path, [&only](std::string_view name) { return name == only; });
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [key, value] : rows[i].items()) {
      EXPECT_EQ(value, key == only ? expected[i][key] : Json("")) << i << key;
    }
  }
}

// A page's header, with how its two kinds of levels are written: field after field, 3 for RLE.
std::string with_levels(std::string file, char definition, char repetition) {
  const std::string rle = "\x15\x06\x15\x06";
  int found = 0;
  for (std::size_t at = 0; (at = file.find(rle, at)) != file.npos; at += rle.size(), ++found) {
    file[at + 1] = definition;
    file[at + 3] = repetition;
  }
  EXPECT_GT(found, 0);
  return file;
}

// Spark's writer calls the levels of a flat column, of which there are none, BIT_PACKED.
TEST(ParquetLevels, ThatAreNotThereMayBeCalledAnything) {
  const fs::path words = test_source_dir() / "tests/golden/columns/words.parquet";
  const data::testing::TemporaryDirectory directory;
  const fs::path path = directory.path() / "words.parquet";
  constexpr char kRle = 2 * 3;
  constexpr char kBitPacked = 2 * 4;
  const IsRead all = [](std::string_view) { return true; };
  write_file(path, with_levels(read_file(words), kRle, kBitPacked));
  EXPECT_EQ(rows_of(path, all), expected_rows(words));
  write_file(path, with_levels(read_file(words), kBitPacked, kRle));
  EXPECT_THROW(rows_of(path, all), Error) << "its columns have levels that say what is null";
}

INSTANTIATE_TEST_SUITE_P(Files, Columns,
                         ::testing::Values("chat.parquet", "chat-v2.parquet", "kinds.parquet",
                                           "kinds-v2.parquet", "words.parquet",
                                           "words-delta.parquet", "words-split.parquet",
                                           "chat.arrow", "kinds.arrow", "words.arrow"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '.' || c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace atl::data
