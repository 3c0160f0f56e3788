// How much of a link a fetch over gRPC with TLS fills, against one plain TCP socket through the
// same relay. Connections are made before the clock starts, for both: islands keep theirs.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/certs.h"
#include "atoll/wire/server.h"
#include "atoll/wire/testing/relay.h"

namespace atl::wire {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  double round_trip_ms = 0;
  double megabits = 0;  // per second; 0: unlimited
  std::uint64_t bytes = 0;
};

int make_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int size = 64 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  return fd;
}

sockaddr_in loopback(int port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return where;
}

int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

// Sends `bytes` to whoever connects and asks with one byte.
class RawServer {
 public:
  explicit RawServer(std::uint64_t bytes) : listener_(make_socket()) {
    sockaddr_in here = loopback(0);
    socklen_t size = sizeof here;
    auto* where = reinterpret_cast<sockaddr*>(&here);
    ATOLL_CHECK(::bind(listener_, where, size) == 0 && ::listen(listener_, 1) == 0 &&
                ::getsockname(listener_, where, &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    thread_ = std::thread([this, bytes] { serve(bytes); });
  }
  ~RawServer() {
    thread_.join();
    ::close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  void serve(std::uint64_t bytes) const {
    const int fd = ::accept(listener_, nullptr, nullptr);
    const std::vector<char> piece(std::size_t{1} << 20, 'x');
    char request = 0;
    ATOLL_CHECK(::recv(fd, &request, 1, 0) == 1);
    while (bytes > 0) {
      const ssize_t sent =
          ::send(fd, piece.data(), std::min<std::uint64_t>(piece.size(), bytes), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes -= static_cast<std::uint64_t>(sent);
    }
    ::close(fd);
  }

  int listener_;
  std::string address_;
  std::thread thread_;
};

test::LinkOptions link_of(const Case& setting) {
  return {.delay_ms = setting.round_trip_ms / 2, .bytes_per_second = setting.megabits * 1e6 / 8};
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes per second of payload.
double raw_rate(const Case& setting) {
  const RawServer server(setting.bytes);
  const test::Relay relay(server.address(), link_of(setting));
  const int fd = make_socket();
  const sockaddr_in where = loopback(port_of(relay.address()));
  ATOLL_CHECK(::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  std::vector<char> buffer(std::size_t{1} << 20);
  const Clock::time_point begin = Clock::now();
  ATOLL_CHECK(::send(fd, "?", 1, MSG_NOSIGNAL) == 1);
  std::uint64_t got = 0;
  while (got < setting.bytes) {
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    ATOLL_CHECK(n > 0, "after {} bytes", got);
    got += static_cast<std::uint64_t>(n);
  }
  const double seconds = seconds_since(begin);
  ::close(fd);
  return static_cast<double>(got) / seconds;
}

double fetch_rate(const Case& setting, int streams, const std::filesystem::path& identities) {
  const std::vector<std::byte> content(setting.bytes, std::byte{42});
  std::vector<std::byte> got(setting.bytes);
  BlobStore blobs;
  const Reader reader = [&](std::uint64_t offset, std::span<std::byte> out) {
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  };
  const Writer writer = [&](std::uint64_t offset, std::span<const std::byte> data) {
    std::ranges::copy(data, got.begin() + static_cast<std::ptrdiff_t>(offset));
  };
  blobs.publish({.key = "blob", .bytes = setting.bytes, .reader = reader, .is_complete = true});
  // One chunk for each connection, to make them.
  const std::uint64_t first = static_cast<std::uint64_t>(streams);
  blobs.publish(
      {.key = "first", .bytes = first, .chunk_bytes = 1, .reader = reader, .is_complete = true});
  Server server({.identity = identities / "server"}, nullptr, &blobs);
  const test::Relay relay(server.address(), link_of(setting));
  BlobClient remote(
      {.address = relay.address(), .identity = identities / "client", .streams = streams});
  std::vector<bool> done;
  TransferResult result =
      remote.fetch({.key = "first", .bytes = first, .chunk_bytes = 1}, done, writer);
  ATOLL_CHECK(result.end == TransferEnd::kDone, "{}", result.why);
  done.clear();
  const Clock::time_point begin = Clock::now();
  result = remote.fetch({.key = "blob", .bytes = setting.bytes}, done, writer);
  const double seconds = seconds_since(begin);
  ATOLL_CHECK(result.end == TransferEnd::kDone, "{}", result.why);
  return static_cast<double>(setting.bytes) / seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Case& setting, const std::vector<int>& streams, int rounds,
             const std::filesystem::path& identities) {
  std::vector<std::vector<double>> rates(streams.size() + 1);
  for (int round = 0; round < rounds; ++round) {  // interleaved: the machine has other work too
    rates[0].push_back(raw_rate(setting));
    for (std::size_t i = 0; i < streams.size(); ++i) {
      rates[i + 1].push_back(fetch_rate(setting, streams[i], identities));
    }
  }
  const double raw = median(rates[0]);
  std::printf(
      "| %.0f ms | %s | %.1f |", setting.round_trip_ms,
      setting.megabits > 0 ? fmt::format("{:.0f} Mbit/s", setting.megabits).c_str() : "unlimited",
      raw / 1e6);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const double rate = median(rates[i + 1]);
    std::printf(" %.1f (%.0f%%) |", rate / 1e6, 100 * rate / raw);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace atl::wire

int main(int argc, char** argv) {
  using namespace atl::wire;
  CLI::App app("Throughput of fetches against a plain socket, through a relay");
  int rounds = 3;
  std::vector<double> megabits = {200, 1000, 0};
  std::vector<double> round_trips = {0, 20, 100};
  std::vector<int> streams = {1, 2, 4, 8};
  double seconds = 3;
  app.add_option("--rounds", rounds, "Runs of each, of which the median counts");
  app.add_option("--megabits", megabits, "Rates of the link; 0: unlimited")->delimiter(',');
  app.add_option("--round-trips", round_trips, "In ms")->delimiter(',');
  app.add_option("--streams", streams, "Of each fetch")->delimiter(',');
  app.add_option("--seconds", seconds, "That the link needs for what is fetched");
  CLI11_PARSE(app, argc, argv);
  std::string name = "/tmp/atoll-wire-bench-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(name.data());
  make_authority(directory / "authority");
  issue(directory / "authority", "server", {"127.0.0.1"}, 1);
  issue(directory / "authority", "client", {}, 1);
  std::printf("| round trip | link | plain socket MB/s |");
  for (const int n : streams) std::printf(" %d stream%s |", n, n == 1 ? "" : "s");
  std::printf("\n|---|---|---|");
  for (std::size_t i = 0; i < streams.size(); ++i) std::printf("---|");
  std::printf("\n");
  for (const double rate : megabits) {
    const double per_second = (rate > 0 ? std::min(rate, 1000.0) : 1000.0) * 1e6 / 8;
    for (const double round_trip : round_trips) {
      measure({round_trip, rate, static_cast<std::uint64_t>(per_second * seconds)}, streams, rounds,
              directory / "authority" / "identities");
    }
  }
  std::filesystem::remove_all(directory);
  return 0;
}
