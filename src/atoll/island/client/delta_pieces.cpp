#include "atoll/island/client/delta_pieces.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/wire/blobs.h"

namespace atl::island {

std::int64_t piece_size(std::int64_t elements) {
  constexpr std::int64_t kEnough = 32;
  std::int64_t size = kMaxPieceElements;
  while (size > 4096 && size * kEnough > elements) size /= 2;
  return size;
}

std::size_t num_pieces(std::int64_t elements) {
  const std::int64_t size = piece_size(elements);
  return static_cast<std::size_t>((elements + size - 1) / size);
}

std::int64_t piece_elements(std::int64_t elements, std::size_t piece) {
  const std::int64_t size = piece_size(elements);
  return std::min(size, elements - static_cast<std::int64_t>(piece) * size);
}

std::uint64_t encoded_bytes(const compress::Codec& codec, std::int64_t elements) {
  std::uint64_t bytes = 0;
  const std::size_t pieces = num_pieces(elements);
  if (pieces > 1) bytes = (pieces - 1) * codec.max_bytes(piece_size(elements));
  return bytes + codec.max_bytes(piece_elements(elements, pieces - 1));
}

// A state has four bytes an element at least. A codec needs eight at most (a value and its index),
// and some for each piece.
bool can_be_delta(std::uint64_t bytes, std::uint64_t chunk_bytes, std::uint64_t state_bytes) {
  constexpr std::uint64_t kPieceOverhead = 256;
  if (bytes == 0 || chunk_bytes == 0 || chunk_bytes > wire::kMaxChunkBytes) return false;
  if (state_bytes > kMaxStateBytes) return false;
  const std::uint64_t most_pieces = std::max<std::uint64_t>(
      64, state_bytes / sizeof(float) / static_cast<std::uint64_t>(kMaxPieceElements) + 1);
  return bytes <= 2 * state_bytes + most_pieces * kPieceOverhead &&
         wire::num_chunks(bytes, chunk_bytes) <= most_pieces;
}

EncodedDelta room_for(const compress::Codec& codec, std::int64_t elements) {
  return {.elements = elements,
          .piece_bytes = codec.max_bytes(piece_size(elements)),
          .bytes = std::vector<std::byte>(encoded_bytes(codec, elements))};
}

void encode_pieces(const compress::Codec& codec, std::span<const float> delta,
                   std::span<float> error, EncodedDelta& encoded) {
  ATOLL_CHECK_EQ(static_cast<std::int64_t>(delta.size()), encoded.elements);
  std::vector<std::byte> piece;
  for (std::size_t p = 0; p < num_pieces(encoded.elements); ++p) {
    const auto begin = p * static_cast<std::size_t>(piece_size(encoded.elements));
    const auto count = static_cast<std::size_t>(piece_elements(encoded.elements, p));
    codec.encode(delta.subspan(begin, count), error.empty() ? error : error.subspan(begin, count),
                 piece);
    piece.resize(codec.max_bytes(static_cast<std::int64_t>(count)));
    std::copy(piece.begin(), piece.end(),
              encoded.bytes.begin() + static_cast<std::ptrdiff_t>(p * encoded.piece_bytes));
  }
}

}  // namespace atl::island
