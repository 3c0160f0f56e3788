#pragma once

// How a person names a model or a data set of the hub, and a part of it.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace atl::hub {

/// What a repository of the hub holds.
enum class RepoKind { kModel, kDataset };

/// "model" or "data set", for messages.
const char* kind_name(RepoKind kind);

/// A repository of the hub at one revision, and what of it is meant.
struct RepoName {
  RepoKind kind = RepoKind::kModel;
  std::string id;                 ///< "org/name", or "name" of the oldest
  std::string revision = "main";  ///< a branch, a tag, or a commit
  std::string path;               ///< a file or a directory in it; empty: all
  std::string variant;            ///< of GGUF files: "Q4_K_M"; empty: no GGUF file is meant

  /// As a person writes it: "org/name", "hf://datasets/org/name@v2/train".
  std::string text() const;
};

/// Whether the hub allows it as the name of a repository: one or two words of letters, digits,
/// '-', '_' and '.', at most 96 bytes, without "--" or "..", no '-' or '.' at an end.
bool is_repo_id(std::string_view id);

/// Whether it is the whole name of a commit: 40 hexadecimal digits.
bool is_commit(std::string_view revision);

/// Whether a path in a repository can be one below a directory: no empty, "." or ".." part, no
/// control character or backslash.
bool is_safe_path(std::string_view path);

/// Parses org/name[@REVISION][:VARIANT], hf://[models/|datasets/]org/name[@REVISION][/PATH], or an
/// address of huggingface.co. `kind` is what a name without "datasets/" means. A revision with a
/// slash is written with %2F, or is refs/pr/N. Nothing where it is written in no such way.
std::optional<RepoName> parse_name(std::string_view text, RepoKind kind);

/// Parses a word that may also be a path: nothing where there is a file or directory of that name,
/// where the directory that it would be in is there, or where it is written like a path.
std::optional<RepoName> name_unless_path(const std::filesystem::path& path, RepoKind kind);

}  // namespace atl::hub
