#pragma once

// The hashes by which the hub calls contents.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/hub/api.h"

namespace atl::hub {

/// Hashes a file's bytes as they come: by SHA-256 what large file storage has, else by SHA-1 as Git
/// does, of "blob SIZE", a NUL byte, and the content.
class ContentHash {
 public:
  /// Of the content that `file` should have.
  explicit ContentHash(const RepoFile& file);
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(std::string_view bytes);
  /// Bytes so far.
  std::uint64_t num_bytes() const { return num_bytes_; }
  /// In lower-case hexadecimal digits, to compare with RepoFile::etag(). Call once, last.
  std::string digest();
  /// Begins anew.
  void reset();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  bool is_git_;
  std::uint64_t size_;
  std::uint64_t num_bytes_ = 0;
};

}  // namespace atl::hub
