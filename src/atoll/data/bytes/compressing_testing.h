#pragma once

// Compressed content for tests, made with the libraries' writers.

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/data/bytes/compression.h"

namespace atl::data::testing {

/// One member of a compressed file.
inline std::string compress(Compression compression, std::string_view content) {
  std::string out(content.size() + content.size() / 4 + 4096, '\0');
  const auto give = [&](std::size_t size) {
    out.resize(size);
    return out;
  };
  switch (compression) {
    case Compression::kNone:
      return std::string(content);
    case Compression::kGzip: {
      constexpr int kGzip = 16;
      z_stream stream = {};
      ATOLL_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) ==
                  Z_OK);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
      stream.avail_in = static_cast<uInt>(content.size());
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      ATOLL_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
      const std::size_t size = stream.total_out;
      deflateEnd(&stream);
      return give(size);
    }
    case Compression::kZstd:
      return give(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 3));
    case Compression::kXz: {
      std::size_t size = 0;
      ATOLL_CHECK(lzma_easy_buffer_encode(
                      1, LZMA_CHECK_CRC64, nullptr,
                      reinterpret_cast<const std::uint8_t*>(content.data()), content.size(),
                      reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()) == LZMA_OK);
      return give(size);
    }
    case Compression::kBzip2: {
      auto size = static_cast<unsigned int>(out.size());
      ATOLL_CHECK(BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(content.data()),
                                           static_cast<unsigned int>(content.size()), 9, 0,
                                           0) == BZ_OK);
      return give(size);
    }
    case Compression::kLz4: {
      LZ4F_preferences_t preferences = {};
      preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
      return give(
          LZ4F_compressFrame(out.data(), out.size(), content.data(), content.size(), &preferences));
    }
  }
  return "";
}

}  // namespace atl::data::testing
