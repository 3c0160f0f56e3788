#pragma once

#include <stdexcept>
//
#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"

namespace atl::comm::gloo_net {

/// Our rendezvous as Gloo wants it; keys begin with the id of the rendezvous.
class Store : public ::gloo::rendezvous::Store {
 public:
  Store(Rendezvous& rendezvous, std::string rendezvous_id, double timeout_s)
      : rendezvous_(rendezvous), rendezvous_id_(std::move(rendezvous_id)), timeout_s_(timeout_s) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    rendezvous_.set(full(key), std::string_view(data.data(), data.size()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = rendezvous_.wait(full(key), timeout_s_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait_for(keys, timeout_s_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    wait_for(keys, static_cast<double>(timeout.count()) / 1000);
  }

 private:
  std::string full(const std::string& key) const { return rendezvous_id_ + "/" + key; }
  void wait_for(const std::vector<std::string>& keys, double timeout_s) {
    for (const std::string& key : keys) rendezvous_.wait(full(key), timeout_s);
  }

  Rendezvous& rendezvous_;
  std::string rendezvous_id_;
  double timeout_s_;
};

}  // namespace atl::comm::gloo_net
