#include "atoll/wire/x509.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <chrono>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::wire {

namespace {

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, BioFree>;

BioPtr reading(std::string_view text) {
  constexpr std::size_t kMost = 1 << 20;  // a PEM file has a few KiB
  BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(std::min(text.size(), kMost))));
  ATOLL_CHECK(bio != nullptr);
  return bio;
}

// Without this OpenSSL would ask for a password on the terminal.
int no_password(char*, int, int, void*) {
  return 0;
}

template <typename Write>
std::string written(const Write& write) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  ATOLL_CHECK(bio != nullptr && write(bio.get()) == 1, "{}", openssl_reason());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string plain_text(const ASN1_STRING* string) {
  const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                         static_cast<std::size_t>(ASN1_STRING_length(string)));
  const bool plain =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 32 && c < 127; });
  return plain ? text : "";
}

std::string common_name(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return "";
  return plain_text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

std::string address_text(const ASN1_OCTET_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(bytes) != 16) return "";
  return inet_ntop(family, ASN1_STRING_get0_data(bytes), text, sizeof text) != nullptr ? text : "";
}

std::vector<std::string> host_names(const X509* certificate) {
  std::vector<std::string> hosts;
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS) hosts.push_back(plain_text(name->d.dNSName));
    if (name->type == GEN_IPADD) hosts.push_back(address_text(name->d.iPAddress));
  }
  GENERAL_NAMES_free(names);
  std::erase(hosts, "");
  return hosts;
}

struct IntegerFree {
  void operator()(ASN1_INTEGER* number) const { ASN1_INTEGER_free(number); }
};
using IntegerPtr = std::unique_ptr<ASN1_INTEGER, IntegerFree>;

IntegerPtr to_integer(std::int64_t number) {
  IntegerPtr integer(ASN1_INTEGER_new());
  ATOLL_CHECK(integer != nullptr && ASN1_INTEGER_set_int64(integer.get(), number) == 1);
  return integer;
}

// The number of atoll's own certificate extension, made of a UUID (ITU-T X.667). The extension is
// not critical, so other programs ignore it.
constexpr const char* kListMark = "2.25.191349867219406012736128417604583270416";

ASN1_OBJECT* list_mark_object() {
  static ASN1_OBJECT* const object = OBJ_txt2obj(kListMark, 1);  // until the process ends
  ATOLL_CHECK(object != nullptr, "{}", openssl_reason());
  return object;
}

std::int64_t list_mark(const X509* certificate) {
  const int at = X509_get_ext_by_OBJ(certificate, list_mark_object(), -1);
  if (at < 0) return 0;
  const ASN1_OCTET_STRING* value = X509_EXTENSION_get_data(X509_get_ext(certificate, at));
  const unsigned char* bytes = ASN1_STRING_get0_data(value);
  const IntegerPtr number(d2i_ASN1_INTEGER(nullptr, &bytes, ASN1_STRING_length(value)));
  std::int64_t mark = 0;
  if (number == nullptr || ASN1_INTEGER_get_int64(&mark, number.get()) != 1) return 0;
  return mark;
}

std::int64_t unix_seconds(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return timegm(&parts);
}

}  // namespace

std::string openssl_reason() {
  const unsigned long code = ERR_peek_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  std::string text = reason != nullptr ? reason : "OpenSSL gives no reason";
  ERR_clear_error();
  return text;
}

CertificatePtr parse_certificate(std::string_view pem, const std::string& where) {
  CertificatePtr certificate(PEM_read_bio_X509(reading(pem).get(), nullptr, no_password, nullptr));
  if (certificate == nullptr) {
    throw damaged_error("{} holds no PEM certificate ({})", where, openssl_reason());
  }
  return certificate;
}

RevokedPtr parse_revoked(std::string_view pem, const std::string& where) {
  RevokedPtr revoked(PEM_read_bio_X509_CRL(reading(pem).get(), nullptr, no_password, nullptr));
  if (revoked == nullptr) {
    throw damaged_error("{} holds no PEM list of revoked certificates ({})", where,
                        openssl_reason());
  }
  return revoked;
}

KeyPtr parse_key(std::string_view pem, const std::string& where) {
  KeyPtr key(PEM_read_bio_PrivateKey(reading(pem).get(), nullptr, no_password, nullptr));
  if (key == nullptr) {
    throw damaged_error("{} holds no PEM private key without a password ({})", where,
                        openssl_reason());
  }
  return key;
}

std::string to_pem(X509* certificate) {
  return written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string to_pem(X509_CRL* revoked) {
  return written([&](BIO* bio) { return PEM_write_bio_X509_CRL(bio, revoked); });
}

std::string to_pem(EVP_PKEY* key) {
  return written([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

std::string to_hex(const ASN1_INTEGER* serial) {
  BIGNUM* number = ASN1_INTEGER_to_BN(serial, nullptr);
  char* digits = number != nullptr ? BN_bn2hex(number) : nullptr;
  std::string text = digits != nullptr ? digits : "";
  OPENSSL_free(digits);
  BN_free(number);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Certificate describe(const X509* certificate) {
  return {.name = common_name(certificate),
          .serial = to_hex(X509_get0_serialNumber(certificate)),
          .hosts = host_names(certificate),
          .not_before = unix_seconds(X509_get0_notBefore(certificate)),
          .not_after = unix_seconds(X509_get0_notAfter(certificate)),
          .list_number = list_mark(certificate)};
}

std::int64_t list_number(const X509_CRL* list) {
  const IntegerPtr number(
      static_cast<ASN1_INTEGER*>(X509_CRL_get_ext_d2i(list, NID_crl_number, nullptr, nullptr)));
  std::int64_t value = 0;
  if (number == nullptr || ASN1_INTEGER_get_int64(&value, number.get()) != 1) return 0;
  return value;
}

bool is_signed_by(X509_CRL* list, const std::string& authority_pem) {
  const CertificatePtr authority = parse_certificate(authority_pem, "ca.pem");
  const bool is = X509_CRL_verify(list, X509_get0_pubkey(authority.get())) == 1;
  if (!is) openssl_reason();
  return is;
}

void set_list_number(X509_CRL* list, std::int64_t number) {
  ATOLL_CHECK(X509_CRL_add1_ext_i2d(list, NID_crl_number, to_integer(number).get(), 0,
                                    X509V3_ADD_REPLACE) == 1,
              "{}", openssl_reason());
}

void set_list_mark(X509* certificate, std::int64_t number) {
  unsigned char* bytes = nullptr;
  const int size = i2d_ASN1_INTEGER(to_integer(number).get(), &bytes);
  ASN1_OCTET_STRING* value = ASN1_OCTET_STRING_new();
  X509_EXTENSION* extension = nullptr;
  bool ok = size > 0 && value != nullptr && ASN1_OCTET_STRING_set(value, bytes, size) == 1;
  if (ok) extension = X509_EXTENSION_create_by_OBJ(nullptr, list_mark_object(), 0, value);
  ok = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  ASN1_OCTET_STRING_free(value);
  OPENSSL_free(bytes);
  ATOLL_CHECK(ok, "marking a certificate: {}", openssl_reason());
}

}  // namespace atl::wire
