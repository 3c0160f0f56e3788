#pragma once

// What the model that a run began with says of the answers of its data.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace atl::train {

/// The log-probabilities of answers, in nats, by document of each split.
struct References {
  std::vector<double> train;
  std::vector<double> held_out;

  /// Identifies the numbers.
  std::string hash() const;
};

/// Writes them to `path`; `key` says of which model and data they are.
void write_references(const std::filesystem::path& path, const std::string& key,
                      const References& references);

/// References of a file, and the key that they were written with.
struct StoredReferences {
  std::string key;
  References references;
};

/// Reads what write_references() wrote; nothing where there is no such file, or a damaged one.
std::optional<StoredReferences> read_references(const std::filesystem::path& path);

}  // namespace atl::train
