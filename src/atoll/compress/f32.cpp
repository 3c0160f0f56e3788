#include <cstring>

#include "atoll/compress/codecs.h"

namespace atl::compress {

namespace {

class F32 final : public Codec {
 public:
  std::string name() const override { return "f32"; }
  std::size_t block_elements() const override { return 4096; }

 protected:
  std::size_t block_bytes(std::size_t n) const override { return n * sizeof(float); }
  void encode_block(std::span<const float> x, std::byte* out) const override {
    std::memcpy(out, x.data(), x.size_bytes());
  }
  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    std::memcpy(out.data(), bytes, out.size_bytes());
  }
};

}  // namespace

std::unique_ptr<Codec> make_f32() {
  return std::make_unique<F32>();
}

}  // namespace atl::compress
