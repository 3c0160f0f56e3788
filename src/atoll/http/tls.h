#pragma once

// TLS for the connections of a server: bytes in, bytes out, no socket.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace atl::http {

/// A certificate and its key, ready for connections.
class TlsContext {
 public:
  /// Reads PEM files: a certificate with the chain to its authority, and its key. TLS 1.3 alone.
  /// Throws Error(kUser) naming the file that is missing, unreadable, or not what it should be.
  TlsContext(const std::filesystem::path& certificate, const std::filesystem::path& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  struct State;
  std::unique_ptr<State> state_;
};

/// The server's side of one connection.
class TlsSession {
 public:
  explicit TlsSession(const TlsContext& context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Takes what came from the client and appends what it says to `plain`. False: the session is
  /// over, by an error or the client's farewell.
  bool receive(std::string_view cipher, std::string& plain);
  /// Encrypts; what is to be sent is in take(). False: the session is over.
  bool send(std::string_view plain);
  /// Whether send() may be called: the handshake is done.
  bool is_ready() const;
  /// Bytes for the client, of the handshake too; empty: none.
  std::string take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::http
