#include <cstring>

#include "atoll/compress/codecs.h"
#include "atoll/simd/bf16.h"
#include "atoll/simd/convert.h"

namespace atl::compress {

namespace {

constexpr std::size_t kBlock = 1024;

class Bfloat16 final : public Codec {
 public:
  std::string name() const override { return "bf16"; }
  std::size_t block_elements() const override { return kBlock; }

 protected:
  std::size_t block_bytes(std::size_t n) const override { return n * sizeof(Bf16); }

  // By way of a buffer: bytes may lie at any address.
  void encode_block(std::span<const float> x, std::byte* out) const override {
    Bf16 narrow[kBlock];
    simd::narrow_rows(1, x.size(), {x.data(), x.size()}, {narrow, x.size()});
    std::memcpy(out, narrow, x.size() * sizeof(Bf16));
  }
  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    Bf16 narrow[kBlock];
    std::memcpy(static_cast<void*>(narrow), bytes, out.size() * sizeof(Bf16));
    simd::widen_rows(1, out.size(), {narrow, out.size()}, {out.data(), out.size()});
  }
};

}  // namespace

std::unique_ptr<Codec> make_bf16() {
  return std::make_unique<Bfloat16>();
}

}  // namespace atl::compress
