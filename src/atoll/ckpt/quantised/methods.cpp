#include "atoll/ckpt/quantised/methods.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

std::span<const std::byte> part_of(const QuantisedSource& source, const std::string& weight,
                                   const std::string& name, std::size_t bytes) {
  if (!source.directory.contains(name)) {
    throw damaged_error("{}: {} is quantised, and its tensor \"{}\" is missing",
                        source.directory.path().string(), weight, name);
  }
  const SafetensorsFile& file = source.directory.file_of(name);
  const std::span<const std::byte> found = file.bytes(name);
  if (found.size() == bytes) return found;
  throw damaged_error("{}: tensor \"{}\" has {} bytes, and {} needs {}", file.path().string(), name,
                      found.size(), weight, bytes);
}

std::span<const std::byte> typed_part(const QuantisedSource& source, const std::string& weight,
                                      const std::string& name, std::string_view dtype,
                                      std::span<const std::int64_t> shape) {
  const std::optional<Dtype> known = dtype_from_safetensors(dtype);
  std::size_t bytes = known ? dtype_size(*known) : 1;
  for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
  const std::span<const std::byte> found = part_of(source, weight, name, bytes);
  const SafetensorsFile& file = source.directory.file_of(name);
  const SafetensorsEntry& entry = file.find(name);
  if (entry.dtype == dtype &&
      std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end())) {
    return found;
  }
  throw damaged_error("{}: tensor \"{}\" is {} [{}], and {} needs {} [{}]", file.path().string(),
                      name, entry.dtype, fmt::join(entry.shape, ", "), weight, dtype,
                      fmt::join(shape, ", "));
}

Shape matrix_shape(const QuantisedSource& source, const std::string& weight,
                   const std::string& name) {
  if (!source.directory.contains(name)) {
    throw damaged_error("{}: {} is quantised, and its tensor \"{}\" is missing",
                        source.directory.path().string(), weight, name);
  }
  const SafetensorsFile& file = source.directory.file_of(name);
  const std::vector<std::int64_t>& shape = file.find(name).shape;
  if (shape.size() == 2 && shape[0] > 0 && shape[1] > 0) return {shape[0], shape[1]};
  throw damaged_error("{}: tensor \"{}\" has shape [{}], not that of a matrix",
                      file.path().string(), name, fmt::join(shape, ", "));
}

void check_shape(const QuantisedSource& source, const std::string& weight, std::int64_t rows,
                 std::int64_t columns) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (rows > 0 && columns > 0 && rows <= kMost / columns) return;
  throw damaged_error("{}: {} has shape [{}, {}]", source.directory.path().string(), weight, rows,
                      columns);
}

float rounded_to(Dtype dtype, float value) {
  if (dtype == Dtype::kBf16) return bf16_to_f32(f32_to_bf16(value));
  if (dtype == Dtype::kF16) return f16_to_f32(f32_to_f16(value));
  return value;
}

}  // namespace atl::ckpt
