#include "atoll/ckpt/gguf/writer.h"

#include <algorithm>
#include <type_traits>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/gguf/ggml_encode.h"
#include "atoll/ckpt/gguf/gguf.h"

namespace atl::ckpt {

namespace {

constexpr std::uint64_t kAlignment = 32;

class Header {
 public:
  template <typename T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void kind(GgufKind kind) { number(static_cast<std::uint32_t>(kind)); }
  void string(std::string_view value) {
    number(std::uint64_t{value.size()});
    text_ += value;
  }

  void field(const GgufField& field) {
    std::visit([this](const auto& value) { this->value(value); }, field);
  }
  void pad() { text_.append((kAlignment - text_.size() % kAlignment) % kAlignment, '\0'); }

  std::string& text() { return text_; }

 private:
  template <typename T>
  static constexpr GgufKind kind_of() {
    if constexpr (std::is_same_v<T, bool>) return GgufKind::kBool;
    if constexpr (std::is_same_v<T, std::uint32_t>) return GgufKind::kU32;
    if constexpr (std::is_same_v<T, std::int32_t>) return GgufKind::kI32;
    if constexpr (std::is_same_v<T, float>) return GgufKind::kF32;
    return GgufKind::kString;
  }
  template <typename T>
  void element(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      string(value);
    } else {
      number(value);
    }
  }
  template <typename T>
  void value(const T& value) {
    kind(kind_of<T>());
    element(value);
  }
  template <typename T>
  void value(const std::vector<T>& values) {
    kind(GgufKind::kArray);
    kind(kind_of<T>());
    number(std::uint64_t{values.size()});
    for (const T& value : values) element(value);
  }

  std::string text_;
};

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint64_t data_bytes(const GgufSource& source) {
  return static_cast<std::uint64_t>(source.rows.num_rows()) *
         ggml_row_bytes(source.type, source.rows.width());
}

void check_blocks(const GgufSource& source) {
  const GgmlLayout layout = ggml_layout(source.type);
  if (source.rows.width() % layout.block_elements != 0) {
    throw user_error(
        "tensor \"{}\" has rows of {} elements, and {} needs a multiple of {}; choose f16",
        source.rows.name, source.rows.width(), layout.name, layout.block_elements);
  }
}

std::string header_of(const GgufFields& fields, std::span<const GgufSource> sources) {
  Header header;
  header.text() = "GGUF";
  header.number(std::uint32_t{3});
  header.number(std::uint64_t{sources.size()});
  header.number(std::uint64_t{fields.size()});
  for (const auto& [key, field] : fields) {
    header.string(key);
    header.field(field);
  }
  std::uint64_t offset = 0;
  for (const GgufSource& source : sources) {
    check_blocks(source);
    header.string(source.rows.name);
    const auto& shape = source.rows.shape;
    header.number(static_cast<std::uint32_t>(shape.size()));
    for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) {
      header.number(static_cast<std::uint64_t>(*dim));
    }
    header.number(static_cast<std::uint32_t>(source.type));
    header.number(offset);
    offset += padded(data_bytes(source));
  }
  header.pad();
  return std::move(header.text());
}

// The importance of a row's columns.
std::span<const float> importance_of(const GgufSource& source, std::int64_t row) {
  const std::span<const float> all = source.importance;
  if (all.empty()) return all;
  const auto width = static_cast<std::size_t>(source.rows.width());
  const auto matrices = static_cast<std::int64_t>(all.size() / width);
  return all.subspan(static_cast<std::size_t>(row * matrices / source.rows.num_rows()) * width,
                     width);
}

void check_importance(const GgufSource& source) {
  const auto width = static_cast<std::size_t>(source.rows.width());
  const auto rows = static_cast<std::size_t>(source.rows.num_rows());
  ATOLL_CHECK(source.importance.size() % width == 0, "{}", source.rows.name);
  ATOLL_CHECK(source.importance.empty() || rows % (source.importance.size() / width) == 0, "{}",
              source.rows.name);
}

// Rows of one tensor on their way, some at a time.
class RowEncoder {
 public:
  RowEncoder(const GgufSource& source, ThreadPool* threads)
      : source_(source),
        threads_(threads),
        read_(source.rows.open()),
        width_(static_cast<std::size_t>(source.rows.width())),
        row_bytes_(ggml_row_bytes(source.type, source.rows.width())) {
    check_importance(source);
    const std::int64_t most = kRows * (threads == nullptr ? 1 : threads->num_threads());
    batch_ = std::min(most, source.rows.num_rows());
    floats_.resize(static_cast<std::size_t>(batch_) * width_);
    bytes_.resize(static_cast<std::size_t>(batch_) * row_bytes_);
  }

  void write(AtomicFile& file) {
    for (std::int64_t begin = 0; begin < source_.rows.num_rows(); begin += batch_) {
      const std::int64_t count = std::min(batch_, source_.rows.num_rows() - begin);
      for (std::int64_t r = 0; r < count; ++r) read_(begin + r, floats_of(r));
      if (threads_ == nullptr) {
        for (std::int64_t r = 0; r < count; ++r) encode_row(begin, r);
      } else {
        threads_->run_chunked(count, 4, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t r = first; r < last; ++r) encode_row(begin, r);
        });
      }
      file.write(bytes_.data(), static_cast<std::size_t>(count) * row_bytes_);
    }
  }

 private:
  static constexpr std::int64_t kRows = 64;

  std::span<float> floats_of(std::int64_t r) {
    return std::span(floats_).subspan(static_cast<std::size_t>(r) * width_, width_);
  }
  void encode_row(std::int64_t begin, std::int64_t r) {
    const auto at = static_cast<std::size_t>(r) * row_bytes_;
    encode(source_.type, floats_of(r), std::span(bytes_).subspan(at, row_bytes_), source_.rows.name,
           importance_of(source_, begin + r));
  }

  const GgufSource& source_;
  ThreadPool* threads_;
  RowReader read_;
  std::size_t width_;
  std::size_t row_bytes_;
  std::int64_t batch_;
  std::vector<float> floats_;
  std::vector<std::byte> bytes_;
};

}  // namespace

WrittenFile write_gguf(const std::filesystem::path& path, const GgufFields& fields,
                       std::span<const GgufSource> sources, ThreadPool* threads) {
  const std::string header = header_of(fields, sources);
  AtomicFile file(path);
  file.write(header);
  for (const GgufSource& source : sources) {
    RowEncoder(source, threads).write(file);
    const std::string padding(padded(data_bytes(source)) - data_bytes(source), '\0');
    file.write(padding);
  }
  const WrittenFile written{file.bytes_written(), file.digest()};
  file.commit();
  return written;
}

}  // namespace atl::ckpt
