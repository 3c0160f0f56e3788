#pragma once

// The GGUF format, versions 2 and 3 (little-endian): metadata, a table of tensors, aligned data.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file is checked whole before use.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/gguf/ggml_types.h"
#include "atoll/ckpt/safetensors/float_rows.h"

namespace atl::ckpt {

/// Kinds of metadata values, numbered as in the file.
enum class GgufKind : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// One metadata value: a scalar, which is an array of one, or an array of scalars or strings.
struct GgufValue {
  bool is_array = false;
  GgufKind kind = GgufKind::kU8;          ///< of the scalar, or of each element
  std::span<const std::byte> bytes;       ///< the elements as in the file; strings apart
  std::vector<std::string_view> strings;  ///< of kString
};

/// One tensor as the table states it.
struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< outermost first, 1 to 4 dims; the file has it reversed
  GgmlType type = GgmlType::kF32;
  std::uint64_t begin = 0;  ///< bytes [begin, end) of the file
  std::uint64_t end = 0;
  std::size_t file = 0;  ///< of a model in several files: which
};

/// A checked header. Its views point into the file's bytes.
struct GgufHeader {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  ///< in the order of the table
};

/// Parses and checks the header of a whole file's bytes: counts and lengths against the bytes that
/// are there, keys and names each once, shapes without overflow, rows of whole blocks, tensors at
/// aligned offsets, without overlap, that with zeros for padding are the whole file. Throws
/// Error(kDamaged) naming `origin` (the file), the key or tensor, and the value; Error(kUser) for
/// versions and types atoll does not read.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& origin);

/// A GGUF file, mapped, or the files of a model that was split ("model-00001-of-00003.gguf"). Views
/// live as long as this object.
class GgufFile {
 public:
  /// `path`: the file, or any of the files of a split model, which lie beside it; metadata are the
  /// first's. Throws Error(kUser) when a file is not there or is none of this model, and as
  /// parse_gguf.
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return header_.metadata; }
  /// The tensor of this name, or null.
  const GgufTensor* find(std::string_view name) const;
  /// A tensor's rows, dequantised as they are read. The file must outlive the reader.
  FloatRows rows(const GgufTensor& tensor) const;
  /// Its bytes as they lie in the file.
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;

  bool has(std::string_view key) const { return header_.metadata.contains(key); }
  // Metadata by key, whatever the width of the number in the file. Each throws Error(kUser) naming
  // the file and the key when it is missing and Error(kDamaged) when it is of another kind. The
  // forms with a fallback give that when the key is missing.
  std::int64_t integer(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, const std::string& fallback) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

 private:
  void add_split(const std::filesystem::path& path, std::size_t index, std::size_t count);
  const GgufValue& get(std::string_view key) const;
  const GgufValue& scalar(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  GgufHeader header_;
};

}  // namespace atl::ckpt
