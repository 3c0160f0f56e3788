#include "atoll/base/files/absent_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "atoll/base/nearest.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr int kMostNames = 10000;  // looked at, so that a huge directory holds nobody up

bool is_hub_word(const std::string& word) {
  return !word.empty() && word.front() != '.' &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

// The name that a path is on the hub, empty when it can be none.
std::string hub_name(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return "";
  std::string text = path.string();
  for (const char* before : {"https://huggingface.co/", "hf://"}) {
    if (text.starts_with(before)) return text.substr(std::string_view(before).size());
  }
  // The oldest models of the hub have no owner in their names.
  if (text == "gpt2" || text.starts_with("gpt2-") || text == "distilgpt2") return text;
  const auto num_parts = std::distance(path.begin(), path.end());
  if (num_parts != 2 || fs::exists(path.parent_path(), ignored)) return "";
  return is_hub_word(path.parent_path().string()) && is_hub_word(path.filename().string()) ? text
                                                                                           : "";
}

std::string advice_for_data_set(const std::string& name) {
  return fmt::format(
      ", and atoll downloads nothing; a data set of the Hugging Face hub becomes a directory with "
      "`hf download --repo-type dataset {} --local-dir {}` (pip install huggingface_hub), of which "
      "atoll reads *.txt and *.jsonl",
      name, fs::path(name).filename().string());
}

}  // namespace

std::string advice_for_absent(const fs::path& path) {
  const std::string wanted = path.filename().string();
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  fs::directory_iterator entries(parent, error);
  // Short names are near to each other without being meant for each other.
  std::size_t least = path.stem().string().size() / 3 + 1;
  std::string nearest;
  constexpr std::size_t kLongest = 100;
  if (wanted.size() > kLongest) return "";
  for (int i = 0; !error && entries != fs::directory_iterator() && i < kMostNames; ++i) {
    const std::string name = entries->path().filename().string();
    const std::size_t distance = name.size() > kLongest ? least : edit_distance(wanted, name);
    if (distance < least) {
      nearest = name;
      least = distance;
    }
    entries.increment(error);
  }
  // One that is there, but not what was wanted, is nobody's slip of the pen.
  if (nearest.empty() || nearest == wanted) return "";
  return fmt::format("; did you mean {}?", (path.parent_path() / nearest).string());
}

std::string advice_for_absent_model(const fs::path& path) {
  const std::string name = hub_name(path);
  if (name.empty()) return advice_for_absent(path);
  return fmt::format(
      ", and atoll downloads nothing; a model of the Hugging Face hub becomes a directory with `hf "
      "download {} --local-dir {}` (pip install huggingface_hub): give that directory",
      name, fs::path(name).filename().string());
}

std::string advice_for_absent_text(const fs::path& path) {
  const std::string text = path.string();
  if (text == "-") return "; standard input is not read for text, write it to a file";
  for (const std::string_view before :
       {"https://huggingface.co/datasets/", "hf://datasets/", "hf://"}) {
    if (text.starts_with(before)) return advice_for_data_set(text.substr(before.size()));
  }
  if (text.find("://") != std::string::npos) {
    return ", and atoll downloads nothing; fetch it first (curl -LO, aws s3 cp, gsutil cp) and "
           "give "
           "the file";
  }
  if (const std::size_t at = text.find_first_of("*?["); at != std::string::npos) {
    const fs::path parent = fs::path(text.substr(0, at)).parent_path();
    return fmt::format(
        "; atoll expands no patterns: give the directory ({}), in which it finds texts, or names "
        "(on the command line of `atoll tokenize` without quotes, behind --data.text= with commas)",
        parent.empty() ? "." : parent.string());
  }
  // "books/x.txt" is a file that is missing with its directory.
  const std::string extension = path.extension().string();
  const bool is_file = extension == ".txt" || extension == ".jsonl" || extension == ".json" ||
                       extension == ".bin" || extension == ".md" || extension == ".csv";
  if (is_hub_name(path) && !is_file) return advice_for_data_set(text);
  return advice_for_absent(path);
}

bool is_hub_name(const fs::path& path) {
  return !hub_name(path).empty();
}

}  // namespace atl
