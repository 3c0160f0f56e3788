#pragma once

// The files that a study's recipe names, for workers on machines that do not have them.

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tune/lease/lease_messages.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// An input of a study, and its place on this machine.
struct LocalInput {
  Input input;
  std::filesystem::path root;  ///< the paths in Input::files are relative to it
};

/// All inputs of a study. Throws Error(kUser) when an input does not exist, or when the search
/// space has a setting whose values are paths: workers do not have these paths.
std::vector<LocalInput> inputs_of(const Study& study);

/// Where a worker whose directory is `dir` keeps the files of input `index`.
std::filesystem::path input_root(const std::filesystem::path& dir, std::size_t index,
                                 const Input& input);
/// The command-line settings that point a worker's study and recipe to the copies of the inputs in
/// `dir`: "--data.text=[...]".
std::vector<std::string> input_overrides(const std::filesystem::path& dir,
                                         const std::vector<Input>& inputs);

/// Whether a file of a trial's directory is copied between tuner and worker: not a lock, a hidden
/// or unfinished file, or the tokens, which are copied once for the whole study.
bool travels(std::string_view path);

}  // namespace atl::tune
