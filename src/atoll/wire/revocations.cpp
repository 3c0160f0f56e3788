#include "atoll/wire/revocations.h"

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

Revocations::Revocations(const Identity& identity)
    : file_(identity.directory / "revoked.pem"),
      authority_pem_(identity.authority_pem),
      seen_(version()),
      looked_(std::chrono::steady_clock::now()) {
  if (fs::exists(file_)) serials_ = read();
}

Revocations::Version Revocations::version() const {
  std::error_code none;
  Version version;
  version.changed = fs::last_write_time(file_, none);
  if (none) return {};
  version.bytes = fs::file_size(file_, none);
  return none ? Version{} : version;
}

std::set<std::string> Revocations::read() const {
  const RevokedPtr list = parse_revoked(read_file(file_), file_.string());
  const CertificatePtr authority = parse_certificate(authority_pem_, "ca.pem");
  if (X509_CRL_verify(list.get(), X509_get0_pubkey(authority.get())) != 1) {
    openssl_reason();
    throw user_error("{} is not signed by ca.pem beside it; copy it from the authority again",
                     file_.string());
  }
  std::set<std::string> serials;
  STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(list.get());
  for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
    serials.insert(to_hex(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
  }
  return serials;
}

void Revocations::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::milliseconds(200)) return;
  looked_ = now;
  const Version current = version();
  if (current == seen_) return;
  seen_ = current;
  try {
    serials_ = read();
    log::info("{} was read again: {} certificates are revoked", file_.string(), serials_.size());
  } catch (const Error& error) {
    log::warning("{}; the list as it was before stays in force", error.what());
  }
}

bool Revocations::contains(const std::string& serial) {
  const std::lock_guard lock(mutex_);
  refresh();
  return serials_.contains(serial);
}

}  // namespace atl::wire
