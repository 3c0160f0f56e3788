#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace atl::ckpt {

/// Before the name of a checkpoint that is being written or removed.
constexpr std::string_view kTemporaryPrefix = ".tmp-";
/// Before the name of a checkpoint that stands aside while its successor takes its name.
constexpr std::string_view kReplacedPrefix = ".old-";

/// "step-00000100".
std::string checkpoint_name(std::int64_t step);
/// The reverse; nothing for any other name.
std::optional<std::int64_t> parse_checkpoint_name(const std::string& name);
/// A name such as ".tmp-step-00000100-4711", of this process.
std::string stale_name(std::string_view prefix, std::int64_t step);

}  // namespace atl::ckpt
