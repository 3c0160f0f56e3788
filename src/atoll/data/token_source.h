#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace atl::data {

/// One long sequence of tokens that can be read anywhere, with what is known of them: which have a
/// loss and where documents begin. Reading is safe from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// What messages call it: "the train split of runs/kjv-data".
  virtual std::string name() const = 0;
  virtual std::int64_t num_tokens() const = 0;
  /// Tokens [begin, begin + out.size()). Throws Error(kInternal) beyond num_tokens().
  virtual void copy(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  /// Whether some token may have no loss. Without a mask, copy_mask gives ones.
  virtual bool has_mask() const { return false; }
  /// The loss mask of tokens [begin, begin + out.size()): 1 for one that has a loss where it is the
  /// target, else 0. Throws Error(kInternal) beyond num_tokens().
  virtual void copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const;
  /// Appends to `starts` where in [begin, end) documents begin, ascending. Tokens before the first
  /// start belong to a document too; a source that knows of none is one document.
  virtual void append_document_starts(std::int64_t begin, std::int64_t end,
                                      std::vector<std::int64_t>& starts) const;

  /// All document starts.
  std::vector<std::int64_t> document_starts() const;
};

/// The tokens of a source that have a loss. Reads its mask, where it has one.
std::int64_t count_tokens_with_loss(const TokenSource& source);

/// Tokens in memory: a prompt file, made-up data, a test.
class TokenVector final : public TokenSource {
 public:
  /// `starts`: where documents begin, strictly ascending; `mask`: empty, or one byte a token.
  TokenVector(std::string name, std::vector<std::int32_t> tokens,
              std::vector<std::int64_t> starts = {}, std::vector<std::uint8_t> mask = {});

  std::string name() const override { return name_; }
  std::int64_t num_tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;
  bool has_mask() const override { return !mask_.empty(); }
  void copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  void append_document_starts(std::int64_t begin, std::int64_t end,
                              std::vector<std::int64_t>& starts) const override;

 private:
  std::string name_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> starts_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace atl::data
