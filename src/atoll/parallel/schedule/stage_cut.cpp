#include "atoll/parallel/schedule/stage_cut.h"

#include <cstdint>
#include <set>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

// Gives parameters the numbers that they have in the whole model, where nobody has.
class Numberer final : public nn::ParamVisitor {
 public:
  /// As a store of the whole model numbers them: what is trained comes first.
  void number(nn::Model& model) {
    for (const bool frozen : {false, true}) {
      frozen_ = frozen;
      model.visit(*this);
    }
  }
  void param(nn::Param& param) override {
    if (param.frozen != frozen_ || param.number >= 0) return;
    if (seen_.insert(&param).second) param.number = next_++;
  }

 private:
  bool frozen_ = false;
  std::set<const nn::Param*> seen_;
  std::int64_t next_ = 0;
};

}  // namespace

void keep_stages(nn::Model& model, const Pipeline& pipeline, int rank) {
  pipeline.check();
  ATOLL_CHECK_EQ(pipeline.num_stages(), model.stages.size());
  Numberer().number(model);
  const nn::ParameterCount whole = nn::count_parameters(model);
  std::vector<std::unique_ptr<nn::Layer>> stages;
  std::vector<std::string> names;
  const std::vector<std::size_t> kept = pipeline.stages_of(rank);
  for (const std::size_t stage : kept) {
    stages.push_back(std::move(model.stages[stage]));
    names.push_back(model.stage_names[stage]);
  }
  const bool has_head = kept.back() + 1 == pipeline.num_stages();
  // The head points into the embedding.
  if (has_head && kept.front() != 0 && model.config.tie_embeddings) {
    model.elsewhere.push_back(std::move(model.stages.front()));
  }
  if (!has_head) model.head = nullptr;
  model.stages = std::move(stages);
  model.stage_names = std::move(names);
  const nn::ParameterCount here = nn::count_parameters(model);
  model.elsewhere_count = {whole.total - here.total, whole.position - here.position,
                           whole.frozen - here.frozen, whole.idle - here.idle,
                           whole.idle_frozen - here.idle_frozen};
}

}  // namespace atl::parallel
