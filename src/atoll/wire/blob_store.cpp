#include "atoll/wire/blob_store.h"

#include "atoll/wire/blob_table.h"

namespace atl::wire {

BlobStore::BlobStore()
    : BlobStore([](const Caller& caller) -> std::optional<std::string> { return caller.name; }) {}
BlobStore::BlobStore(Authenticate authenticate)
    : table_(std::make_unique<BlobTable>(std::move(authenticate))) {}
BlobStore::~BlobStore() = default;

void BlobStore::publish(PublishedBlob offer) {
  table_->publish(std::move(offer));
}
void BlobStore::mark(const std::string& key, std::uint64_t chunk) {
  table_->mark(key, chunk);
}
void BlobStore::mark_all(const std::string& key) {
  table_->mark_all(key);
}
void BlobStore::allow_put(PutPermission request) {
  table_->allow_put(std::move(request));
}
bool BlobStore::is_put(const std::string& key) const {
  return table_->is_put(key);
}
void BlobStore::hand_over(const std::string& key, const std::string& peer) {
  table_->hand_over(key, peer);
}
void BlobStore::withdraw(const std::string& key_prefix) {
  table_->withdraw(key_prefix);
}

}  // namespace atl::wire
