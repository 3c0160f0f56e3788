#pragma once

// The files that a study's recipe names, for workers on machines that do not have them.

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tune/lease/lease_messages.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// An input, and where it is on this machine.
struct LocalInput {
  Input input;
  std::filesystem::path root;  ///< that the paths of its files begin from
};

/// All of a study. Throws Error(kUser) when one is not there, or when the space chooses between
/// paths: those of other machines cannot be told.
std::vector<LocalInput> inputs_of(const Study& study);

/// Where a worker keeps input `index` in its directory.
std::filesystem::path input_root(const std::filesystem::path& dir, std::size_t index,
                                 const Input& input);
/// What tells the study and its recipe of a worker where the inputs are now: "--data.text=[...]".
std::vector<std::string> input_overrides(const std::filesystem::path& dir,
                                         const std::vector<Input>& inputs);

/// Which files of a trial's directory travel: all but locks, unfinished files, and the tokens,
/// which are the study's.
bool travels(std::string_view path);

}  // namespace atl::tune
