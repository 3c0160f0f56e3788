#pragma once

// OpenSSL's objects with owners, and what of a certificate this folder asks for. Only for the .cpp
// files here.

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include "atoll/wire/certificate.h"

namespace atl::wire {

/// Calls the right function for each of OpenSSL's types.
struct OpensslFree {
  void operator()(X509* object) const { X509_free(object); }
  void operator()(X509_CRL* object) const { X509_CRL_free(object); }
  void operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
};
using CertificatePtr = std::unique_ptr<X509, OpensslFree>;
using RevokedPtr = std::unique_ptr<X509_CRL, OpensslFree>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree>;

/// OpenSSL's own words for what went wrong last in this thread; forgets them.
std::string openssl_reason();

/// Reads PEM text. Throws Error(kDamaged) naming `where` when there is no such object in it.
CertificatePtr parse_certificate(std::string_view pem, const std::string& where);
RevokedPtr parse_revoked(std::string_view pem, const std::string& where);
KeyPtr parse_key(std::string_view pem, const std::string& where);

/// The PEM text of each.
std::string to_pem(X509* certificate);
std::string to_pem(X509_CRL* revoked);
std::string to_pem(EVP_PKEY* key);

/// A serial number in lower-case hexadecimal.
std::string to_hex(const ASN1_INTEGER* serial);

/// What a certificate says; is_revoked stays false. Names that have control characters or zero
/// bytes in them, which no authority of ours signs, become "".
Certificate describe(const X509* certificate);

/// The number of a list of revoked certificates: each that an authority signs has the next. 0: it
/// is of an atoll that did not number them.
std::int64_t list_number(const X509_CRL* list);
void set_list_number(X509_CRL* list, std::int64_t number);

/// Whether the key of that authority, PEM text, signed the list.
bool is_signed_by(X509_CRL* list, const std::string& authority_pem);

/// Marks a certificate with the number of the newest list of when it is issued.
void set_list_mark(X509* certificate, std::int64_t number);

}  // namespace atl::wire
