#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace atl::wire {

/// What the processes of a run have in common where they have no certificates: on one machine,
/// whose other users must stay out. A file that only its owner may read. It is never sent: each
/// side of a call proves to the other that it knows it, for the port that is called, so that who
/// took over the port of a process that died learns nothing that is good elsewhere.
class Secret {
 public:
  /// Reads the file. Throws Error(kUser) naming it when it is missing, another user's, open to
  /// others, or holds no secret.
  explicit Secret(const std::filesystem::path& path);

  /// Puts a new secret into a file that is not there yet; its directory must be. Throws Error.
  static void make(const std::filesystem::path& path);

  /// What `side` ("client" or "server") says in a call to that port with the client's nonce:
  /// HMAC-SHA256, in hexadecimal.
  std::string proof(std::string_view side, int port, std::string_view nonce) const;

 private:
  std::string value_;
};

/// That of a process with these settings; with an identity there can be none: Error(kUser).
std::optional<Secret> secret_beside(const std::optional<std::filesystem::path>& secret,
                                    const std::optional<std::filesystem::path>& identity);

/// Of whoever calls; another one for each.
std::string make_nonce();

/// Compares in a time that says nothing of where two texts differ.
bool is_same(std::string_view a, std::string_view b);

/// The metadata of a call by which both sides prove themselves.
inline constexpr const char* kNonceKey = "atoll-nonce";
inline constexpr const char* kProofKey = "atoll-proof";

}  // namespace atl::wire
