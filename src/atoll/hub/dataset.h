#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/hub/snapshot.h"

namespace atl::hub {

/// Whether a file of that path in a data set is read.
using IsRead = std::function<bool(const std::filesystem::path& path)>;

/// Of a data set the files at or below name.path that `is_read` says yes to; a file that is named
/// itself is taken whatever it is. Throws Error(kUser) naming the endings that there are when none
/// is read.
std::vector<RepoFile> choose_data_files(const RepoName& name, const std::vector<RepoFile>& files,
                                        const IsRead& is_read);

/// Whether it is written as a data set of the hub: hf://datasets/org/name[@REVISION][/PATH].
bool names_data_set(const std::string& text);

/// Texts as they are on this machine: data sets of the hub are got, and are the files of them that
/// `is_read` says yes to; all others stay. One process gets a name once. Throws as get_snapshot,
/// and Error(kUser) for an hf:// address that is no data set.
std::vector<std::filesystem::path> local_texts(const std::vector<std::filesystem::path>& texts,
                                               const IsRead& is_read);

}  // namespace atl::hub
