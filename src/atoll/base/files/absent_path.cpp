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

// Whether a path may be meant as a name of the Hugging Face hub: "org/name".
bool is_like_hub_name(const fs::path& path) {
  std::error_code ignored;
  if (std::distance(path.begin(), path.end()) != 2 || fs::exists(path.parent_path(), ignored)) {
    return false;
  }
  return is_hub_word(path.parent_path().string()) && is_hub_word(path.filename().string());
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

std::string advice_for_absent_text(const fs::path& path) {
  const std::string text = path.string();
  if (text == "-") return "; standard input is not read for text, write it to a file";
  if (text.find("://") != std::string::npos) {
    return ", and of addresses atoll reads hf://datasets/ORG/NAME; fetch it first (curl -LO, aws "
           "s3 cp, gsutil cp) and "
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
  if (is_like_hub_name(path) && !is_file) {
    return fmt::format("; a data set of the Hugging Face hub is written hf://datasets/{}", text);
  }
  return advice_for_absent(path);
}

}  // namespace atl
