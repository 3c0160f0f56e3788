#include <fmt/format.h>

#include <map>
#include <set>
#include <sstream>

#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr const char* kFloorsFile = "tools/tidy/floors.txt";

std::map<std::string, int> read_floors(const Tree& tree, Findings& findings) {
  std::map<std::string, int> floors;
  const SourceFile* file = tree.find(kFloorsFile);
  if (file == nullptr) {
    findings.push_back({kFloorsFile, 0, "floor", "the table of floors is missing"});
    return floors;
  }
  for (std::size_t i = 0; i < file->lines.size(); ++i) {
    const std::string& line = file->lines[i];
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string folder;
    int floor = -1;
    if (words >> folder >> floor) {
      floors[folder] = floor;
    } else {
      findings.push_back({kFloorsFile, static_cast<int>(i) + 1, "floor",
                          fmt::format("'{}' is not `folder number`", line)});
    }
  }
  return floors;
}

// Depth-first search over a graph of names; reports each cycle once, as the path that closes it.
class CycleSearch {
 public:
  using Graph = std::map<std::string, std::map<std::string, Include>>;

  CycleSearch(const Graph& graph, std::string what, Findings& findings)
      : graph_(graph), what_(std::move(what)), findings_(findings) {}

  void run() {
    for (const auto& [node, edges] : graph_) visit(node);
  }

 private:
  void visit(const std::string& node) {
    if (done_.contains(node)) return;
    path_.push_back(node);
    on_path_.insert(node);
    const auto edges = graph_.find(node);
    if (edges != graph_.end()) {
      for (const auto& [next, include] : edges->second) {
        if (on_path_.contains(next)) {
          found(next, include);
        } else {
          visit(next);
        }
      }
    }
    on_path_.erase(node);
    path_.pop_back();
    done_.insert(node);
  }

  void found(const std::string& first, const Include& closing) {
    std::string way;
    bool inside = false;
    for (const std::string& node : path_) {
      inside = inside || node == first;
      if (inside) way += node + " -> ";
    }
    findings_.push_back({closing.from, closing.line, "cycle",
                         fmt::format("{} include each other: {}{}", what_, way, first)});
  }

  const Graph& graph_;
  std::string what_;
  Findings& findings_;
  std::vector<std::string> path_;
  std::set<std::string> on_path_;
  std::set<std::string> done_;
};

}  // namespace

void check_floors(const Tree& tree, Findings& findings) {
  const std::map<std::string, int> floors = read_floors(tree, findings);
  std::set<std::string> unknown;
  for (const SourceFile& file : tree.files) {
    const std::string folder = module_of(file.path);
    if (folder.empty() || floors.contains(folder) || !unknown.insert(folder).second) continue;
    findings.push_back(
        {file.path, 0, "floor", fmt::format("folder {} has no floor in {}", folder, kFloorsFile)});
  }
  for (const Include& include : find_includes(tree)) {
    const auto from = floors.find(module_of(include.from));
    const auto to = floors.find(module_of(include.to));
    if (from == floors.end() || to == floors.end() || from->first == to->first) continue;
    if (to->second < from->second) continue;
    findings.push_back({include.from, include.line, "floor",
                        fmt::format("{} (floor {}) must not include {} (floor {})", from->first,
                                    from->second, to->first, to->second)});
  }
}

void check_cycles(const Tree& tree, Findings& findings) {
  CycleSearch::Graph files;
  CycleSearch::Graph folders;
  for (const Include& include : find_includes(tree)) {
    files[include.from].emplace(include.to, include);
    const std::string from = module_of(include.from);
    const std::string to = module_of(include.to);
    if (!from.empty() && !to.empty() && from != to) folders[from].emplace(to, include);
  }
  CycleSearch(folders, "folders", findings).run();
  CycleSearch(files, "files", findings).run();
}

}  // namespace atl::tidy
