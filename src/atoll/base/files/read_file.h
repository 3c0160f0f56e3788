#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace atl {

/// What read_file() takes at most: settings, a model's description, a manifest of files.
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;
/// For what lists a vocabulary or the files of a corpus.
inline constexpr std::uint64_t kMaxListBytes = std::uint64_t{1} << 30;
/// For what grows with the work of its user: a log, the questions of a task.
inline constexpr std::uint64_t kMaxLogBytes = std::uint64_t{1} << 34;

/// The whole of a regular file. Throws Error(kUser) when there is none, when it is a pipe, a device
/// or the like, which could hang or never end, and when it has more than `max_bytes`; Error(kIo)
/// when it cannot be read.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// The same of at most kMaxFileBytes.
std::string read_file(const std::filesystem::path& path);

/// Opens a regular file for reading and gives its descriptor; `bytes` becomes the size that the
/// system says. Throws as read_file() does, without a limit. Never waits for a pipe's other end.
int open_regular_file(const std::filesystem::path& path, std::uint64_t& bytes);

}  // namespace atl
