#include "atoll/nn/models/numbers.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace atl::nn {

namespace {

// The parameters of a model by name, each once, in the order in which they are visited.
class Names final : public ParamVisitor {
 public:
  void param(Param& param) override {
    if (seen_.insert(&param).second) (param.frozen ? frozen : trained).push_back(param.name);
  }
  std::vector<std::string> trained, frozen;

 private:
  std::set<const Param*> seen_;
};

using Numbers = std::map<std::string, std::int64_t>;

class Numberer final : public ParamVisitor {
 public:
  explicit Numberer(const Numbers& numbers) : numbers_(numbers) {}
  void param(Param& param) override {
    param.number = numbers_.at(param.name);
    if (!param.cut) return;
    Cut cut = *param.cut;
    cut.whole.number = param.number;
    param.cut = std::make_shared<const Cut>(std::move(cut));
  }

 private:
  const Numbers& numbers_;
};

}  // namespace

void number_as_in(const Model& whole, Model& part) {
  Names names;
  whole.visit(names);
  // As a store of the whole model has them: what is trained comes first.
  Numbers numbers;
  for (const auto* list : {&names.trained, &names.frozen}) {
    for (const std::string& name : *list) numbers.emplace(name, std::ssize(numbers));
  }
  Numberer numberer(numbers);
  part.visit(numberer);
}

}  // namespace atl::nn
