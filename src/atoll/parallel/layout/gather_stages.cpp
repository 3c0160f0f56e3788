#include "atoll/parallel/layout/gather_stages.h"

#include <map>
#include <memory>
#include <sstream>

#include "atoll/base/check.h"
#include "atoll/parallel/layout/gather_text.h"

namespace atl::parallel {

namespace {

// The first rank that has each parameter.
std::map<std::string, int> holders(std::span<nn::Param* const> mine, comm::Group& pipeline) {
  std::string names;
  for (const nn::Param* param : mine) names += nn::whole_param(*param).name + "\n";
  std::map<std::string, int> first;
  const std::vector<std::string> all = gather_text(&pipeline, names);
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::istringstream lines(all[r]);
    for (std::string name; std::getline(lines, name);) first.emplace(name, static_cast<int>(r));
  }
  return first;
}

}  // namespace

void gather_stages(std::span<nn::Param* const> whole, std::span<nn::Param* const> mine,
                   comm::Group& pipeline, const StageValues& values) {
  const std::map<std::string, int> holder = holders(mine, pipeline);
  std::size_t next = 0;  // of mine
  const auto next_own = [&](const std::string& name) {
    while (nn::whole_param(*mine[next]).name != name) ++next;
    return values.mine(next++);
  };
  std::unique_ptr<std::byte[]> memory;
  std::size_t room = 0;
  for (const nn::Param* param : whole) {
    const auto found = holder.find(param->name);
    ATOLL_CHECK(found != holder.end(), "no rank of the pipeline has {}", param->name);
    const int from = found->second;
    if (from == pipeline.rank()) {
      const Tensor value = next_own(param->name);
      if (!value.defined()) continue;
      if (from == 0) {
        values.take(*param, value);
        continue;
      }
      const comm::Piece piece = {0, value};
      pipeline.exchange({&piece, 1}, {});
    } else if (pipeline.rank() == 0 && values.take) {
      if (room < param->spec.bytes()) {
        room = param->spec.bytes();
        memory.reset(new std::byte[room]);  // all of it is written
      }
      const comm::Piece piece = {from, Tensor(memory.get(), param->spec)};
      pipeline.exchange({}, {&piece, 1});
      values.take(*param, piece.tensor);
    }
  }
}

}  // namespace atl::parallel
