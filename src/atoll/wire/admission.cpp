#include "atoll/wire/admission.h"

#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace {

// gRPC writes "ipv4:127.0.0.1:4711" and "ipv6:%5B::1%5D:4711".
std::string plain_address(std::string text) {
  if (text.starts_with("ipv4:") || text.starts_with("ipv6:")) text.erase(0, 5);
  for (const auto& [code, plain] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const std::size_t at = text.find(code);
    if (at != std::string::npos) text.replace(at, 3, plain);
  }
  return text;
}

}  // namespace

CheckedPeer read_checked_peer(const grpc::AuthContext& context, const std::string& address) {
  const std::vector<grpc::string_ref> pem = context.FindPropertyValues("x509_pem_cert");
  if (pem.empty()) throw damaged_error("{} showed no certificate", address);
  const CertificatePtr certificate =
      parse_certificate(std::string_view(pem[0].data(), pem[0].size()), address);
  const Certificate description = describe(certificate.get());
  if (description.name.empty())
    throw damaged_error("{} showed a certificate without a name", address);
  return {.peer = {description.name, address},
          .serial = description.serial,
          .not_after = description.not_after};
}

Admission::Admission(const std::optional<Identity>& identity, std::optional<Secret> secret,
                     const std::optional<std::filesystem::path>& kept_list)
    : secret_(std::move(secret)) {
  if (identity) revocations_ = std::make_unique<Revocations>(*identity, kept_list);
}

std::string Admission::objection(const CheckedPeer& checked) {
  if (revocations_ == nullptr) return "";
  if (revocations_->contains(checked.serial)) {
    return fmt::format("the certificate {} of {} was revoked", checked.serial, checked.peer.name);
  }
  if (unix_now() > checked.not_after) {
    return fmt::format("the certificate of {} expired on {}", checked.peer.name,
                       format_time(checked.not_after));
  }
  return "";
}

// Where the secret is, for those whom it is meant for: they are on this machine, and the file
// itself keeps others out.
std::string Admission::where_it_is() const {
  return fmt::format("give the file {} (island.secret, sync.secret, or --secret of a command)",
                     secret_->path().string());
}

// Why the caller does not know the secret: one line; "": it does.
std::string Admission::check_secret(grpc::ServerContextBase& context) const {
  const auto& metadata = context.client_metadata();
  const auto nonce_at = metadata.find(kNonceKey);
  const auto shown = metadata.find(kProofKey);
  if (nonce_at == metadata.end() || shown == metadata.end()) {
    return "this run has a secret, and none was shown: " + where_it_is();
  }
  const std::string_view nonce(nonce_at->second.data(), nonce_at->second.size());
  const std::string_view proof(shown->second.data(), shown->second.size());
  if (!is_same(proof, secret_->proof("client", port_, nonce))) {
    return fmt::format("the secret that was shown is not that of this run, or not for port {}: {}",
                       port_.load(), where_it_is());
  }
  context.AddInitialMetadata(kProofKey, secret_->proof("server", port_, nonce));
  return "";
}

grpc::Status Admission::admit(grpc::ServerContextBase& context, CheckedPeer& checked) {
  const std::string address = plain_address(context.peer());
  checked = {.peer = {"", address}};
  if (revocations_ == nullptr && !secret_) return grpc::Status::OK;
  if (secret_ && port_ == 0) return {grpc::StatusCode::UNAVAILABLE, "the server is starting"};
  std::string problem;
  try {
    if (secret_) {
      problem = check_secret(context);
    } else {
      checked = read_checked_peer(*context.auth_context(), address);
      problem = objection(checked);
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  if (problem.empty()) return grpc::Status::OK;
  log::warning("refused {}: {}", address, problem);
  return {grpc::StatusCode::UNAUTHENTICATED, problem};
}

grpc::Status CallLimit::enter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  const int of_peer = found != by_name_.end() ? found->second : 0;
  if (sum_ >= most_ || (!name.empty() && of_peer >= most_per_peer_)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("too many {}: {} in all (at most {}), {} of this peer (at most {})", what_,
                        sum_, most_, of_peer, most_per_peer_)};
  }
  ++sum_;
  ++by_name_[name];
  return grpc::Status::OK;
}

void CallLimit::leave(const std::string& name) {
  const std::lock_guard lock(mutex_);
  --sum_;
  const auto found = by_name_.find(name);
  if (--found->second == 0) by_name_.erase(found);
}

}  // namespace atl::wire
