#include "atoll/tune/run/open_study.h"

#include "atoll/base/error.h"

namespace atl::tune {

namespace fs = std::filesystem;

std::unique_ptr<Study> open_study(const fs::path& dir, const std::vector<std::string>& more) {
  // A tuner that was killed in its first moments leaves a study to begin, and no store.
  const bool has_files = has_tuner_files(dir);
  if (!has_files || has_begun(dir)) read_study(dir);  // says what is wrong where there is none
  if (!has_files) {
    throw user_error(
        "{} has no study.toml: its tuner was killed before it wrote that; the `atoll tune` command "
        "that began the study goes on",
        dir.string());
  }
  std::vector<std::string> overrides = more;
  overrides.push_back("--study.dir=" + dir.string());
  overrides.push_back("--study.recipe=" + (dir / "recipe.toml").string());
  return std::make_unique<Study>(dir / kStudyToml, overrides);
}

History history_of(const StudyContent& content) {
  History history;
  for (const LoggedEvent& logged : content.events) history.apply(logged.event);
  return history;
}

}  // namespace atl::tune
