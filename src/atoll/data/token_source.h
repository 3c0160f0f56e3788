#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace atl::data {

/// One long sequence of tokens that can be read anywhere. Reading is safe from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// What messages call it: "the train split of runs/kjv-data".
  virtual std::string name() const = 0;
  virtual std::int64_t num_tokens() const = 0;
  /// Tokens [begin, begin + out.size()). Throws Error(kInternal) beyond num_tokens().
  virtual void copy(std::int64_t begin, std::span<std::int32_t> out) const = 0;
};

/// Tokens in memory: a prompt file, made-up data, a test.
class TokenVector final : public TokenSource {
 public:
  TokenVector(std::string name, std::vector<std::int32_t> tokens)
      : name_(std::move(name)), tokens_(std::move(tokens)) {}

  std::string name() const override { return name_; }
  std::int64_t num_tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

 private:
  std::string name_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace atl::data
