#pragma once

// What a study's directory holds, read back.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/tune/trial/history.h"
#include "atoll/tune/trial/store.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// The study in a directory, as it was begun. `more`: settings of the study that are to be others
/// now. Throws Error(kUser) when there is none.
std::unique_ptr<Study> open_study(const std::filesystem::path& dir,
                                  const std::vector<std::string>& more = {});

/// What a store's events have come to. Throws Error(kDamaged).
History history_of(const StudyContent& content);

}  // namespace atl::tune
