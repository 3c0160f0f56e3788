// Who is let in and who is not, with real certificates.

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/identity.h"
#include "atoll/wire/probe.h"
#include "atoll/wire/testing.h"

namespace atl::wire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const test::Pki& pki() {
  static const test::Pki shared;
  return shared;
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() : server_({.identity = pki().identity("server")}, &echo_, &blobs_) {
    std::signal(SIGPIPE, SIG_IGN);  // as the program does
    echo_.server = &server_;
    blobs_.publish({.key = "blob",
                    .bytes = 5,
                    .reader = [](std::uint64_t, std::span<std::byte>) {},
                    .is_complete = true});
  }
  ~TlsTest() override { server_.stop(); }

  // What a session is told for good, or for now.
  static std::string problem(const SessionOptions& options, bool is_final = true) {
    test::TestClient client(options);
    test::Lines& lines = is_final ? client.finals : client.breaks;
    return lines.wait(1) ? lines.all()[0] : "nothing";
  }

  void expect_undisturbed() {
    test::TestClient client(test::session_options(server_.address(), pki().identity("oslo")));
    ASSERT_TRUE(client.connects.wait(1));
    EXPECT_TRUE(client.session.send("ping"));
    EXPECT_TRUE(client.frames.wait(1));
  }

  test::Echo echo_;
  BlobStore blobs_;
  Server server_;
};

int connect_to(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &where.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
  const timeval timeout{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  return fd;
}

// A client that OpenSSL alone makes: "ok", or the reason for which the server's first byte of
// HTTP/2 did not come.
std::string openssl_client(const std::string& address, int version, const fs::path& identity) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  // This process allows TLS 1.3 only; a stranger does as it likes.
  SSL_CTX_clear_options(context, SSL_OP_NO_TLSv1_2);
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  if (!identity.empty()) {
    EXPECT_EQ(
        SSL_CTX_use_certificate_file(context, (identity / "cert.pem").c_str(), SSL_FILETYPE_PEM),
        1);
    EXPECT_EQ(
        SSL_CTX_use_PrivateKey_file(context, (identity / "key.pem").c_str(), SSL_FILETYPE_PEM), 1);
  }
  SSL* ssl = SSL_new(context);
  const int fd = connect_to(address);
  SSL_set_fd(ssl, fd);
  SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>("\2h2"), 3);
  ERR_clear_error();
  char first = 0;
  std::string result = "ok";
  if (SSL_connect(ssl) != 1 || SSL_read(ssl, &first, 1) != 1) {
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    result = reason != nullptr ? reason : "hung up";
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  ::close(fd);
  return result;
}

TEST_F(TlsTest, CertificatesOfOneAuthorityMeet) {
  test::TestClient client(test::session_options(server_.address(), pki().identity("lyon")));
  ASSERT_TRUE(client.connects.wait(1));
  EXPECT_THAT(echo_.opens.all(), ElementsAre("lyon"));
  EXPECT_TRUE(client.session.send("hello"));
  ASSERT_TRUE(client.frames.wait(1));
  EXPECT_THAT(client.frames.all(), ElementsAre("hello"));
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsRefused) {
  const test::Pki other;
  EXPECT_THAT(problem(test::session_options(server_.address(), other.identity("lyon"))),
              AllOf(HasSubstr("the certificate of " + server_.address() + " is not good"),
                    HasSubstr("certificate")));
}

TEST_F(TlsTest, AClientOfAnotherAuthorityIsRefused) {
  const test::Pki other;
  Identity forged = load_identity(other.identity("lyon"));
  forged.authority_pem = read_file(pki().authority() / "ca.pem");
  const ProbeResult result = probe(server_.address(), forged, "", 5000);
  EXPECT_TRUE(result.is_final);
  EXPECT_THAT(result.why, HasSubstr("refuses the certificate of lyon: it is of another authority"));
  expect_undisturbed();
}

TEST_F(TlsTest, AnExpiredCertificateIsRefused) {
  const std::int64_t now = std::time(nullptr);
  if (!fs::exists(pki().identity("old"))) {
    issue_between(pki().authority(), "old", {}, now - 7200, now - 3600);
  }
  try {
    const Session session(test::session_options(server_.address(), pki().identity("old")), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("it expired on"));
  }
  // A clock that is slow: this side thinks it good, the server does not.
  Identity expired = load_identity(pki().identity("lyon"));
  expired.certificate_pem = read_file(pki().identity("old") / "cert.pem");
  expired.key_pem = read_file(pki().identity("old") / "key.pem");
  const ProbeResult result = probe(server_.address(), expired, "", 5000);
  EXPECT_TRUE(result.is_final);
  EXPECT_THAT(result.why, HasSubstr("has expired by that machine's clock"));
}

TEST_F(TlsTest, AServersCertificateMustBeForItsHost) {
  SessionOptions options = test::session_options(server_.address(), pki().identity("lyon"));
  options.address = "localhost" + options.address.substr(options.address.rfind(':'));
  EXPECT_THAT(problem(options), HasSubstr("issue it with --host localhost"));
  options.server_name = "server";
  test::TestClient client(options);
  EXPECT_TRUE(client.connects.wait(1));
}

TEST_F(TlsTest, ARevokedCertificateIsRefusedAlsoWhileConnected) {
  const test::Pki own;
  test::Echo echo;
  BlobStore blobs;
  blobs.publish({.key = "blob",
                 .bytes = 5,
                 .reader = [](std::uint64_t, std::span<std::byte>) {},
                 .is_complete = true});
  Server server({.identity = own.identity("server")}, &echo, &blobs);
  // What lyon took with it; revoking deletes the directory here.
  const test::Directory taken;
  fs::copy(own.identity("lyon"), taken / "lyon");
  test::TestClient client(test::session_options(server.address(), taken / "lyon"));
  BlobClient remote({.address = server.address(), .identity = taken / "lyon", .streams = 1});
  const auto fetch = [&] {
    std::vector<bool> done;
    return remote.fetch({.key = "blob", .bytes = 5}, done,
                        [](std::uint64_t, std::span<const std::byte>) {});
  };
  ASSERT_TRUE(client.connects.wait(1));
  ASSERT_EQ(fetch().end, TransferEnd::kDone);
  revoke(own.authority(), "lyon");
  ASSERT_TRUE(client.finals.wait(1));
  EXPECT_THAT(client.finals.all()[0], HasSubstr("of lyon was revoked"));
  ASSERT_TRUE(echo.closes.wait(1));
  EXPECT_THAT(echo.closes.all()[0], HasSubstr("of lyon was revoked"));
  const TransferResult refused = fetch();
  EXPECT_EQ(refused.end, TransferEnd::kRefused);
  EXPECT_THAT(refused.why, HasSubstr("of lyon was revoked"));
  test::TestClient oslo(test::session_options(server.address(), own.identity("oslo")));
  EXPECT_TRUE(oslo.connects.wait(1));
}

TEST_F(TlsTest, ARevokedServerIsRefused) {
  const test::Pki own;
  const test::Directory stolen;
  fs::copy(own.identity("server"), stolen / "server");
  test::Echo echo;
  Server server({.identity = stolen / "server"}, &echo, nullptr);
  revoke(own.authority(), "server");
  EXPECT_THAT(problem(test::session_options(server.address(), own.identity("lyon"))),
              HasSubstr("of server at " + server.address() + " was revoked"));
}

TEST_F(TlsTest, NoCertificateIsRefused) {
  EXPECT_EQ(openssl_client(server_.address(), TLS1_3_VERSION, pki().identity("lyon")), "ok");
  EXPECT_NE(openssl_client(server_.address(), TLS1_3_VERSION, ""), "ok");
  expect_undisturbed();
}

TEST_F(TlsTest, OlderVersionsAreRefused) {
  EXPECT_NE(openssl_client(server_.address(), TLS1_2_VERSION, pki().identity("lyon")), "ok");
  expect_undisturbed();
}

TEST_F(TlsTest, PlaintextAndTlsDoNotMeet) {
  EXPECT_THAT(problem(test::session_options(server_.address(), {})),
              HasSubstr(server_.address() + " speaks TLS, and this side has no identity"));
  const Server plain({}, &echo_, nullptr);
  EXPECT_THAT(problem(test::session_options(plain.address(), pki().identity("lyon"))),
              HasSubstr(plain.address() + " does not speak TLS"));
  expect_undisturbed();
}

TEST_F(TlsTest, GarbageDisturbsNobody) {
  test::TestClient client(test::session_options(server_.address(), pki().identity("lyon")));
  ASSERT_TRUE(client.connects.wait(1));
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    const int fd = connect_to(server_.address());
    std::string bytes(1 + random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Half of them begin as a TLS record does.
    if (i % 2 == 0) bytes.replace(0, 3, "\x16\x03\x01");
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::close(fd);
  }
  EXPECT_TRUE(client.session.send("ping"));
  EXPECT_TRUE(client.frames.wait(1));
  EXPECT_TRUE(client.breaks.all().empty());
  expect_undisturbed();
}

TEST_F(TlsTest, SessionsOfOnePeerAreOnlySoMany) {
  test::Echo echo;
  Server server({.identity = pki().identity("server"), .max_sessions_per_peer = 1}, &echo, nullptr);
  test::TestClient first(test::session_options(server.address(), pki().identity("lyon")));
  ASSERT_TRUE(first.connects.wait(1));
  EXPECT_THAT(problem(test::session_options(server.address(), pki().identity("lyon")), false),
              HasSubstr("1 of this peer (at most 1)"));
  test::TestClient other(test::session_options(server.address(), pki().identity("oslo")));
  EXPECT_TRUE(other.connects.wait(1));
}

}  // namespace
}  // namespace atl::wire
