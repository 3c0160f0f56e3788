#include "atoll/serve/batch/block_pool.h"

#include <cstring>
#include <numeric>
#include <ranges>

#include "atoll/base/check.h"

namespace atl::serve {

BlockPool::BlockPool(std::int64_t num_blocks, std::int64_t block_size)
    : block_size_(block_size), blocks_(static_cast<std::size_t>(num_blocks)) {
  ATOLL_CHECK(num_blocks > 0 && block_size > 0, "{} blocks of {}", num_blocks, block_size);
  free_.resize(blocks_.size());
  // Taken from the end: low numbers first.
  std::iota(free_.rbegin(), free_.rend(), 0);
}

std::string BlockPool::name_of(const std::string& key, Node node,
                               std::span<const std::int32_t> tokens) {
  std::string name(sizeof node + tokens.size_bytes(), '\0');
  std::memcpy(name.data(), &node, sizeof node);
  std::memcpy(name.data() + sizeof node, tokens.data(), tokens.size_bytes());
  if (node == kRoot) name += key;  // behind a fixed length, so that no two names are confused
  return name;
}

std::optional<std::int32_t> BlockPool::take() {
  std::int32_t taken = 0;
  if (!free_.empty()) {
    taken = free_.back();
    free_.pop_back();
  } else if (!kept_.empty()) {
    taken = kept_.front();
    kept_.pop_front();
    Block& block = blocks_[static_cast<std::size_t>(taken)];
    nodes_.erase(block.name);
    block.name.clear();
  } else {
    return std::nullopt;
  }
  blocks_[static_cast<std::size_t>(taken)].users = 1;
  return taken;
}

void BlockPool::release(std::span<const std::int32_t> blocks) {
  // The end of a sequence first: a block is of no use without those before it.
  for (const std::int32_t number : std::views::reverse(blocks)) {
    Block& block = blocks_[static_cast<std::size_t>(number)];
    ATOLL_CHECK(block.users > 0, "block {} has no user", number);
    if (--block.users > 0) continue;
    if (block.name.empty())
      free_.push_back(number);
    else
      block.place = kept_.insert(kept_.end(), number);
  }
}

BlockPool::Prefix BlockPool::find(const std::string& key, std::span<const std::int32_t> tokens,
                                  std::int64_t max_blocks) {
  Prefix prefix;
  const auto size = static_cast<std::size_t>(block_size_);
  while (std::ssize(prefix.blocks) < max_blocks && tokens.size() >= size) {
    const auto known = nodes_.find(name_of(key, prefix.node, tokens.first(size)));
    if (known == nodes_.end()) break;
    Block& block = blocks_[static_cast<std::size_t>(known->second.block)];
    if (block.users++ == 0) kept_.erase(block.place);
    prefix.blocks.push_back(known->second.block);
    prefix.node = known->second.node;
    tokens = tokens.subspan(size);
  }
  return prefix;
}

BlockPool::Node BlockPool::add(const std::string& key, Node node,
                               std::span<const std::int32_t> tokens, std::int32_t block) {
  ATOLL_CHECK_EQ(std::ssize(tokens), block_size_);
  Block& added = blocks_[static_cast<std::size_t>(block)];
  ATOLL_CHECK(added.users > 0 && added.name.empty(), "block {}", block);
  std::string name = name_of(key, node, tokens);
  const auto [known, is_new] = nodes_.try_emplace(name, Known{next_node_, block});
  if (is_new) {
    ++next_node_;
    added.name = std::move(name);
  }
  return known->second.node;
}

}  // namespace atl::serve
