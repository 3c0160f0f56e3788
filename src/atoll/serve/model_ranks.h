#pragma once

#include "atoll/comm/mesh.h"

namespace atl::serve {

/// How many ranks share one model, along each axis.
struct ModelLayout {
  int tensor = 1;    ///< share each product
  int pipeline = 1;  ///< share the model's stages
  int experts = 1;   ///< share the experts of each block

  int size() const { return tensor * pipeline * experts; }
};

/// The ranks that generate with one model together, each with a part of it. The first of them
/// leads: it has the text, and chooses tokens.
class ModelRanks {
 public:
  /// Every rank of the world must make it; the layout is of as many ranks. `world` must outlive
  /// this.
  ModelRanks(comm::World& world, const ModelLayout& layout);

  const ModelLayout& layout() const { return layout_; }
  comm::Group& all() { return world_.all(); }
  bool leads() const { return world_.rank() == 0; }
  int tensor_rank() const { return mesh_.coordinate("tp"); }
  int pipeline_rank() const { return mesh_.coordinate("pp"); }
  int expert_rank() const { return mesh_.coordinate("ep"); }
  comm::Group& tensor() { return mesh_.group("tp"); }
  comm::Group& pipeline() { return mesh_.group("pp"); }
  comm::Group& experts() { return mesh_.group("ep"); }
  /// Whether the leader's pipeline goes through this rank.
  bool is_in_first_pipeline() const { return tensor_rank() == 0 && expert_rank() == 0; }
  bool has_head() const { return pipeline_rank() + 1 == layout_.pipeline; }

 private:
  comm::World& world_;
  ModelLayout layout_;
  comm::Mesh mesh_;
};

}  // namespace atl::serve
