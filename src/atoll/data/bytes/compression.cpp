#include "atoll/data/bytes/compression.h"

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

using namespace std::string_view_literals;

struct Kind {
  Compression compression;
  std::string_view magic;
  const char* name;
  std::array<std::string_view, 3> endings;
};

constexpr std::array<Kind, 5> kKinds = {{
    {Compression::kGzip, "\x1f\x8b"sv, "gzip", {".gz", ".gzip", ".tgz"}},
    {Compression::kZstd, "\x28\xb5\x2f\xfd"sv, "zstd", {".zst", ".zstd", ".tzst"}},
    {Compression::kXz, "\xfd\x37zXZ\0"sv, "xz", {".xz", ".txz", ".txz"}},
    {Compression::kBzip2, "BZh"sv, "bzip2", {".bz2", ".tbz2", ".tbz"}},
    {Compression::kLz4, "\x04\x22\x4d\x18"sv, "lz4", {".lz4", ".lz4", ".lz4"}},
}};

// A magic number and the size of what is to be skipped, of 4 bytes each.
constexpr std::size_t kSkippableHeader = 8;

// What zlib, bzip2 and xz count bytes with.
template <typename Count>
Count at_most(std::size_t bytes) {
  return static_cast<Count>(
      std::min<std::size_t>(bytes, std::numeric_limits<unsigned int>::max() / 2));
}

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;

  DecodeStep step(std::span<const char> in, std::span<char> out) override {
    // zlib's interface has no const; it does not write there.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const auto given = at_most<uInt>(in.size());
    const auto room = at_most<uInt>(out.size());
    stream_.avail_in = given;
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      if (result == Z_NEED_DICT) throw std::runtime_error("it needs a dictionary");
      throw std::runtime_error(stream_.msg != nullptr ? stream_.msg : "the data are no deflate");
    }
    DecodeStep done = {given - stream_.avail_in, room - stream_.avail_out, result == Z_STREAM_END};
    if (done.ended) inflateReset(&stream_);
    return done;
  }

 private:
  z_stream stream_ = {};
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
    // Dumps of forums are made with --long=31.
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, 31);
  }

  DecodeStep step(std::span<const char> in, std::span<char> out) override {
    ZSTD_inBuffer input = {in.data(), in.size(), 0};
    ZSTD_outBuffer output = {out.data(), out.size(), 0};
    const std::size_t left = ZSTD_decompressStream(context_.get(), &output, &input);
    if (ZSTD_isError(left) != 0U) throw std::runtime_error(ZSTD_getErrorName(left));
    return {input.pos, output.pos, left == 0};
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_;
};

class XzDecoder final : public Decoder {
 public:
  XzDecoder() { begin(); }
  ~XzDecoder() override { lzma_end(&stream_); }
  XzDecoder(const XzDecoder&) = delete;
  XzDecoder& operator=(const XzDecoder&) = delete;

  DecodeStep step(std::span<const char> in, std::span<char> out) override {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_in = in.size();
    stream_.avail_out = out.size();
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR) {
      throw std::runtime_error(problem(result));
    }
    const DecodeStep done = {in.size() - stream_.avail_in, out.size() - stream_.avail_out,
                             result == LZMA_STREAM_END};
    if (done.ended) begin();
    return done;
  }

 private:
  void begin() {
    constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 31;
    if (lzma_stream_decoder(&stream_, kMaxBytes, 0) != LZMA_OK) throw std::bad_alloc();
  }

  static const char* problem(lzma_ret result) {
    switch (result) {
      case LZMA_MEMLIMIT_ERROR:
        return "its dictionary needs more than 2 GiB";
      case LZMA_OPTIONS_ERROR:
        return "it uses options that liblzma does not know";
      case LZMA_FORMAT_ERROR:
        return "the data are no xz";
      case LZMA_MEM_ERROR:
        return "there is too little memory for its dictionary";
      default:
        return "the data are corrupt";
    }
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Bzip2Decoder final : public Decoder {
 public:
  Bzip2Decoder() { begin(); }
  ~Bzip2Decoder() override { BZ2_bzDecompressEnd(&stream_); }
  Bzip2Decoder(const Bzip2Decoder&) = delete;
  Bzip2Decoder& operator=(const Bzip2Decoder&) = delete;

  DecodeStep step(std::span<const char> in, std::span<char> out) override {
    stream_.next_in = const_cast<char*>(in.data());  // it does not write there
    stream_.next_out = out.data();
    const auto given = at_most<unsigned int>(in.size());
    const auto room = at_most<unsigned int>(out.size());
    stream_.avail_in = given;
    stream_.avail_out = room;
    const int result = BZ2_bzDecompress(&stream_);
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result != BZ_OK && result != BZ_STREAM_END) {
      throw std::runtime_error("the data are corrupt");
    }
    const DecodeStep done = {given - stream_.avail_in, room - stream_.avail_out,
                             result == BZ_STREAM_END};
    if (done.ended) {
      BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    return done;
  }

 private:
  void begin() {
    stream_ = {};
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }

  bz_stream stream_ = {};
};

class Lz4Decoder final : public Decoder {
 public:
  Lz4Decoder() {
    LZ4F_dctx* context = nullptr;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0U) {
      throw std::bad_alloc();
    }
    context_.reset(context);
  }

  DecodeStep step(std::span<const char> in, std::span<char> out) override {
    std::size_t consumed = in.size();
    std::size_t produced = out.size();
    const std::size_t left =
        LZ4F_decompress(context_.get(), out.data(), &produced, in.data(), &consumed, nullptr);
    if (LZ4F_isError(left) != 0U) {
      const char* name = LZ4F_getErrorName(left);
      LZ4F_resetDecompressionContext(context_.get());
      throw std::runtime_error(name);
    }
    return {consumed, produced, left == 0};
  }

 private:
  struct Free {
    void operator()(LZ4F_dctx* context) const { LZ4F_freeDecompressionContext(context); }
  };
  std::unique_ptr<LZ4F_dctx, Free> context_;
};

}  // namespace

bool is_skippable_frame(std::string_view content) {
  return content.size() >= kSkippableHeader && (content[0] & '\xf0') == '\x50' &&
         content.substr(1, 3) == "\x2a\x4d\x18"sv;
}

Compression compression_of(std::string_view content) {
  // pzstd begins with a frame that is to be skipped.
  while (is_skippable_frame(content)) {
    std::uint32_t size = 0;
    std::memcpy(&size, content.data() + 4, sizeof(size));
    content.remove_prefix(std::min<std::size_t>(kSkippableHeader + size, content.size()));
  }
  for (const Kind& kind : kKinds) {
    if (!content.starts_with(kind.magic)) continue;
    // A text may begin with BZh; in a file of bzip2 the size of a block follows, and then pi.
    if (kind.compression == Compression::kBzip2 &&
        (content.size() < 10 || content[3] < '1' || content[3] > '9' ||
         (content.substr(4, 6) != "1AY&SY" &&
          content.substr(4, 6) != "\x17\x72\x45\x38\x50\x90"))) {
      continue;
    }
    return kind.compression;
  }
  return Compression::kNone;
}

const char* compression_name(Compression compression) {
  for (const Kind& kind : kKinds) {
    if (kind.compression == compression) return kind.name;
  }
  return "none";
}

bool is_compressed_ending(std::string_view ending) {
  return std::any_of(kKinds.begin(), kKinds.end(), [&](const Kind& kind) {
    return std::find(kind.endings.begin(), kind.endings.end(), ending) != kind.endings.end();
  });
}

std::unique_ptr<Decoder> make_decoder(Compression compression) {
  switch (compression) {
    case Compression::kGzip:
      return std::make_unique<GzipDecoder>();
    case Compression::kZstd:
      return std::make_unique<ZstdDecoder>();
    case Compression::kXz:
      return std::make_unique<XzDecoder>();
    case Compression::kBzip2:
      return std::make_unique<Bzip2Decoder>();
    case Compression::kLz4:
      return std::make_unique<Lz4Decoder>();
    case Compression::kNone:
      break;
  }
  ATOLL_CHECK(false, "a decoder of nothing");
  return nullptr;
}

}  // namespace atl::data
