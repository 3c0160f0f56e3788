#include "atoll/tune/lease/lease_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/processes/process.h"
#include "atoll/tune/lease/inputs.h"
#include "atoll/tune/trial/trial_run.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

// Reads a file. Opens it at the first read, and keeps it open until the blob is withdrawn.
class FileReader {
 public:
  explicit FileReader(fs::path path) : path_(std::move(path)) {}
  void read(std::uint64_t offset, std::span<std::byte> out) {
    const int fd = descriptor();
    while (!out.empty()) {
      const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw io_error("cannot read", path_, got < 0 ? errno : EIO);
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  int descriptor() {
    const std::lock_guard lock(mutex_);
    if (!fd_.open()) {
      fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd_.open()) throw io_error("cannot read", path_, errno);
    }
    return fd_.get();
  }

  fs::path path_;
  std::mutex mutex_;
  Fd fd_;
};

// The directory of the checkpoint that a file is in, "run/checkpoints/00000020"; empty: it is in
// none.
std::string checkpoint_of(const std::string& path) {
  constexpr std::string_view kFolder = "/checkpoints/";
  const std::size_t at = path.find(kFolder);
  if (at == std::string::npos) return "";
  const std::size_t end = path.find('/', at + kFolder.size());
  return end == std::string::npos ? "" : path.substr(0, end);
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to.parent_path(), failure);
  if (!failure) fs::rename(from, to, failure);
  if (failure) throw io_error("cannot put in place", to, failure.value());
}

void remove_tree(const fs::path& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) throw io_error("cannot remove", path, failure.value());
}

// Removes the checkpoints below `root` of which no file is in `names`: the run on the worker has
// removed them.
void remove_old_checkpoints(const fs::path& root, const std::set<std::string>& names) {
  std::set<std::string> gone;
  std::error_code ignored;
  for (const fs::directory_entry& entry : entries_below(root)) {
    const std::string path = entry.path().lexically_relative(root).generic_string();
    const std::string checkpoint = checkpoint_of(path);
    if (!checkpoint.empty() && entry.is_regular_file(ignored) && travels(path) &&
        !names.contains(path)) {
      gone.insert(checkpoint);
    }
  }
  for (const std::string& checkpoint : gone) {
    const bool is_kept = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return checkpoint_of(name) == checkpoint;
    });
    // A failure does not matter: the run no longer needs this checkpoint.
    if (!is_kept) fs::remove_all(root / checkpoint, ignored);
  }
}

}  // namespace

void LeaseFiles::publish(const std::string& list, const std::vector<FileEntry>& files,
                         const fs::path& root, const std::string& peer) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].bytes == 0) continue;
    const auto reader = std::make_shared<FileReader>(root / files[i].path);
    wire::PublishedBlob blob = {
        .key = file_key(list, i),
        .bytes = files[i].bytes,
        .reader = [reader](std::uint64_t offset,
                           std::span<std::byte> out) { reader->read(offset, out); },
        .is_complete = true};
    if (!peer.empty()) blob.peers = {peer};
    blobs_.publish(std::move(blob));
  }
}

std::vector<int> LeaseFiles::expect(const LeaseId& lease, const std::vector<FileEntry>& files,
                                    const std::string& peer) {
  blobs_.withdraw(back_list(lease) + "/");
  Incoming& incoming = incoming_[lease];
  incoming = {.files = files, .wanted = {}, .pieces = {}};
  const fs::path root = trial_dir(study_, lease.trial);
  const fs::path staged = staging(lease);
  remove_tree(staged);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const FileEntry& file = files[i];
    if (has_file(root, file)) continue;
    incoming.wanted.push_back(static_cast<int>(i));
    incoming.pieces.push_back(std::make_unique<FileInPieces>(staged / file.path, file.bytes));
    if (file.bytes == 0) continue;
    blobs_.allow_put(
        {.key = file_key(back_list(lease), i),
         .bytes = file.bytes,
         .writer = [pieces = incoming.pieces.back().get()](
                       std::uint64_t offset,
                       std::span<const std::byte> data) { pieces->write(offset, data); },
         .peer = peer});
  }
  return incoming.wanted;
}

bool LeaseFiles::is_whole(const LeaseId& lease, Incoming& incoming) {
  for (const int index : incoming.wanted) {
    const auto i = static_cast<std::size_t>(index);
    const bool is_there =
        incoming.files[i].bytes == 0 || blobs_.is_put(file_key(back_list(lease), i));
    if (!is_there) return false;
  }
  blobs_.withdraw(back_list(lease) + "/");
  for (const auto& pieces : incoming.pieces) pieces->sync();
  incoming.pieces.clear();
  return std::all_of(incoming.wanted.begin(), incoming.wanted.end(), [&](int index) {
    return has_file(staging(lease), incoming.files[static_cast<std::size_t>(index)]);
  });
}

bool LeaseFiles::install(const LeaseId& lease) {
  Incoming& incoming = incoming_.at(lease);
  if (!is_whole(lease, incoming)) return false;
  put_in_place(lease, incoming);
  return true;
}

// Moves checkpoints last, and each as a whole. A tuner that is killed in between then leaves
// records whose checkpoint is missing, as a killed run does, but no checkpoint without records.
void LeaseFiles::put_in_place(const LeaseId& lease, const Incoming& incoming) const {
  const fs::path root = trial_dir(study_, lease.trial);
  const fs::path staged = staging(lease);
  std::set<std::string> checkpoints, names;
  for (const int index : incoming.wanted) {
    const std::string& path = incoming.files[static_cast<std::size_t>(index)].path;
    if (const std::string checkpoint = checkpoint_of(path); !checkpoint.empty()) {
      checkpoints.insert(checkpoint);
    } else {
      move_file(staged / path, root / path);
    }
  }
  // A checkpoint of which the tuner had some files already: complete it in the staging directory.
  for (const FileEntry& file : incoming.files) {
    names.insert(file.path);
    if (!checkpoints.contains(checkpoint_of(file.path)) || path_exists(staged / file.path)) {
      continue;
    }
    move_file(root / file.path, staged / file.path);
  }
  for (const std::string& checkpoint : checkpoints) {
    remove_tree(root / checkpoint);
    move_file(staged / checkpoint, root / checkpoint);
    sync_directory((root / checkpoint).parent_path());
  }
  remove_old_checkpoints(root, names);
  std::error_code ignored;  // withdraw() tries again
  fs::remove_all(staged, ignored);
}

void LeaseFiles::withdraw(const LeaseId& lease) {
  blobs_.withdraw(key_of(lease) + "/");  // also the keys of back_list(), which begin the same
  incoming_.erase(lease);
  std::error_code ignored;  // a rest is harmless: the next lease stages elsewhere
  fs::remove_all(staging(lease), ignored);
}

fs::path LeaseFiles::staging(const LeaseId& lease) const {
  return trial_dir(study_, lease.trial) / fmt::format(".incoming-{}", lease.number);
}

}  // namespace atl::tune
