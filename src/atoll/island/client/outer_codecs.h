#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "atoll/compress/codec.h"
#include "atoll/island/policy/policy.h"

namespace atl::island {

/// The codecs of an island's outer steps, made when they are first needed. Safe to use from several
/// threads.
class OuterCodecs {
 public:
  /// `base`: the codec of the island's settings. Throws Error(kUser) when there is none like it.
  explicit OuterCodecs(std::string base) : base_(std::move(base)) { (void)of(base_); }
  /// With another codec for sums than sum_codec_of().
  OuterCodecs(std::string base, std::string sums) : OuterCodecs(std::move(base)) {
    sums_ = std::move(sums);
  }

  /// Of pseudo-gradients; "": the base. Throws Error(kUser) for an unknown one.
  const compress::Codec& of(const std::string& name) {
    const std::string& key = name.empty() ? base_ : name;
    const std::lock_guard lock(mutex_);
    std::unique_ptr<compress::Codec>& codec = codecs_[key];
    if (!codec) codec = compress::make_codec(key);
    return *codec;
  }
  /// Of the sums of such pseudo-gradients.
  const compress::Codec& of_sums(const std::string& name) {
    return of(sums_.empty() ? sum_codec_of(name.empty() ? base_ : name) : sums_);
  }
  const std::string& base() const { return base_; }

 private:
  std::string base_, sums_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<compress::Codec>> codecs_;
};

}  // namespace atl::island
