#include "atoll/wire/revocations.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace fs = std::filesystem;

Revocations::Revocations(const Identity& identity, std::optional<fs::path> kept)
    : file_(identity.directory / "revoked.pem"),
      kept_(std::move(kept)),
      authority_pem_(identity.authority_pem),
      seen_(version()),
      list_(read_revoked(file_, authority_pem_)),
      looked_(std::chrono::steady_clock::now()) {
  if (!kept_) return;
  if (fs::exists(*kept_)) compare_with_kept();
  keep();
}

// A kept list of another authority is ignored: all identities were issued anew.
void Revocations::compare_with_kept() const {
  const RevokedPtr before = parse_revoked(read_file(*kept_), kept_->string());
  if (!is_signed_by(before.get(), authority_pem_)) return;
  const std::int64_t number = list_number(before.get());
  if (number <= list_.number) return;
  throw user_error(
      "{} is list {} of revoked certificates, and list {} was known here before: copy the newest "
      "revoked.pem of the authority there (that one is kept as {})",
      file_.string(), list_.number, number, kept_->string());
}

void Revocations::keep() const {
  if (!kept_) return;
  if (fs::exists(*kept_) && read_file(*kept_) == list_.pem) return;
  write_file(*kept_, list_.pem);
}

Revocations::Version Revocations::version() const {
  std::error_code none;
  Version version;
  version.changed = fs::last_write_time(file_, none);
  if (none) return {};
  version.bytes = fs::file_size(file_, none);
  return none ? Version{} : version;
}

void Revocations::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::milliseconds(200)) return;
  looked_ = now;
  const Version current = version();
  if (current == seen_) return;
  seen_ = current;
  try {
    RevokedList list = read_revoked(file_, authority_pem_);
    if (list.number < list_.number) {
      throw user_error("{} is list {} of revoked certificates, and list {} was there before",
                       file_.string(), list.number, list_.number);
    }
    list_ = std::move(list);
    log::info("{} was read again: {} revoked now", file_.string(),
              counted(std::ssize(list_.serials), "certificate"));
    keep();
  } catch (const Error& error) {
    log::warning("{}; the list as it was before stays in force", error.what());
  }
}

bool Revocations::contains(const std::string& serial) {
  const std::lock_guard lock(mutex_);
  refresh();
  return list_.serials.contains(serial);
}

}  // namespace atl::wire
