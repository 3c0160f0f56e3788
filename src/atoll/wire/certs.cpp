#include "atoll/wire/certs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/rename.h"
#include "atoll/wire/secret_file.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kDay = 24 * 3600;
constexpr std::int64_t kAuthorityDays = 20 * 365;
constexpr int kMaxDays = 10 * 365;

void require(bool ok, const char* what) {
  ATOLL_CHECK(ok, "{}: {}", what, openssl_reason());
}

// Creates a file that no other user can read, from the first moment on.
void write_secret(const fs::path& path, const std::string& content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) throw io_error("cannot create", path, errno);
  const ssize_t written = ::write(fd, content.data(), content.size());
  const int reason = written == static_cast<ssize_t>(content.size()) && ::fsync(fd) == 0
                         ? 0
                         : (errno != 0 ? errno : ENOSPC);
  ::close(fd);
  if (reason != 0) throw io_error("cannot write", path, reason);
}

KeyPtr new_key() {
  KeyPtr key(EVP_EC_gen("P-256"));
  require(key != nullptr, "making a key");
  return key;
}

struct Validity {
  std::int64_t not_before = 0;
  std::int64_t not_after = 0;
};

Validity from_now(std::int64_t days) {
  const std::int64_t now = unix_now();
  return {now - kClockSkewSeconds, now + days * kDay};
}

void set_times(X509* certificate, const Validity& validity) {
  require(ASN1_TIME_set(X509_getm_notBefore(certificate), validity.not_before) != nullptr &&
              ASN1_TIME_set(X509_getm_notAfter(certificate), validity.not_after) != nullptr,
          "setting times");
}

// 127 random bits: unique without a counter that a restored backup could repeat.
void set_serial(X509* certificate) {
  unsigned char bytes[16];
  require(RAND_bytes(bytes, sizeof bytes) == 1, "random bytes");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  BIGNUM* number = BN_bin2bn(bytes, sizeof bytes, nullptr);
  const bool ok = number != nullptr &&
                  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  require(ok, "setting a serial number");
}

void set_name(X509* certificate, const std::string& name) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  require(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>(name.data()),
                                     static_cast<int>(name.size()), -1, 0) == 1,
          "setting a name");
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool ok = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  require(ok, value.c_str());
}

CertificatePtr new_certificate(EVP_PKEY* key, const std::string& name, const Validity& validity) {
  CertificatePtr certificate(X509_new());
  require(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
              X509_set_pubkey(certificate.get(), key) == 1,
          "making a certificate");
  set_serial(certificate.get());
  set_times(certificate.get(), validity);
  set_name(certificate.get(), name);
  return certificate;
}

struct Authority {
  CertificatePtr certificate;
  KeyPtr key;
  std::string pem;
};

Authority load_authority(const fs::path& directory) {
  if (!path_exists(directory / "ca.pem")) {
    throw user_error("{} is no authority: it has no ca.pem; `atoll certs init {}` makes one",
                     directory.string(), directory.string());
  }
  Authority authority;
  authority.pem = read_file(directory / "ca.pem");
  authority.certificate = parse_certificate(authority.pem, (directory / "ca.pem").string());
  const fs::path key = directory / "ca-key.pem";
  authority.key = parse_key(read_secret(key), key.string());
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    openssl_reason();
    throw user_error("{} is not the key of ca.pem beside it", key.string());
  }
  return authority;
}

void check_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  if (!plain || name.empty() || name.size() > 64 ||
      std::isalnum(static_cast<unsigned char>(name[0])) == 0) {
    throw user_error(
        "{} cannot be a name: 1 to 64 letters, digits, '.', '-' and '_', the first a "
        "letter or digit",
        name.empty() ? "\"\"" : name);
  }
}

// "DNS:lyon,DNS:lyon.example.org,IP:10.0.0.3". OpenSSL parses this text, so no host may have a
// character that separates names.
std::string alternative_names(const std::string& name, const std::vector<std::string>& hosts) {
  std::string text = "DNS:" + name;
  for (const std::string& host : hosts) {
    unsigned char address[sizeof(in6_addr)];
    if (inet_pton(AF_INET, host.c_str(), address) == 1 ||
        inet_pton(AF_INET6, host.c_str(), address) == 1) {
      text += ",IP:" + host;
      continue;
    }
    const bool plain = std::all_of(host.begin(), host.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
    });
    if (!plain || host.empty() || host.size() > 253) {
      throw user_error("{} is neither a host name nor an address; give it without a port",
                       host.empty() ? "\"\"" : host);
    }
    text += ",DNS:" + host;
  }
  return text;
}

CertificatePtr sign(const Authority& authority, EVP_PKEY* key, const std::string& name,
                    const std::string& alternatives, const Validity& validity,
                    std::int64_t number_of_list) {
  CertificatePtr certificate = new_certificate(key, name, validity);
  X509* issuer = authority.certificate.get();
  require(X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer)) == 1, "issuer");
  add_extension(certificate.get(), issuer, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), issuer, NID_key_usage, "critical,digitalSignature");
  add_extension(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(certificate.get(), issuer, NID_subject_key_identifier, "hash");
  add_extension(certificate.get(), issuer, NID_authority_key_identifier, "keyid:always");
  add_extension(certificate.get(), issuer, NID_subject_alt_name, alternatives);
  set_list_mark(certificate.get(), number_of_list);
  require(X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) > 0, "signing");
  return certificate;
}

// A list with the entries of `before` (may be null) and these serials, and the next number.
std::string signed_list(const Authority& authority, X509_CRL* before,
                        const std::vector<CertificatePtr>& revoked) {
  const RevokedPtr list(before != nullptr ? X509_CRL_dup(before) : X509_CRL_new());
  ASN1_TIME* time = ASN1_TIME_set(nullptr, unix_now() - kClockSkewSeconds);
  require(list != nullptr && time != nullptr && X509_CRL_set_version(list.get(), 1) == 1 &&
              X509_CRL_set_issuer_name(list.get(),
                                       X509_get_subject_name(authority.certificate.get())) == 1 &&
              X509_CRL_set1_lastUpdate(list.get(), time) == 1,
          "making a list of revoked certificates");
  for (const CertificatePtr& certificate : revoked) {
    X509_REVOKED* entry = X509_REVOKED_new();
    require(
        entry != nullptr &&
            X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate.get())) == 1 &&
            X509_REVOKED_set_revocationDate(entry, time) == 1 &&
            X509_CRL_add0_revoked(list.get(), entry) == 1,
        "revoking");
  }
  ASN1_TIME_free(time);
  set_list_number(list.get(), (before != nullptr ? list_number(before) : 0) + 1);
  require(X509_CRL_sort(list.get()) == 1 &&
              X509_CRL_sign(list.get(), authority.key.get(), EVP_sha256()) > 0,
          "signing a list");
  return to_pem(list.get());
}

std::vector<CertificatePtr> load_issued(const fs::path& directory) {
  std::vector<CertificatePtr> all;
  for (const auto& entry : fs::directory_iterator(directory / "issued")) {
    if (entry.path().extension() != ".pem") continue;
    all.push_back(parse_certificate(read_file(entry.path()), entry.path().string()));
  }
  return all;
}

// A missing list is an error and not an empty list: else all revoked certificates would be valid.
RevokedPtr load_list(const fs::path& directory, X509* authority) {
  const fs::path file = directory / "revoked.pem";
  if (!fs::exists(file)) {
    throw user_error(
        "{} is missing, the list of revoked certificates that this authority has had from the "
        "beginning: copy it back from an identity that it issued, the newest there is",
        file.string());
  }
  RevokedPtr list = parse_revoked(read_file(file), file.string());
  if (X509_CRL_verify(list.get(), X509_get0_pubkey(authority)) != 1) {
    openssl_reason();
    throw user_error("{} is not signed by ca.pem beside it", file.string());
  }
  std::int64_t newest = 0;
  for (const CertificatePtr& issued : load_issued(directory)) {
    newest = std::max(newest, describe(issued.get()).list_number);
  }
  if (list_number(list.get()) < newest) {
    throw user_error(
        "{} is list {}, and certificates were issued when list {} was there: copy the newest back "
        "from an identity that was issued since",
        file.string(), list_number(list.get()), newest);
  }
  return list;
}

bool is_on(X509_CRL* list, X509* certificate) {
  X509_REVOKED* entry = nullptr;
  return X509_CRL_get0_by_cert(list, &entry, certificate) == 1;
}

}  // namespace

void make_authority(const fs::path& directory) {
  for (const char* file : {"ca.pem", "ca-key.pem"}) {
    if (path_exists(directory / file)) {
      throw user_error("{} is there already; an authority is made once, in a new directory",
                       (directory / file).string());
    }
  }
  fs::create_directories(directory / "issued");
  fs::create_directories(directory / "identities");
  fs::permissions(directory, fs::perms::owner_all);
  Authority authority;
  authority.key = new_key();
  // Each authority has a name of its own, so that certificates of another authority are recognised.
  unsigned char tag[4];
  require(RAND_bytes(tag, sizeof tag) == 1, "random bytes");
  const std::string name =
      fmt::format("atoll authority {:02x}{:02x}{:02x}{:02x}", tag[0], tag[1], tag[2], tag[3]);
  authority.certificate = new_certificate(authority.key.get(), name, from_now(kAuthorityDays));
  X509* certificate = authority.certificate.get();
  require(X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1, "issuer");
  add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(certificate, certificate, NID_subject_key_identifier, "hash");
  require(X509_sign(certificate, authority.key.get(), EVP_sha256()) > 0, "signing");
  write_secret(directory / "ca-key.pem", to_pem(authority.key.get()));
  write_file(directory / "revoked.pem", signed_list(authority, nullptr, {}));
  write_file(directory / "ca.pem", to_pem(certificate));
}

Certificate issue(const fs::path& directory, const std::string& name,
                  const std::vector<std::string>& hosts, int days) {
  if (days < 1 || days > kMaxDays) {
    throw user_error("a certificate for {} days: give 1 to {}", days, kMaxDays);
  }
  const Validity validity = from_now(days);
  return issue_between(directory, name, hosts, validity.not_before, validity.not_after);
}

Certificate issue_between(const fs::path& directory, const std::string& name,
                          const std::vector<std::string>& hosts, std::int64_t not_before,
                          std::int64_t not_after) {
  check_name(name);
  const std::string alternatives = alternative_names(name, hosts);
  const Authority authority = load_authority(directory);
  const DirectoryLock lock(directory, "wait for it");
  const fs::path identity = directory / "identities" / name;
  if (path_exists(identity)) {
    throw user_error(
        "{} has an identity already; `atoll certs revoke` it, or delete the directory to issue "
        "another beside it",
        identity.string());
  }
  const RevokedPtr list = load_list(directory, authority.certificate.get());
  const KeyPtr key = new_key();
  const CertificatePtr certificate = sign(authority, key.get(), name, alternatives,
                                          {not_before, not_after}, list_number(list.get()));
  Certificate description = describe(certificate.get());
  const std::string pem = to_pem(certificate.get());
  // Recorded under issued/ before anybody can use it.
  write_file(directory / "issued" / (description.serial + ".pem"), pem);
  const fs::path unfinished = directory / "identities" / ("." + name + ".unfinished");
  fs::remove_all(unfinished);
  fs::create_directories(unfinished);
  fs::permissions(unfinished, fs::perms::owner_all);
  write_secret(unfinished / "key.pem", to_pem(key.get()));
  write_file(unfinished / "cert.pem", pem);
  write_file(unfinished / "ca.pem", authority.pem);
  write_file(unfinished / "revoked.pem", to_pem(list.get()));
  rename_path(unfinished, identity);
  sync_directory(directory / "identities");
  return description;
}

int revoke(const fs::path& directory, const std::string& name) {
  check_name(name);
  const Authority authority = load_authority(directory);
  const DirectoryLock lock(directory, "wait for it");
  const RevokedPtr list = load_list(directory, authority.certificate.get());
  std::vector<CertificatePtr> of_name = load_issued(directory);
  std::erase_if(of_name, [&](const CertificatePtr& certificate) {
    return describe(certificate.get()).name != name;
  });
  if (of_name.empty()) {
    throw user_error("{} never issued a certificate for {}; `atoll certs show {}` lists them",
                     directory.string(), name, directory.string());
  }
  std::erase_if(of_name, [&](const CertificatePtr& certificate) {
    return is_on(list.get(), certificate.get());
  });
  const std::string pem = signed_list(authority, list.get(), of_name);
  write_file(directory / "revoked.pem", pem);
  fs::remove_all(directory / "identities" / name);
  for (const auto& entry : fs::directory_iterator(directory / "identities")) {
    write_file(entry.path() / "revoked.pem", pem);
  }
  return static_cast<int>(of_name.size());
}

std::vector<Certificate> list_certificates(const fs::path& directory) {
  if (!path_exists(directory / "ca.pem")) {
    throw user_error("{} is no authority: it has no ca.pem", directory.string());
  }
  const fs::path ca = directory / "ca.pem";
  const RevokedPtr list = load_list(directory, parse_certificate(read_file(ca), ca.string()).get());
  std::vector<Certificate> all;
  for (const CertificatePtr& certificate : load_issued(directory)) {
    all.push_back(describe(certificate.get()));
    all.back().is_revoked = is_on(list.get(), certificate.get());
  }
  std::sort(all.begin(), all.end(), [](const Certificate& a, const Certificate& b) {
    return std::tie(a.name, a.not_before, a.serial) < std::tie(b.name, b.not_before, b.serial);
  });
  return all;
}

}  // namespace atl::wire
