#pragma once

// Compressed blocks of Parquet's pages and Arrow's buffers, whose size both files state.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atl::data {

/// How a block is compressed. kLz4Hadoop: blocks of LZ4 with their sizes before them, as older
/// writers of Parquet made them.
enum class BlockCodec { kNone, kSnappy, kGzip, kZstd, kLz4, kLz4Hadoop, kLz4Frame };

/// Decompresses `block` into the first `size` bytes of `out`, which grows where it is too small.
/// Throws std::runtime_error for a block that is damaged, or becomes more or less than `size`
/// bytes; for a size that no such block can have before memory is taken for it.
void decompress_block(BlockCodec codec, std::string_view block, std::size_t size,
                      std::vector<char>& out);

}  // namespace atl::data
