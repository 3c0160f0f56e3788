#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace atl::serve {

/// Who has which block of a cache of keys and values. Blocks that are whole can be found again by
/// the tokens that they and all blocks before them hold, so that prompts that begin alike are
/// computed once. A block that nobody has any more is kept until its memory is needed; the one that
/// has been without a user for longest goes first.
class BlockPool {
 public:
  /// Blocks of `block_size` positions, numbered from 0.
  BlockPool(std::int64_t num_blocks, std::int64_t block_size);

  std::int64_t num_blocks() const { return std::ssize(blocks_); }
  std::int64_t block_size() const { return block_size_; }
  /// Blocks that take() can give.
  std::int64_t num_available() const { return num_free() + num_kept(); }
  /// Of these, those that hold nothing, and those that can be found.
  std::int64_t num_free() const { return std::ssize(free_); }
  std::int64_t num_kept() const { return std::ssize(kept_); }

  /// A block for its caller alone; nothing when all are in use.
  std::optional<std::int32_t> take();
  /// Gives back what take() or find() gave, in the order of the sequence.
  void release(std::span<const std::int32_t> blocks);

  /// What a sequence begins with, as a node of the tree of all that can be found.
  using Node = std::uint64_t;
  static constexpr Node kRoot = 0;

  /// Blocks that hold the beginning of a sequence.
  struct Prefix {
    std::vector<std::int32_t> blocks;  ///< whole ones; the caller has them until release()
    Node node = kRoot;
  };
  /// The longest beginning of `tokens` that can be found, of `max_blocks` at most. Only what was
  /// added under the same `key` is.
  Prefix find(const std::string& key, std::span<const std::int32_t> tokens,
              std::int64_t max_blocks);
  /// `block`, which its caller has, holds these block_size tokens behind `node`, and can be found
  /// from now on. If another block already holds the same, find() keeps returning that one. Returns
  /// the node of the longer sequence. `key` matters at the root alone.
  Node add(const std::string& key, Node node, std::span<const std::int32_t> tokens,
           std::int32_t block);

 private:
  struct Block {
    std::int64_t users = 0;
    std::string name;  // under which nodes_ has it; empty: it cannot be found
    std::list<std::int32_t>::iterator place;  // in kept_, where it has no users but a name
  };
  struct Known {
    Node node;
    std::int32_t block;
  };

  // Tokens behind a node, all of it: two of the same name are the same.
  static std::string name_of(const std::string& key, Node node,
                             std::span<const std::int32_t> tokens);

  std::int64_t block_size_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;
  std::list<std::int32_t> kept_;  // the longest unused first
  std::unordered_map<std::string, Known> nodes_;
  Node next_node_ = kRoot + 1;
};

}  // namespace atl::serve
