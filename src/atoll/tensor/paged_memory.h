#pragma once

// Memory that transfers of a FileArena take past the page cache: its pages lie as the file's do.

#include <cstddef>
#include <memory>

#include "atoll/tensor/file_arena.h"

namespace atl {

/// What of `bytes` (u8, flat) begins on a page of memory, to its end.
Tensor from_first_page(const Tensor& bytes);

/// A tensor like `in_file`, in `bytes` (u8, flat, from_first_page): it begins at the same place of
/// a page. That takes in_file.bytes() and one page.
Tensor placed_like(const FileArena& file, const Tensor& in_file, const Tensor& bytes);

/// A tensor of `spec` in `bytes` whose elements from `begin` on, as many as `in_file` has, lie as
/// those do in their pages. That takes spec.bytes() and one page.
Tensor around(const FileArena& file, const Tensor& in_file, const Spec& spec, std::int64_t begin,
              const Tensor& bytes);

/// A tensor like `tensor`, which lies in `bytes`, at the same place of `others`; both u8, flat.
Tensor at_same_place(const Tensor& tensor, const Tensor& bytes, const Tensor& others);

/// `bytes` (u8, flat) from `begin` on, for an Arena to lie in.
std::unique_ptr<GivenMemory> memory_in(Device& device, const Tensor& bytes, std::size_t begin);

}  // namespace atl
