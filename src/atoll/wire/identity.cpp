#include "atoll/wire/identity.h"

#include <sys/stat.h>

#include <cerrno>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

namespace {

// Another's private key is another's identity: as ssh does, refuse rather than warn.
void check_private(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw io_error("cannot read", path, errno);
  if ((status.st_mode & 077) != 0) {
    throw user_error("{} may be read or changed by others (mode {:o}); run: chmod 600 {}",
                     path.string(), status.st_mode & 07777, path.string());
  }
}

void check_valid(const Certificate& certificate, const fs::path& path) {
  const std::string problem = validity_problem(certificate, unix_now());
  if (problem.empty()) return;
  throw user_error("{}: {}; set the clock or issue another certificate (`atoll certs issue`)",
                   path.string(), problem);
}

}  // namespace

Identity load_identity(const fs::path& directory) {
  for (const char* file : {"ca.pem", "cert.pem", "key.pem"}) {
    if (!fs::exists(directory / file)) {
      throw user_error("{} is no identity: it has no {}; `atoll certs issue` makes one",
                       directory.string(), file);
    }
  }
  const fs::path certificate_path = directory / "cert.pem";
  const fs::path key_path = directory / "key.pem";
  const fs::path authority_path = directory / "ca.pem";
  check_private(key_path);
  Identity identity{.directory = directory,
                    .authority_pem = read_file(authority_path),
                    .certificate_pem = read_file(certificate_path),
                    .key_pem = read_file(key_path)};
  const CertificatePtr authority = parse_certificate(identity.authority_pem, authority_path);
  const CertificatePtr certificate = parse_certificate(identity.certificate_pem, certificate_path);
  const KeyPtr key = parse_key(identity.key_pem, key_path);
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    openssl_reason();
    throw user_error("{} is not the key of cert.pem beside it; copy both from one identity",
                     key_path.string());
  }
  if (X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) != 1) {
    openssl_reason();
    throw user_error("{} is not signed by ca.pem beside it; copy both from one identity",
                     certificate_path.string());
  }
  check_valid(describe(authority.get()), authority_path);
  const Certificate description = describe(certificate.get());
  check_valid(description, certificate_path);
  if (description.name.empty()) {
    throw user_error("{} has no common name; make it with `atoll certs issue`",
                     certificate_path.string());
  }
  identity.name = description.name;
  identity.not_after = description.not_after;
  return identity;
}

}  // namespace atl::wire
