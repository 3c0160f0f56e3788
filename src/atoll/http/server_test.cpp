#include "atoll/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/processes/process.h"

namespace atl::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection that waits as long as it takes; a test that hangs is ended by ctest.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  int fd() const { return socket_.get(); }
  void send(std::string_view text) const {
    EXPECT_EQ(::send(fd(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void end_sending() const { ::shutdown(fd(), SHUT_WR); }
  // Until `end` has come or the connection is over.
  std::string read_until(std::string_view end) {
    while (text_.find(end) == text_.npos && read_some()) {
    }
    const std::size_t size = std::min(text_.find(end), text_.size());
    const std::size_t taken = std::min(size + end.size(), text_.size());
    std::string result = text_.substr(0, taken);
    text_.erase(0, taken);
    return result;
  }
  std::string read_all() {
    while (read_some()) {
    }
    return std::exchange(text_, {});
  }
  bool read_some() {
    char buffer[4096];
    const ssize_t count = ::recv(fd(), buffer, sizeof buffer, 0);
    if (count > 0) text_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

 private:
  Fd socket_;
  std::string text_;
};

constexpr const char* kGet = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr const char* kLastGet = "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

void say_path(const Request& request, const Reply& reply) {
  reply.send(Response::plain(200, request.method + " " + request.path + " " + request.body));
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  const Server server({}, say_path);
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(kGet);
    EXPECT_THAT(client.read_until("GET /a \n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  client.send(kLastGet);
  EXPECT_THAT(client.read_all(), HasSubstr("Connection: close\r\n"));
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  const Server server({}, say_path);
  Client client(server.port());
  std::string requests;
  for (int i = 0; i < 200; ++i) {
    requests += fmt::format("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
  }
  client.send(requests + kLastGet);
  const std::string answers = client.read_all();
  std::size_t at = 0;
  for (int i = 0; i < 200; ++i) {
    at = answers.find(fmt::format("GET /{} \n", i), at);
    ASSERT_NE(at, answers.npos) << i;
  }
  EXPECT_THAT(answers, EndsWith("GET /a \n"));
}

TEST(HttpServer, HeadHasNoBody) {
  const Server server({}, say_path);
  Client client(server.port());
  client.send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: 9\r\n"));
  client.send(kGet);  // nothing was left in between
  EXPECT_THAT(client.read_until("\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, ARefusalEndsTheConnection) {
  const Server server({}, say_path);
  Client client(server.port());
  client.send("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
              std::string(kGet));
  const std::string answer = client.read_all();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 411 Length Required\r\n"));
  EXPECT_EQ(answer.find("200"), answer.npos);
}

TEST(HttpServer, AClientMayCloseItsSideFirst) {
  const Server server({}, say_path);
  Client client(server.port());
  client.send(kGet);
  client.end_sending();
  EXPECT_THAT(client.read_all(), EndsWith("GET /a \n"));
}

TEST(HttpServer, AHandlersErrorIsAnAnswer) {
  const Server server({}, [](const Request&, const Reply&) { throw user_error("no"); });
  Client client(server.port());
  client.send(kLastGet);
  EXPECT_THAT(client.read_all(), HasSubstr("500 Internal Server Error"));
}

TEST(HttpServer, AnswersComeLaterFromOtherThreads) {
  std::thread later;
  const Server server({}, [&](const Request&, const Reply& reply) {
    later = std::thread([reply] {
      reply.begin(Response::of("text/event-stream", ""));
      EXPECT_TRUE(reply.write(event_text("a", "1", "x")));
      EXPECT_TRUE(reply.write("end\n"));
      reply.end();
    });
  });
  Client client(server.port());
  client.send(kLastGet);
  const std::string answer = client.read_all();
  later.join();
  EXPECT_THAT(answer, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(answer, EndsWith("18\r\nid: 1\nevent: a\ndata: x\n\n\r\n4\r\nend\n\r\n0\r\n\r\n"));
}

// A reader that takes nothing is ended, and nobody else waits for it.
TEST(HttpServer, ASlowReaderIsEndedAndDelaysNobody) {
  std::mutex mutex;
  std::optional<Reply> stream;
  const Server server({.max_unread_bytes = 100'000},
                      [&](const Request& request, const Reply& reply) {
                        if (request.path != "/stream") return say_path(request, reply);
                        reply.begin(Response::of("text/event-stream", ""));
                        const std::lock_guard lock(mutex);
                        stream = reply;
                      });
  Client slow(server.port());
  slow.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  slow.read_until("\r\n\r\n");
  const std::string piece(10'000, 'x');
  int written = 0;
  for (;; ++written) {
    const std::lock_guard lock(mutex);
    ASSERT_TRUE(stream.has_value());
    if (!stream->write(piece)) break;
    ASSERT_LT(written, 100'000) << "nothing ends a reader that takes nothing";
  }
  Client other(server.port());
  other.send(kLastGet);
  EXPECT_THAT(other.read_all(), EndsWith("GET /a \n"));
  while (server.num_connections() > 1) std::this_thread::yield();  // a hang is ended by ctest
  EXPECT_FALSE(stream->is_open());
  EXPECT_FALSE(stream->write("more"));
}

std::string get(const std::string& path) {
  return "GET /" + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

// Those who ask and do not read get one answer each, and make room for others.
TEST(HttpServer, ClientsThatPipelineAndDoNotReadKeepNobodyOut) {
  constexpr int kGreedy = 30, kRequests = 20;
  std::atomic<int> large = 0;
  const Server server({.max_total_unread_bytes = 8 << 20},
                      [&](const Request& request, const Reply& reply) {
                        if (request.path != "/large") return say_path(request, reply);
                        ++large;
                        reply.send(Response::plain(200, std::string(8 << 20, 'x')));
                      });
  std::vector<Client> greedy;
  for (int i = 0; i < kGreedy; ++i) {
    greedy.emplace_back(server.port());
    std::string requests;
    for (int k = 0; k < kRequests; ++k) requests += get("large");
    greedy.back().send(requests);
  }
  while (large < kGreedy) std::this_thread::yield();  // a hang is ended by ctest
  for (int i = 0; i < 3; ++i) {
    Client client(server.port());
    client.send(kLastGet);
    EXPECT_THAT(client.read_all(), EndsWith("GET /a \n"));
  }
  EXPECT_LE(large, 2 * kGreedy);
}

TEST(HttpServer, WhoReadsGetsAllAnswersOfAPipeline) {
  const Server server({}, [](const Request& request, const Reply& reply) {
    reply.send(Response::plain(200, std::string(1 << 20, 'x') + request.path));
  });
  Client client(server.port());
  std::string requests;
  for (int i = 0; i < 10; ++i) requests += get(fmt::format("{}!", i));
  client.send(requests);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(client.read_until(fmt::format("/{}!\n", i)), StartsWith("HTTP/1.1 200"));
  }
}

TEST(HttpServer, AThousandSilentConnectionsKeepNobodyOut) {
  const Server server({.max_connections = 50}, say_path);
  std::vector<Client> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(server.port());
    if (i % 2 == 0) silent.back().send("GET / HT");
  }
  Client client(server.port());
  client.send(kLastGet);
  EXPECT_THAT(client.read_all(), EndsWith("GET /a \n"));
  EXPECT_LE(server.num_connections(), 50u);
}

TEST(HttpServer, AHalfRequestIsEndedAfterItsTime) {
  const Server server({.head_timeout = std::chrono::milliseconds(50)}, say_path);
  Client client(server.port());
  client.send("GET / HTTP/1.1\r\n");
  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 408"));
}

// How often on_gone() has told of a client.
struct Gone {
  std::atomic<int> count = 0;
  std::mutex mutex;
  std::optional<Reply> reply;
};

TEST(HttpServer, TellsThatAClientHasGone) {
  Gone gone;
  const Server server({}, [&gone](const Request& request, const Reply& reply) {
    reply.on_gone([&gone] { ++gone.count; });
    if (request.path == "/stream") reply.begin(Response::of("text/plain", ""));
    if (request.path == "/whole") reply.send(Response::plain(200, "whole"));
    const std::lock_guard lock(gone.mutex);
    gone.reply = reply;
  });
  const auto wait_for = [&gone](int count) {
    while (gone.count < count) std::this_thread::yield();
  };
  {
    const Client waits(server.port());
    waits.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (server.num_connections() < 1) std::this_thread::yield();
  }
  wait_for(1);
  {
    Client reads(server.port());
    reads.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    reads.read_until("\r\n\r\n");
  }
  wait_for(2);
  {
    Client has_all(server.port());
    has_all.send("GET /whole HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(has_all.read_all(), HasSubstr("whole"));
  }
  while (server.num_connections() > 0) std::this_thread::yield();
  EXPECT_EQ(gone.count, 2);
  gone.reply->on_gone([&gone] { ++gone.count; });  // at once
  EXPECT_EQ(gone.count, 3);
}

TEST(HttpServer, HasNothingUnsentOnceClientsHaveAll) {
  Gone gone;
  const Server server({}, [&gone](const Request&, const Reply& reply) {
    reply.begin(Response::of("text/plain", ""));
    const std::lock_guard lock(gone.mutex);
    gone.reply = reply;
  });
  EXPECT_FALSE(server.has_unsent());
  Client client(server.port());
  client.send(kGet);
  client.read_until("\r\n\r\n");
  // More than the sockets hold: some of it stays in the server until the client reads.
  constexpr std::size_t kBytes = 900 << 10;
  const std::string piece(kBytes, 'a');
  std::optional<Reply> reply;
  while (!reply) {
    const std::lock_guard lock(gone.mutex);
    reply = gone.reply;
  }
  reply->write(piece);
  EXPECT_TRUE(server.has_unsent() || client.read_some());
  reply->end();
  EXPECT_THAT(client.read_until("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
  while (server.has_unsent()) std::this_thread::yield();
}

TEST(HttpServer, AReplyMayOutliveItsServer) {
  std::optional<Reply> reply;
  {
    std::atomic<bool> has_come = false;
    const Server server({}, [&](const Request&, const Reply& one) {
      reply = one;
      has_come = true;
    });
    const Client client(server.port());
    client.send(kGet);
    while (!has_come) std::this_thread::yield();
  }
  reply->send(Response::plain(200, "late"));
  EXPECT_FALSE(reply->is_open());
}

TEST(HttpServer, APortInUseIsNamed) {
  const Server server({}, say_path);
  try {
    const Server second({.port = server.port()}, say_path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("127.0.0.1:{}", server.port())));
    EXPECT_THAT(error.what(), HasSubstr("another program listens there"));
  }
}

// A certificate for one test.
class Tls : public ::testing::Test {
 protected:
  Tls() {
    std::string name = (std::filesystem::temp_directory_path() / "atoll-tls-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    FILE* file = std::fopen((directory_ / "cert.pem").c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    file = std::fopen((directory_ / "key.pem").c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~Tls() override { std::filesystem::remove_all(directory_); }
  std::shared_ptr<const TlsContext> context() const {
    return std::make_shared<TlsContext>(directory_ / "cert.pem", directory_ / "key.pem");
  }
  std::filesystem::path directory_;
};

TEST_F(Tls, ServesByTls13AndNotByPlainText) {
  const Server server({.tls = context()}, [](const Request& request, const Reply& reply) {
    reply.send(Response::plain(200, request.path + std::string(300'000, 'z')));
  });
  Client client(server.port());
  SSL_CTX* settings = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(settings);
  SSL_set_fd(ssl, client.fd());
  ASSERT_EQ(SSL_connect(ssl), 1);
  EXPECT_STREQ(SSL_get_version(ssl), "TLSv1.3");
  EXPECT_GT(SSL_write(ssl, kLastGet, static_cast<int>(std::string_view(kLastGet).size())), 0);
  std::string answer;
  char buffer[4096];
  for (int count = 0; (count = SSL_read(ssl, buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("zzz\n"));
  EXPECT_GT(answer.size(), 300'000u);
  SSL_free(ssl);
  SSL_CTX_free(settings);

  Client plain(server.port());
  plain.send(kLastGet);
  EXPECT_EQ(plain.read_all().find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Tls, FilesThatAreNoneAreNamed) {
  write_file(directory_ / "text", "no certificate");
  const auto message = [&](const char* certificate, const char* key) -> std::string {
    try {
      const TlsContext context(directory_ / certificate, directory_ / key);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message("absent", "key.pem"), HasSubstr("absent"));
  EXPECT_THAT(message("text", "key.pem"), HasSubstr("holds no certificate"));
  EXPECT_THAT(message("cert.pem", "text"), HasSubstr("does not hold the key"));
}

}  // namespace
}  // namespace atl::http
