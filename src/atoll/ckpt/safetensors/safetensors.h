#pragma once

// The safetensors format: u64 header size, a JSON header, then the tensors' bytes, little-endian.
// https://huggingface.co/docs/safetensors. A file is checked whole, before anything of it is used.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/tensor/tensor.h"

namespace atl::ckpt {

/// The `__metadata__` of a file: text to text.
using Metadata = std::map<std::string, std::string>;

/// One tensor as the header states it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                ///< as written: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::int64_t> shape;  ///< up to 8 dims; a scalar has none
  std::uint64_t begin = 0;          ///< bytes [begin, end) of the data behind the header
  std::uint64_t end = 0;
};

/// A checked header, apart from its file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
  Metadata metadata;
  std::uint64_t data_offset = 0;  ///< where the data begins in the file
};

/// Parses and checks the header of a whole file's bytes: at most 100 MB, no name twice, no
/// overflow, bytes as many as shape and dtype need, tensors without gap or overlap up to the last
/// byte. What the safetensors library reads past is read past: other keys of an entry, white space
/// round the JSON, a `__metadata__` of null. Throws Error(kUser) for a Git LFS pointer,
/// Error(kDamaged) naming `origin` (the file), the tensor and the numbers.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin);

/// The Dtype that the format calls `name`; nothing for one that Tensor does not have.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);
/// The format's name of a Dtype: "F32", "BF16", ...
std::string_view safetensors_name(Dtype dtype);

/// A safetensors file, mapped. Views live as long as this object.
class SafetensorsFile {
 public:
  /// Throws Error(kUser) when there is no such file, Error(kDamaged) as parse_safetensors does.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// All tensors in the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }

  /// Calls each tensor by what `name_of` gives for its name; those of an empty name are left out of
  /// everything that this says. Throws Error(kDamaged) when two tensors get one name.
  void rename(const std::function<std::string(std::string_view)>& name_of);

  bool contains(std::string_view name) const { return index_.contains(name); }
  /// Throws Error(kUser) naming the file when it has no such tensor.
  const SafetensorsEntry& find(std::string_view name) const;
  /// Shape and dtype; throws Error(kUser) for a dtype or rank (> 4) that Tensor does not have.
  Spec spec(std::string_view name) const;
  /// The bytes as they lie in the file, at any alignment.
  std::span<const std::byte> bytes(std::string_view name) const;
  /// A read-only view: writing through it is a segmentation fault. Throws Error(kUser) as spec()
  /// does and when the bytes are not aligned for the dtype; read() and read_f32() take those.
  Tensor tensor(std::string_view name) const;

  /// Copies a tensor whose dtype and shape are those of `out`; throws Error(kUser) otherwise.
  void read(std::string_view name, Tensor out) const;
  /// The dtype of a float tensor of that shape; throws Error(kUser) when it is of another, or of no
  /// floats.
  Dtype check_floats(std::string_view name, const Shape& shape) const;
  /// Copies a float tensor of any width into one of the same shape and any float dtype: bit for bit
  /// when the dtypes agree. Throws Error(kUser) when the shapes differ or the file has no floats.
  void read_floats(std::string_view name, Tensor out) const;
  /// Copies a float tensor of any width as f32. Throws Error(kUser) when the shape is not that of
  /// `out` (which is f32) or the dtype not a float.
  void read_f32(std::string_view name, Tensor out) const;
  /// The same, where only the number of elements must agree.
  void read_f32(std::string_view name, std::span<float> out) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace atl::ckpt
