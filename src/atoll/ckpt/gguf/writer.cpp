#include "atoll/ckpt/gguf/writer.h"

#include <algorithm>
#include <type_traits>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
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

}  // namespace

WrittenFile write_gguf(const std::filesystem::path& path, const GgufFields& fields,
                       std::span<const GgufSource> sources) {
  const std::string header = header_of(fields, sources);
  AtomicFile file(path);
  file.write(header);
  for (const GgufSource& source : sources) {
    const RowReader read = source.rows.open();
    std::vector<float> row(static_cast<std::size_t>(source.rows.width()));
    std::vector<std::byte> bytes(ggml_row_bytes(source.type, source.rows.width()));
    for (std::int64_t r = 0; r < source.rows.num_rows(); ++r) {
      read(r, row);
      encode(source.type, row, bytes, source.rows.name);
      file.write(bytes.data(), bytes.size());
    }
    const std::string padding(padded(data_bytes(source)) - data_bytes(source), '\0');
    file.write(padding);
  }
  const WrittenFile written{file.bytes_written(), file.digest()};
  file.commit();
  return written;
}

}  // namespace atl::ckpt
