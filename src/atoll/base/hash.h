#pragma once

// XXH3-128: fast enough to hash every byte that is written or read back. It detects accidents, not
// attackers; identities and signatures use SHA-256.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace atl {

/// A 128-bit content hash.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

/// 32 lower-case hexadecimal digits, high word first.
std::string to_hex(Hash128 hash);

/// The XXH3-128 of `size` bytes at `data`.
Hash128 hash_bytes(const void* data, std::size_t size);

/// XXH3-128 of bytes that arrive in pieces; equals hash_bytes of their concatenation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void update(const void* data, std::size_t size);
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl
