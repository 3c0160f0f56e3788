#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/compress/codec.h"
#include "atoll/parallel/layout/element_range.h"

namespace atl::island {

/// Elements that are encoded, sent and summed by themselves, a chunk on the wire, at most.
inline constexpr std::int64_t kMaxPieceElements = std::int64_t{1} << 18;
/// The most that the state of a fragment may be, and all that passes through a coordinator at once.
inline constexpr std::uint64_t kMaxStateBytes = std::uint64_t{1} << 36;
/// Of a fragment of so many elements: a power of two, at least 4,096, so that there are 32 pieces
/// or more where the fragment has enough. Streams that take turns then end together.
std::int64_t piece_size(std::int64_t elements);
/// How many pieces so many elements are.
std::size_t num_pieces(std::int64_t elements);
/// Elements of one of them: the last may have fewer.
std::int64_t piece_elements(std::int64_t elements, std::size_t piece);
/// Bytes of all of them.
std::uint64_t encoded_bytes(const compress::Codec& codec, std::int64_t elements);

/// Whether a pseudo-gradient of a fragment whose outer state has `state_bytes` can be so many bytes
/// in such chunks, by whichever codec: what an island says of its own is bounded by this.
bool can_be_delta(std::uint64_t bytes, std::uint64_t chunk_bytes, std::uint64_t state_bytes);

/// Pieces [begin, end) of a fragment.
struct PieceRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool has(std::size_t piece) const { return begin <= piece && piece < end; }
};
/// The pieces of elements that begin and end between pieces.
PieceRange pieces_of(std::int64_t elements, const parallel::ElementRange& own);

/// A pseudo-gradient as it is sent, or some of it: pieces, one after the other, each as long as the
/// codec makes that many elements.
struct EncodedDelta {
  std::int64_t elements = 0;      ///< of the whole pseudo-gradient
  std::uint64_t total_bytes = 0;  ///< and its bytes
  std::size_t piece_bytes = 0;    ///< of every piece but the last
  PieceRange pieces;              ///< that are here
  std::vector<std::byte> bytes;   ///< of these
};

/// Room for so many elements, or those of them that are here: their bytes are known before they
/// are encoded.
EncodedDelta room_for(const compress::Codec& codec, std::int64_t elements);
EncodedDelta room_for(const compress::Codec& codec, std::int64_t elements,
                      const parallel::ElementRange& own);
/// Encodes `delta`, what is here of it, piece by piece into its room. `error`: what the codec could
/// not say before (empty: it keeps nothing), replaced by what it cannot say now.
void encode_pieces(const compress::Codec& codec, std::span<const float> delta,
                   std::span<float> error, EncodedDelta& encoded);

/// The sum of the squares of each piece of `values`, which are those of a fragment of `elements`
/// that are here: added up in order they are the square of the norm, whoever has which pieces.
std::vector<double> squares_of(std::int64_t elements, std::span<const float> values);
/// Of all pieces.
double norm_of(std::span<const double> squares);

}  // namespace atl::island
