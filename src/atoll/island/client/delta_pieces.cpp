#include "atoll/island/client/delta_pieces.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

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

PieceRange pieces_of(std::int64_t elements, const parallel::ElementRange& own) {
  if (own.size() == 0) return {};
  const std::int64_t size = piece_size(elements);
  return {static_cast<std::size_t>(own.begin / size),
          static_cast<std::size_t>((own.end + size - 1) / size)};
}

EncodedDelta room_for(const compress::Codec& codec, std::int64_t elements) {
  return room_for(codec, elements, {0, elements});
}

EncodedDelta room_for(const compress::Codec& codec, std::int64_t elements,
                      const parallel::ElementRange& own) {
  EncodedDelta room = {.elements = elements,
                       .total_bytes = encoded_bytes(codec, elements),
                       .piece_bytes = codec.max_bytes(piece_size(elements)),
                       .pieces = pieces_of(elements, own),
                       .bytes = {}};
  std::size_t bytes = 0;
  for (std::size_t p = room.pieces.begin; p < room.pieces.end; ++p) {
    bytes += codec.max_bytes(piece_elements(elements, p));
  }
  room.bytes.resize(bytes);
  return room;
}

void encode_pieces(const compress::Codec& codec, std::span<const float> delta,
                   std::span<float> error, EncodedDelta& encoded) {
  std::vector<std::byte> piece;
  std::size_t begin = 0, at = 0;
  for (std::size_t p = encoded.pieces.begin; p < encoded.pieces.end; ++p) {
    const auto count = static_cast<std::size_t>(piece_elements(encoded.elements, p));
    codec.encode(delta.subspan(begin, count), error.empty() ? error : error.subspan(begin, count),
                 piece);
    piece.resize(codec.max_bytes(static_cast<std::int64_t>(count)));
    std::copy(piece.begin(), piece.end(), encoded.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    begin += count;
    at += piece.size();
  }
  ATOLL_CHECK_EQ(begin, delta.size());
}

namespace {

// Several independent sums, so that no addition waits for the one before it.
double sum_of_squares(std::span<const float> values) {
  constexpr std::size_t kSums = 16;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double value = values[i + k];
      sums[k] += value * value;
    }
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

}  // namespace

std::vector<double> squares_of(std::int64_t elements, std::span<const float> values) {
  const auto size = static_cast<std::size_t>(piece_size(elements));
  std::vector<double> squares;
  for (std::size_t at = 0; at < values.size(); at += size) {
    squares.push_back(sum_of_squares(values.subspan(at, std::min(size, values.size() - at))));
  }
  return squares;
}

double norm_of(std::span<const double> squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

}  // namespace atl::island
