#include "atoll/wire/identity.h"

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/wire/revoked_list.h"
#include "atoll/wire/secret_file.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

namespace {

void check_valid(const Certificate& certificate, const fs::path& path) {
  const std::string problem = validity_problem(certificate, unix_now());
  if (problem.empty()) return;
  throw user_error("{}: {}; set the clock or issue another certificate (`atoll certs issue`)",
                   path.string(), problem);
}

// Without the list revoked certificates would be admitted: it may be empty but not missing.
void check_list(const Identity& identity, std::int64_t number_at_issue) {
  const fs::path file = identity.directory / "revoked.pem";
  if (!fs::exists(file)) {
    throw user_error(
        "{} is missing, the list of certificates that are not to be trusted any more: copy "
        "revoked.pem of the authority there, the newest there is",
        file.string());
  }
  const std::int64_t number = read_revoked(file, identity.authority_pem).number;
  if (number >= number_at_issue) return;
  throw user_error(
      "{} is list {} of revoked certificates, and cert.pem beside it was issued when list {} was "
      "there: copy the newest revoked.pem of the authority there",
      file.string(), number, number_at_issue);
}

}  // namespace

Identity load_identity(const fs::path& directory) {
  for (const char* file : {"ca.pem", "cert.pem", "key.pem"}) {
    if (!path_exists(directory / file)) {
      throw user_error("{} is no identity: it has no {}; `atoll certs issue` makes one",
                       directory.string(), file);
    }
  }
  const fs::path certificate_path = directory / "cert.pem";
  const fs::path key_path = directory / "key.pem";
  const fs::path authority_path = directory / "ca.pem";
  Identity identity{.directory = directory,
                    .authority_pem = read_file(authority_path),
                    .certificate_pem = read_file(certificate_path),
                    .key_pem = read_secret(key_path)};
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
  check_list(identity, description.list_number);
  identity.name = description.name;
  identity.not_after = description.not_after;
  return identity;
}

}  // namespace atl::wire
