#pragma once

// How a pseudo-gradient is put into few bytes between islands, and taken out of them again.
// docs/codecs.md compares the codecs and says which to use when.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace atl::compress {

/// Puts n floats into max_bytes(n) bytes and back. Blocks of block_elements() are encoded one by
/// one, so what is cut between blocks gives the same bytes as the whole. Everything is a function
/// of the arguments alone: rounding is to the nearest, and neither the instruction set nor the
/// number of threads changes a bit. Bytes are little-endian. Safe to use from several threads.
///
/// Values: f32 and bf16 take any. The others need finite ones below 2^126 in magnitude and throw
/// Error(kNumeric) for the rest; `error` is then half new, so look before you encode.
class Codec {
 public:
  virtual ~Codec() = default;

  /// As in the setting, with its parameters: "f32", "topk:64/4096".
  virtual std::string name() const = 0;
  /// Elements that are encoded together; where a vector may be cut.
  virtual std::size_t block_elements() const = 0;
  /// Bytes of n elements: exactly so many for every codec here.
  std::size_t max_bytes(std::int64_t n) const;
  /// Whether the method is one with error feedback: encode() should be given `error` then.
  bool wants_error() const { return feedback() != 0; }

  /// Encodes x into `out`, which is resized. `error` is empty, or as long as x and kept from call
  /// to call: then decay * error + x is encoded (the decay is the method's, 1 where wants_error()
  /// is false), and what the bytes do not say of it is left in `error`. Whoever finds later that
  /// the bytes were not used must put back the `error` from before.
  void encode(std::span<const float> x, std::span<float> error, std::vector<std::byte>& out) const;
  /// Encodes x, as it is, into `out`, which has max_bytes(x.size()) bytes. Allocates nothing.
  void encode(std::span<const float> x, std::span<std::byte> out) const;
  /// out[i] = the value that `bytes` have for element i. Throws Error(kDamaged) when the bytes
  /// cannot be encode()'s of so many elements; `out` is then half written.
  void decode(std::span<const std::byte> bytes, std::span<float> out) const;
  /// sum[i] += weight * value, product and sum each rounded to f32: the bits of decode() and then
  /// that. Throws as decode() does; `sum` is then half added to.
  void decode_add(std::span<const std::byte> bytes, float weight, std::span<float> sum) const;

 protected:
  /// Bytes of a block of n <= block_elements() elements; 0 of none.
  virtual std::size_t block_bytes(std::size_t n) const = 0;
  /// Encodes a block into block_bytes(x.size()) bytes.
  virtual void encode_block(std::span<const float> x, std::byte* out) const = 0;
  /// The other way; `bytes` are block_bytes(out.size()).
  virtual void decode_block(const std::byte* bytes, std::span<float> out) const = 0;
  /// The decay of the error where error feedback is part of the method, else 0.
  virtual float feedback() const { return 0; }

 private:
  template <typename Fn>
  void for_blocks(std::size_t n, Fn fn) const;
  void require_size(std::size_t bytes, std::size_t n) const;
};

/// The codec of a setting: a name of codec_names(), for some with parameters behind a colon
/// ("topk:64/4096", "sign_prune:75"). Throws Error(kUser) that lists the names.
std::unique_ptr<Codec> make_codec(const std::string& name);

/// The names without parameters.
std::span<const char* const> codec_names();

}  // namespace atl::compress
