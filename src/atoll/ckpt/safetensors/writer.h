#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "atoll/base/hash.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/tensor/tensor.h"

namespace atl::ckpt {

/// A tensor to be written under a name. The memory is the caller's.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Takes the next bytes of a tensor.
using ByteSink = std::function<void(const void* data, std::size_t size)>;

/// A tensor whose bytes are made while they are written: transposed, cut out of another, converted.
struct TensorSource {
  std::string name;
  Spec spec;
  /// Gives all spec.bytes() bytes to the sink, in pieces of any size, in row-major order.
  std::function<void(const ByteSink& sink)> produce;
};

/// What stands on disk now.
struct WrittenFile {
  std::uint64_t bytes = 0;
  Hash128 hash;
};

/// Writes a safetensors file atomically (see AtomicFile). The same tensors give the same bytes:
/// wider dtypes first, so that every tensor is aligned, and within a dtype in the order given; the
/// header is padded to 8 bytes. Throws Error(kIo) when writing fails, Error(kInternal) for a name
/// given twice, a name that is not UTF-8, or a source that gives too few or too many bytes.
WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::span<const TensorSource> sources, const Metadata& metadata = {});
/// The same for tensors in memory.
WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::span<const NamedTensor> tensors, const Metadata& metadata = {});

}  // namespace atl::ckpt
