#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace atl::wire {

/// Who this process is to others: the files of one identities/NAME directory (certs.h), checked.
/// Holds a private key: never printed, logged or saved.
struct Identity {
  std::filesystem::path directory;
  std::string name;             ///< from the certificate
  std::string authority_pem;    ///< ca.pem: who is trusted
  std::string certificate_pem;  ///< cert.pem
  std::string key_pem;          ///< key.pem
  std::int64_t not_after = 0;   ///< seconds since 1970
};

/// Reads ca.pem, cert.pem and key.pem, and looks at revoked.pem. Throws Error(kUser) naming the
/// file for one that is missing or unreadable, a list older than the certificate, a key that others
/// may read or that is not the certificate's, and a certificate that is not signed by ca.pem, has
/// expired or is not valid yet (with this machine's clock).
Identity load_identity(const std::filesystem::path& directory);

/// Whether `host` (a name, an address, or "" for all interfaces) can only be reached from this
/// machine. Names are looked up; one that is not known is not.
bool is_loopback(const std::string& host);

}  // namespace atl::wire
