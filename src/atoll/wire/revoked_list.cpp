#include "atoll/wire/revoked_list.h"

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

RevokedList read_revoked(const fs::path& file, const std::string& authority_pem) {
  RevokedList list = {.pem = read_file(file)};
  const RevokedPtr parsed = parse_revoked(list.pem, file.string());
  if (!is_signed_by(parsed.get(), authority_pem)) {
    throw user_error("{} is not signed by ca.pem beside it; copy it from the authority again",
                     file.string());
  }
  list.number = list_number(parsed.get());
  STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(parsed.get());
  for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
    list.serials.insert(to_hex(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
  }
  return list;
}

}  // namespace atl::wire
