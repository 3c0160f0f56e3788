#include <unistd.h>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/rename.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

namespace {

void remove_directory(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warning("cannot remove {}: {}", path.string(), error.message());
}

}  // namespace

CheckpointWriter::CheckpointWriter(const fs::path& root, std::int64_t step)
    : root_(root),
      step_(step),
      final_(root / checkpoint_name(step)),
      temporary_(root / stale_name(kTemporaryPrefix, step)) {
  ATOLL_CHECK(step >= 0, "step {}", step);
  std::error_code error;
  fs::create_directories(root_, error);
  if (error) throw io_error("cannot create", root_, error.value());
  remove_directory(temporary_);  // of an earlier process that had the same number
  if (io_fault::fires(io_fault::Call::kOpen, temporary_))
    error.assign(errno, std::generic_category());
  if (!error) fs::create_directory(temporary_, error);
  if (error) throw io_error("cannot create", temporary_, error.value());
  try {
    lock_ = std::make_unique<DirectoryLock>(temporary_, "one process writes a checkpoint");
  } catch (...) {
    remove_directory(temporary_);
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (!temporary_.empty()) remove_directory(temporary_);
}

fs::path CheckpointWriter::file_path(const std::string& name) const {
  ATOLL_CHECK(!name.empty() && name.find('/') == std::string::npos && name[0] != '.',
              "\"{}\" is no plain file name", name);
  return temporary_ / name;
}

void CheckpointWriter::add(const std::string& name, std::string_view content) {
  AtomicFile file(file_path(name));
  file.write(content);
  file.commit();
  files_[name] = {name, file.bytes_written(), to_hex(file.digest())};
}

void CheckpointWriter::add_tensors(const std::string& name, std::span<const NamedTensor> tensors,
                                   const Metadata& metadata) {
  const WrittenFile written = write_safetensors(file_path(name), tensors, metadata);
  files_[name] = {name, written.bytes, to_hex(written.hash)};
}

void CheckpointWriter::add_tensors(const std::string& name, std::span<const TensorSource> sources,
                                   const Metadata& metadata) {
  const WrittenFile written = write_safetensors(file_path(name), sources, metadata);
  files_[name] = {name, written.bytes, to_hex(written.hash)};
}

CheckpointPart::CheckpointPart(const fs::path& temporary) : directory_(temporary) {
  if (directory_exists(directory_)) return;
  throw user_error(
      "{} is not here, where another rank made it; run.dir must be on storage that all ranks share",
      directory_.string());
}

void CheckpointPart::add(const std::string& name, std::string_view content) {
  AtomicFile file(directory_ / name);
  file.write(content);
  file.commit();
  files_.push_back({name, file.bytes_written(), to_hex(file.digest())});
}

void CheckpointPart::add_tensors(const std::string& name, std::span<const TensorSource> sources,
                                 const Metadata& metadata) {
  const WrittenFile written = write_safetensors(directory_ / name, sources, metadata);
  files_.push_back({name, written.bytes, to_hex(written.hash)});
}

void CheckpointPart::verify() const {
  for (const ManifestFile& file : files_) {
    if (measure_file(directory_ / file.name) == file) continue;
    throw damaged_error("{} is not as it was written a moment ago; the disk or memory is faulty",
                        (directory_ / file.name).string());
  }
}

Manifest CheckpointWriter::finish_manifest() const {
  std::map<std::string, ManifestFile> files = files_;
  for (const fs::directory_entry& entry : fs::directory_iterator(temporary_)) {
    const std::string name = entry.path().filename().string();
    ATOLL_CHECK(entry.is_regular_file(), "{} is not a file", entry.path().string());
    if (files.contains(name)) continue;
    sync_file(entry.path());
    files[name] = measure_file(entry.path());
  }
  for (const auto& [name, file] : files_) {
    if (path_exists(temporary_ / name)) continue;
    throw user_error(
        "{}, which another rank wrote, is not here; run.dir must be on storage that all ranks "
        "share",
        (temporary_ / name).string());
  }
  Manifest manifest;
  manifest.step = step_;
  for (auto& [name, file] : files) manifest.files.push_back(std::move(file));
  return manifest;
}

void CheckpointWriter::put_in_place() {
  if (!path_exists(final_)) {
    rename_path(temporary_, final_);
    temporary_.clear();
  } else if (!exchange_paths(temporary_, final_)) {
    // A crash between the two leaves none of this name; clean_stale then puts the old one back.
    const fs::path replaced = root_ / stale_name(kReplacedPrefix, step_);
    remove_directory(replaced);
    rename_path(final_, replaced);
    try {
      rename_path(temporary_, final_);
    } catch (...) {
      rename_path(replaced, final_);
      throw;
    }
    temporary_ = replaced;
  }
}

fs::path CheckpointWriter::commit() {
  ATOLL_CHECK(!temporary_.empty(), "committed twice");
  write_file(temporary_ / kManifestFile, to_json(finish_manifest()));
  put_in_place();
  sync_directory(root_);
  if (!temporary_.empty()) remove_directory(temporary_);
  temporary_.clear();
  return final_;
}

}  // namespace atl::ckpt
