#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/base/files/append_file.h"
#include "atoll/metrics/sink.h"

namespace atl::watch {

/// The CRC-32C (Castagnoli) of `data`: reflected, polynomial 0x1edc6f41, as iSCSI has it.
std::uint32_t crc32c(std::string_view data);

/// One TFRecord: u64 size, masked CRC of the size, the payload, masked CRC of the payload.
std::string tfrecord(std::string_view payload);

/// Writes numeric metrics as scalars of TensorBoard: `events.out.tfevents.<time>.<host>.<pid>` in a
/// directory that it shows as one run. A metric named without a group goes to "train/"; text
/// metrics are left out, and numbers are rounded to f32, as the format has it.
class TensorBoardSink : public metrics::Sink {
 public:
  /// Makes the directory if need be, and a new file in it. With `last_step` >= 0 the viewer is told
  /// to forget what earlier files have of later steps, which this run will write again; a new
  /// run gives -1. Throws Error naming the path.
  TensorBoardSink(const std::filesystem::path& directory, std::int64_t last_step);

  void write(const metrics::Record& record) override;
  void flush() override { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace atl::watch
