#include "atoll/ckpt/quantised/stored_matrix.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

// Floats of 16 or 32 bits as they are.
class FloatFormat final : public ops::PackedFormat {
 public:
  FloatFormat(Dtype dtype, std::int64_t rows, std::int64_t columns)
      : dtype_(dtype), rows_(rows), columns_(columns) {}

  std::string_view name() const override { return dtype_name(dtype_); }
  std::size_t bytes() const override { return bytes_of(rows_); }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    convert_to_f32(dtype_, {packed + bytes_of(begin), bytes_of(end - begin)},
                   {out, static_cast<std::size_t>((end - begin) * columns_)});
  }

 private:
  std::size_t bytes_of(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * columns_) * dtype_size(dtype_);
  }

  Dtype dtype_;
  std::int64_t rows_, columns_;
};

}  // namespace

StoredMatrix stored_floats(const HfDirectory& directory, const std::string& name) {
  const SafetensorsFile& file = directory.file_of(name);
  const Spec spec = file.spec(name);
  const bool is_float =
      spec.dtype == Dtype::kF32 || spec.dtype == Dtype::kBf16 || spec.dtype == Dtype::kF16;
  if (!is_float || spec.shape.rank() != 2) {
    throw user_error("{}: tensor \"{}\" is {}, not a matrix of floats", file.path().string(), name,
                     spec.to_string());
  }
  const std::span<const std::byte> bytes = file.bytes(name);
  return {spec.shape,
          spec.dtype,
          std::make_shared<FloatFormat>(spec.dtype, spec.shape.dim(0), spec.shape.dim(1)),
          {name},
          [bytes](std::byte* to) { std::copy(bytes.begin(), bytes.end(), to); }};
}

void widen_stored(const StoredMatrix& matrix, std::span<float> out) {
  ATOLL_CHECK_EQ(static_cast<std::int64_t>(out.size()), matrix.shape.num_elements());
  std::vector<std::byte> packed(matrix.format->bytes());
  matrix.fill(packed.data());
  matrix.format->widen(packed.data(), 0, matrix.shape.dim(0), out.data());
}

}  // namespace atl::ckpt
