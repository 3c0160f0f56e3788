#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/base/files/append_file.h"
#include "atoll/metrics/sink.h"

namespace atl::watch {

/// The CRC-32C (Castagnoli) of `data`: reflected, polynomial 0x1edc6f41, as in iSCSI.
std::uint32_t crc32c(std::string_view data);

/// One TFRecord: u64 size, masked CRC of the size, the payload, masked CRC of the payload.
std::string tfrecord(std::string_view payload);

/// Writes numeric metrics as TensorBoard scalars, to `events.out.tfevents.<time>.<host>.<pid>.<n>`
/// in a directory that TensorBoard shows as one run. A metric without a group gets the group
/// "train/". Text metrics are left out. Numbers are rounded to f32, the format's type.
class TensorBoardSink : public metrics::Sink {
 public:
  /// Makes a new file, and the directory if needed, for a run that goes on after `last_step`; a new
  /// run gives -1. TensorBoard then ignores later steps in earlier files, which this run will write
  /// again. Throws Error naming the path.
  TensorBoardSink(const std::filesystem::path& directory, std::int64_t last_step);

  void write(const metrics::Record& record) override;
  void flush() override { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace atl::watch
