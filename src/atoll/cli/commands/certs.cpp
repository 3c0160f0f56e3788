#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/wire/certs.h"
#include "atoll/wire/identity.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kDefaultDays = 365;

struct Options {
  std::string action;
  std::string directory;
  std::string name;
  std::vector<std::string> hosts;
  int days = kDefaultDays;
};

std::string join(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, " "));
}

int init(const fs::path& directory) {
  wire::make_authority(directory);
  fmt::print(
      "{}: a new authority; ca-key.pem in it is the secret of the whole run and stays here\n",
      directory.string());
  return 0;
}

int issue(const fs::path& directory, const Options& options) {
  const wire::Certificate made = wire::issue(directory, options.name, options.hosts, options.days);
  fmt::print("{}: copy this directory to {}, over a safe way; good for {}, until {}\n",
             (directory / "identities" / made.name).string(), made.name, join(made.hosts),
             wire::format_time(made.not_after));
  return 0;
}

int revoke(const fs::path& directory, const std::string& name) {
  const int revoked = wire::revoke(directory, name);
  fmt::print(
      "{}: {} of {} revoked now; copy it to every process that listens, beside "
      "its cert.pem\n",
      (directory / "revoked.pem").string(), counted(revoked, "certificate"), name);
  return 0;
}

void print_row(const wire::Certificate& certificate, std::int64_t now) {
  const char* state = certificate.is_revoked         ? "revoked"
                      : now > certificate.not_after  ? "expired"
                      : now < certificate.not_before ? "not yet"
                                                     : "valid";
  fmt::print("{:<20} {:<8} until {}  {}  {}\n", certificate.name, state,
             wire::format_time(certificate.not_after), certificate.serial, join(certificate.hosts));
}

// Of an authority what it issued; of an identity whether it can be used.
int show(const fs::path& directory) {
  if (path_exists(directory / "cert.pem")) {
    const wire::Identity identity = wire::load_identity(directory);
    fmt::print("{}: {}, valid until {}\n", directory.string(), identity.name,
               wire::format_time(identity.not_after));
    return 0;
  }
  const std::vector<wire::Certificate> all = wire::list_certificates(directory);
  for (const wire::Certificate& certificate : all) print_row(certificate, wire::unix_now());
  if (all.empty()) fmt::print("{}: nothing issued yet\n", directory.string());
  return 0;
}

int run(const Options& options) {
  const bool wants_name = options.action == "issue" || options.action == "revoke";
  if (wants_name != !options.name.empty()) {
    throw user_error("`atoll certs {}` takes {}", options.action,
                     wants_name ? "a directory and a name" : "a directory and no name");
  }
  if (options.action != "issue" && (!options.hosts.empty() || options.days != kDefaultDays)) {
    throw user_error("--host and --days are for `atoll certs issue`");
  }
  const fs::path directory = options.directory;
  if (options.action == "init") return init(directory);
  if (options.action == "issue") return issue(directory, options);
  if (options.action == "revoke") return revoke(directory, options.name);
  return show(directory);
}

Action add(ArgumentParser& parser) {
  auto options = std::make_shared<Options>();  // lives as long as the parser and the action
  parser.add_option("action", options->action, "init, issue, revoke or show")
      .required()
      .one_of({"init", "issue", "revoke", "show"});
  parser
      .add_option("directory", options->directory,
                  "The authority's directory; for show also that of an identity")
      .required();
  parser.add_option("name", options->name, "Whose certificate: for issue and revoke");
  parser
      .add_option("--host", options->hosts,
                  "A name or address that others call it at, without a port; may be repeated")
      .one_value_each();
  parser.add_option("--days", options->days, "How long the certificate is good").show_default();
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command certs_command() {
  return {.name = "certs",
          .summary = "Make and revoke the TLS identities of islands.",
          .example =
              "  atoll certs init authority\n"
              "  atoll certs issue authority coordinator --host c.example.org\n"
              "  atoll certs issue authority lyon --host 192.0.2.7 --days 90\n"
              "  atoll certs revoke authority lyon\n"
              "  atoll certs show authority",
          .stray = "host names and addresses are given with --host",
          .add = add};
}

}  // namespace atl::cli
