#include "atoll/train/corpus/missing_text.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/hub/dataset.h"

namespace atl::train {

namespace {

namespace fs = std::filesystem;

// The comment of a line "recipes/kjv-demo.toml:19"; empty when it has none.
std::string comment_at(const std::string& origin) {
  const std::size_t colon = origin.rfind(':');
  if (colon == origin.npos || !file_exists(origin.substr(0, colon))) return "";
  int number = 0;
  std::from_chars(origin.data() + colon + 1, origin.data() + origin.size(), number);
  std::istringstream lines(read_file(origin.substr(0, colon)));
  std::string line;
  for (int i = 0; i < number; ++i) {
    if (!std::getline(lines, line)) return "";
  }
  const std::size_t hash = line.rfind(" #");
  // One within quotes begins no comment.
  if (hash == line.npos ||
      std::count(line.begin() + static_cast<std::ptrdiff_t>(hash), line.end(), '"') % 2 != 0) {
    return "";
  }
  const std::size_t begin = line.find_first_not_of("# ", hash);
  return begin == line.npos ? "" : line.substr(begin);
}

}  // namespace

void require_texts(const TrainConfig& config, const Settings& settings) {
  for (const std::string& text : config.data.text) {
    if (hub::names_data_set(text) || path_exists(text)) continue;
    const std::string& origin = settings.find("data.text").origin;
    const std::string comment = comment_at(origin);
    const std::string advice = advice_for_absent_text(text);
    throw user_error(
        "there is no file or directory {} (data.text, {}{}){}", text, origin,
        comment.empty() ? "" : ": " + comment,
        advice.empty() ? "; make it, or give a text of yours: --data.text=FILE" : advice);
  }
}

}  // namespace atl::train
