#pragma once

// The authority of a run: a private key that signs a certificate for each process that takes part.
// It is a directory, and only the machine that issues needs it:
//   ca.pem, ca-key.pem       the authority; the key is the secret of the whole run
//   issued/SERIAL.pem        every certificate that it signed
//   revoked.pem              a signed list (CRL) of the serials that are not to be trusted any
//   more;
//                            there is one from the beginning, and each next one has the next number
//   identities/NAME/         what the process NAME is given: ca.pem, cert.pem, key.pem, revoked.pem
// Keys are EC P-256; docs/certificates.md tells how they are used.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/wire/certificate.h"

namespace atl::wire {

/// Certificates begin this long before they are made, so that a clock that is a day slow takes
/// them.
inline constexpr std::int64_t kClockSkewSeconds = 25 * 3600;

/// Makes a new authority in `directory`, which is created. Throws Error(kUser) when there is one.
void make_authority(const std::filesystem::path& directory);

/// Signs a certificate for a new key and writes identities/NAME/. `name` is 1 to 64 letters,
/// digits,
/// '.', '-' and '_'; `hosts` are what others will call it at. Throws Error(kUser) for a bad name,
/// host or number of days, no authority there, or an identity of that name.
Certificate issue(const std::filesystem::path& directory, const std::string& name,
                  const std::vector<std::string>& hosts, int days);

/// issue() with a given validity, in seconds since 1970: for clocks that are wrong, and their
/// tests.
Certificate issue_between(const std::filesystem::path& directory, const std::string& name,
                          const std::vector<std::string>& hosts, std::int64_t not_before,
                          std::int64_t not_after);

/// Puts every certificate of `name` on the signed list revoked.pem, gives that to all identities in
/// the directory and deletes NAME's. Returns how many were not on it before. Throws Error(kUser)
/// when none was ever issued.
int revoke(const std::filesystem::path& directory, const std::string& name);

/// Every certificate issued, by name, then by time. Throws Error for no authority or damaged files.
std::vector<Certificate> list_certificates(const std::filesystem::path& directory);

}  // namespace atl::wire
