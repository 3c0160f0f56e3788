#pragma once

// What a file to tokenize is.

#include <filesystem>
#include <string>
#include <string_view>

namespace atl::data {

/// What a file of text, rows or tokens is.
enum class InputFormat { kText, kJsonl, kBin, kJsonArray, kCsv, kTar, kParquet, kArrow };

/// By its ending, in lower or upper case: .bin; .jsonl, .ndjson, .jsonlines or .jl; .csv or .tsv.
/// By what it begins with, whatever its name: Parquet, Arrow, tar; JSONL where the first line is a
/// JSON object with a key; a JSON array of such objects. The rest is text. A compressed file is
/// what is inside, by its name without .gz or the like. Throws Error(kUser) for one that cannot be
/// read or decompressed.
InputFormat input_format(const std::filesystem::path& path);

/// By its ending alone, which is .jsonl or .bin, as older programs did.
InputFormat input_format_by_name(const std::filesystem::path& path);

/// "text", "jsonl", "bin", "json", "csv", "tar", "parquet" or "arrow".
const char* format_name(InputFormat format);

/// Whether a file of that format is made of rows: all but text and tokens.
bool has_rows(InputFormat format);

/// Whether a directory that is searched gives this file, by its ending: text, rows, and those
/// compressed; a .json file when it begins as an array of objects does. Not the log of a run.
bool is_searched_for(const std::filesystem::path& path);

/// The same of a file that is not here yet, so that a .json file is none.
bool is_searched_for_by_name(const std::filesystem::path& path);

/// The endings that a directory is searched for, in words.
const char* searched_endings();

/// The ending of a file's name in lower case, with its dot; empty when it has none.
std::string ending_of(const std::filesystem::path& path);

/// Whether a text begins as JSON does: with an object's first key, or a list of such objects.
bool begins_like_json(std::string_view content);

}  // namespace atl::data
