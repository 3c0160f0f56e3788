#pragma once

// How the host gets at the elements of a tensor above ops. Only the places that
// tools/tidy/exceptions.txt names include this header; all else leaves elements to ops and comm.
//
// On a CPU the host sees the tensor's own memory and nothing is copied. On a GPU it sees a copy, so
// these calls wait for all work of the device: they belong between steps. Inside a step there is
// queue_copy, which waits for nothing.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "atoll/tensor/tensor.h"

namespace atl {

class Stream;

/// Whether the host can reach the tensor's memory: it is the host's own or a CPU's.
bool is_on_host(const Tensor& tensor);

/// Queues a copy of all elements; same spec, no overlap, on the stream's device or the host. A host
/// that is to read `to`, or to overwrite `from`, waits for the stream or an event first.
void queue_copy(Stream& stream, const Tensor& from, const Tensor& to);

/// Copies all elements at once; same spec, no overlap but with itself, on one device or the host.
void copy_now(const Tensor& from, const Tensor& to);

/// A tensor's elements as the host reads them. On a CPU they are the tensor's own, and change with
/// it; on a GPU those of when this was made.
class HostRead {
 public:
  HostRead() = default;
  /// The tensor's memory must outlive this.
  explicit HostRead(const Tensor& tensor);

  /// Throws Error(kInternal) when T is not the tensor's dtype.
  template <typename T>
  std::span<const T> elements() const& {
    return {host_.data<T>(), static_cast<std::size_t>(host_.num_elements())};
  }
  /// As their dtype stores them.
  std::span<const std::byte> bytes() const& {
    return {static_cast<const std::byte*>(host_.raw()), host_.bytes()};
  }
  // Of a temporary, the elements would be gone with it.
  template <typename T>
  std::span<const T> elements() const&& = delete;
  std::span<const std::byte> bytes() const&& = delete;

 private:
  std::unique_ptr<std::byte[]> copy_;  // empty where the host reads the tensor's own memory
  Tensor host_;
};

namespace internal {

// The memory that the host writes for a tensor.
class HostWrite {
 public:
  HostWrite(const Tensor& tensor, bool keeps_elements);
  template <typename T>
  std::span<T> elements() const {
    if constexpr (std::is_same_v<T, std::byte>)
      return {static_cast<std::byte*>(host_.raw()), host_.bytes()};
    else
      return {host_.data<T>(), static_cast<std::size_t>(host_.num_elements())};
  }
  void finish() const;

 private:
  Tensor tensor_;
  std::unique_ptr<std::byte[]> copy_;
  Tensor host_;
};

}  // namespace internal

/// Calls `write(std::span<T>)`, which writes all elements of the tensor: what was in them cannot be
/// relied on. T is the tensor's dtype, else Error(kInternal); or std::byte, for its bytes. When
/// `write` throws, the elements are any.
template <typename T, typename Write>
void write_on_host(const Tensor& tensor, Write&& write) {
  const internal::HostWrite host(tensor, /*keeps_elements=*/false);
  std::forward<Write>(write)(host.elements<T>());
  host.finish();
}

/// The same for `update`, which reads the elements too, or writes some of them only.
template <typename T, typename Update>
void update_on_host(const Tensor& tensor, Update&& update) {
  const internal::HostWrite host(tensor, /*keeps_elements=*/true);
  std::forward<Update>(update)(host.elements<T>());
  host.finish();
}

}  // namespace atl
