#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "atoll/compress/codec.h"
#include "fuzz.h"

namespace {

using atl::compress::Codec;

constexpr const char* kSettings[] = {"f32",           "bf16",         "int8",      "int4",
                                     "e3m0",          "topk:64/4096", "topk:5/16", "topk:300/300",
                                     "sign_prune:25", "sign_prune:99"};

bool takes_all(const Codec& codec) {
  return codec.name() == "f32" || codec.name() == "bf16";
}

// What decodes must be finite, and the same by way of decode_add.
void decode(const Codec& codec, std::span<const std::byte> bytes, std::size_t n) {
  atl::fuzz::expect_result_or_refusal([&] {
    std::vector<float> out(n);
    codec.decode(bytes, out);
    std::vector<float> sum(n, 0.0F);
    codec.decode_add(bytes, 1, sum);
    if (takes_all(codec)) return;
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(out[i]) || out[i] != sum[i]) std::abort();
    }
  });
}

// Finite values of a common size encode; what encodes decodes, and with a byte changed somewhere at
// least reaches what lies behind the first check.
void encode(const Codec& codec, std::span<const float> x, std::size_t where, std::uint8_t flips) {
  std::vector<std::byte> bytes;
  bool is_encoded = false;
  atl::fuzz::expect_result_or_refusal([&] {
    codec.encode(x, {}, bytes);
    is_encoded = true;
  });
  const bool may_refuse =
      std::any_of(x.begin(), x.end(), [](float value) { return !(std::abs(value) < 0x1p126F); });
  if (!is_encoded && (takes_all(codec) || !may_refuse)) std::abort();
  if (!is_encoded) return;
  std::vector<float> out(x.size());
  codec.decode(bytes, out);
  if (bytes.empty()) return;
  bytes[where % bytes.size()] ^= std::byte{flips};
  decode(codec, bytes, x.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 3;
  if (size < kHeader) return 0;
  const auto codec = atl::compress::make_codec(kSettings[data[0] % std::size(kSettings)]);
  const std::size_t n = (data[1] + 256U * data[2]) % 5000;
  const auto rest = atl::fuzz::bytes(data + kHeader, size - kHeader);
  decode(*codec, rest, n);
  // The right number of bytes is hard to hit: the input is cut, or repeated, to that.
  std::vector<std::byte> fitted(codec->max_bytes(static_cast<std::int64_t>(n)));
  for (std::size_t i = 0; i < fitted.size() && !rest.empty(); ++i)
    fitted[i] = rest[i % rest.size()];
  decode(*codec, fitted, n);
  std::vector<float> x(rest.size() / sizeof(float));
  if (!x.empty()) std::memcpy(x.data(), rest.data(), x.size() * sizeof(float));
  encode(*codec, x, n, static_cast<std::uint8_t>(data[0] / std::size(kSettings) + 1));
  return 0;
}
