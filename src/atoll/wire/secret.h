#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace atl::wire {

/// A secret that the processes of a run share where they have no certificates: on one machine, so
/// that its other users are kept out. It is a file that only its owner may read. It is never sent:
/// each side of a call proves that it knows the secret, for the port that is called. So a process
/// that took over the port of another one learns nothing that is valid elsewhere.
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

  /// The file that it was read from.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string value_;
  std::filesystem::path path_;
};

/// The secret of a process with these settings. Throws Error(kUser) if it has an identity, too.
std::optional<Secret> secret_beside(const std::optional<std::filesystem::path>& secret,
                                    const std::optional<std::filesystem::path>& identity);

/// A random number for one call, chosen by the caller.
std::string make_nonce();

/// Compares in constant time, which does not show where two texts differ.
bool is_same(std::string_view a, std::string_view b);

/// The metadata of a call by which both sides prove themselves.
inline constexpr const char* kNonceKey = "atoll-nonce";
inline constexpr const char* kProofKey = "atoll-proof";

}  // namespace atl::wire
