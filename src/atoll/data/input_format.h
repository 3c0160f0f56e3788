#pragma once

// What a file to tokenize is.

#include <filesystem>
#include <string>
#include <string_view>

namespace atl::data {

/// What a file of text or tokens is.
enum class InputFormat { kText, kJsonl, kBin };

/// By its ending, in lower or upper case: .bin; .jsonl, .ndjson, .jsonlines or .jl. A file of
/// another name whose first line is a JSON object with a key is JSONL too; the rest is text.
InputFormat input_format(const std::filesystem::path& path, std::string_view content);

/// By its ending alone, which is .jsonl or .bin, as older programs did.
InputFormat input_format_by_name(const std::filesystem::path& path);

/// "text", "jsonl" or "bin".
const char* format_name(InputFormat format);

/// Whether a directory that is searched gives this file: text or JSONL by its ending, but not the
/// log of a run.
bool is_searched_for(const std::filesystem::path& path);

/// The ending of a file's name in lower case, with its dot; empty when it has none.
std::string ending_of(const std::filesystem::path& path);

/// Whether a text begins as JSON does: with an object's first key, or a list of such objects.
bool begins_like_json(std::string_view content);

}  // namespace atl::data
