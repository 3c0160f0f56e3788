#include "atoll/tune/lease/file_transfer.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/tune/lease/lease_messages.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kRetry{500};

// Calls `move` until the transfer is complete. False: `stop` was requested, or the tuner refuses or
// no longer offers the file.
template <typename Move>
bool persist(const std::stop_token& stop, const Move& move) {
  while (!stop.stop_requested()) {
    const wire::TransferResult result = move();
    switch (result.end) {
      case wire::TransferEnd::kDone:
        return true;
      case wire::TransferEnd::kGone:
      case wire::TransferEnd::kCancelled:
        return false;
      case wire::TransferEnd::kRefused:
        log::warning("the tuner refuses a file: {}", result.why);
        return false;
      case wire::TransferEnd::kUnreachable:
      case wire::TransferEnd::kDamaged:
        std::this_thread::sleep_for(kRetry);
        break;
    }
  }
  return false;
}

}  // namespace

bool FileTransfer::fetch(const std::string& list, const std::vector<FileEntry>& files,
                         const fs::path& root, const std::stop_token& stop) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (has_file(root, files[i])) continue;
    if (!fetch_one(file_key(list, i), files[i], root, stop)) return false;
  }
  return true;
}

bool FileTransfer::put(const std::string& list, const std::vector<FileEntry>& files,
                       const std::vector<int>& wanted, const fs::path& root,
                       const std::stop_token& stop) {
  for (const int index : wanted) {
    const auto i = static_cast<std::size_t>(index);
    if (i >= files.size()) return false;
    if (files[i].bytes == 0) continue;
    const MappedFile file(root / files[i].path);
    const std::span<const std::byte> bytes = file.bytes();
    if (bytes.size() != files[i].bytes) return false;
    const wire::Reader read = [bytes](std::uint64_t offset, std::span<std::byte> out) {
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    };
    std::vector<bool> done;
    const bool is_put = persist(stop, [&] {
      return client_.put({.key = file_key(list, i), .bytes = bytes.size(), .cancel = stop}, done,
                         read);
    });
    if (!is_put) return false;
  }
  return true;
}

bool FileTransfer::fetch_one(const std::string& key, const FileEntry& file, const fs::path& root,
                             const std::stop_token& stop) {
  const fs::path path = root / file.path;
  const fs::path coming = path.parent_path() / (".coming-" + path.filename().string());
  const FileInPieces pieces(coming, file.bytes);
  std::vector<bool> done;
  const bool is_whole =
      file.bytes == 0 || persist(stop, [&] {
        return client_.fetch({.key = key, .bytes = file.bytes, .cancel = stop}, done,
                             [&](std::uint64_t offset, std::span<const std::byte> data) {
                               pieces.write(offset, data);
                             });
      });
  if (!is_whole) return false;
  std::error_code failure;
  fs::rename(coming, path, failure);
  if (failure) throw io_error("cannot put in place", path, failure.value());
  if (has_file(root, file)) return true;
  throw damaged_error("{} came from the tuner with another content than it said", path.string());
}

}  // namespace atl::tune
