#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/param_server/mailbox.h"
#include "atoll/param_server/messages.h"
#include "atoll/param_server/transport.h"

namespace atl::param_server {

/// The connections that a worker or a server opens: one to the scheduler, one to each server of the
/// view. Each is made again when it breaks. What comes goes into `mailbox`.
class Links {
 public:
  /// `mailbox` must outlive this. Throws what open_connection() throws.
  Links(Mailbox& mailbox, std::string scheduler, LinkOptions options);
  ~Links();

  /// Opens links to servers that are new, and drops those to others. `own_address` is left out.
  void follow(const std::vector<ServerEntry>& servers, const std::string& own_address = {});
  /// Sends, or keeps it until there is room. Dropped where there is no connection: whoever is
  /// connected again asks again.
  void to_scheduler(const Message& message) { send(scheduler_, encode(message)); }
  void to_server(ServerId server, const Message& message);
  /// Sends what is kept.
  void flush();
  /// To be called for each letter of these links: whether it is of a connection there is.
  bool note(const Mailbox::Letter& letter);
  /// Sends what is queued for the scheduler, and ends that connection.
  void finish();
  const std::string& scheduler_address() const { return scheduler_address_; }

 private:
  struct Link {
    std::unique_ptr<Connection> connection;
    std::deque<std::string> kept;
    bool is_connected = false;
    std::string address;
  };
  void open(Link& link, const std::string& address, Mailbox::Letter::From from, std::uint64_t id);
  static void send(Link& link, std::string frame);
  static void send_kept(Link& link);

  Mailbox& mailbox_;
  std::string scheduler_address_;
  LinkOptions options_;
  Link scheduler_;
  std::map<ServerId, Link> servers_;
};

}  // namespace atl::param_server
