#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr const char* kFloorsFile = "tools/tidy/floors.txt";

// A floor of the house, and the floor inside its folder: "7.1".
struct Floor {
  int house = 0;
  int inside = 0;

  std::string text() const {
    return inside == 0 ? std::to_string(house) : fmt::format("{}.{}", house, inside);
  }
};

// The table: a path below src/atoll, or how such paths begin, and its floor.
using Floors = std::map<std::string, Floor>;

Floors read_floors(const Tree& tree, Findings& findings) {
  Floors floors;
  const SourceFile* file = tree.find(kFloorsFile);
  if (file == nullptr) {
    findings.push_back({kFloorsFile, 0, "floor", "the table of floors is missing"});
    return floors;
  }
  for (std::size_t i = 0; i < file->lines.size(); ++i) {
    const std::string& line = file->lines[i];
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string path;
    Floor floor;
    if (words >> path >> floor.house && (words.peek() != '.' || words.ignore() >> floor.inside)) {
      floors[path] = floor;
    } else {
      findings.push_back({kFloorsFile, static_cast<int>(i) + 1, "floor",
                          fmt::format("'{}' is not `path number` or `path number.number`", line)});
    }
  }
  return floors;
}

// The entry of the table that a file falls under: the longest that its path begins with.
struct Place {
  std::string entry;
  Floor floor;
};

std::optional<Place> place_of(const Floors& floors, const std::string& path) {
  if (module_of(path).empty()) return std::nullopt;
  const std::string below = path.substr(std::string_view("src/atoll/").size());
  std::optional<Place> place;
  for (const auto& [entry, floor] : floors) {
    const bool is_folder = entry.find('/') == entry.npos;
    if (!below.starts_with(is_folder ? entry + "/" : entry)) continue;
    if (!place || entry.size() > place->entry.size()) place = Place{entry, floor};
  }
  return place;
}

// A file that only tests are made of.
bool is_for_tests(const std::string& path) {
  return path.find("_test.") != path.npos || path.find("testing") != path.npos;
}

// A header and its source are one: what the source includes, the header stands on.
std::string unit_of(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

// Whether `from` may include `to`, two places of one folder or of two.
bool may_include(const Place& from, const Place& to) {
  if (from.entry == to.entry) return true;
  if (from.floor.house != to.floor.house) return to.floor.house < from.floor.house;
  const auto folder = [](const Place& place) {
    return place.entry.substr(0, place.entry.find('/'));
  };
  return folder(from) == folder(to) && to.floor.inside < from.floor.inside;
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
  const Floors floors = read_floors(tree, findings);
  std::set<std::string> unknown;
  for (const SourceFile& file : tree.files) {
    const std::string folder = module_of(file.path);
    if (folder.empty() || floors.contains(folder) || !unknown.insert(folder).second) continue;
    findings.push_back(
        {file.path, 0, "floor", fmt::format("folder {} has no floor in {}", folder, kFloorsFile)});
  }
  for (const Include& include : find_includes(tree)) {
    const std::optional<Place> from = place_of(floors, include.from);
    const std::optional<Place> to = place_of(floors, include.to);
    if (!from || !to || may_include(*from, *to)) continue;
    const bool is_inside = module_of(include.from) == module_of(include.to);
    if (is_inside && is_for_tests(include.from)) continue;
    findings.push_back({include.from, include.line, "floor",
                        fmt::format("{} (floor {}) must not include {} (floor {})", from->entry,
                                    from->floor.text(), to->entry, to->floor.text())});
  }
}

void check_cycles(const Tree& tree, Findings& findings) {
  CycleSearch::Graph units;
  CycleSearch::Graph folders;
  for (const Include& include : find_includes(tree)) {
    const std::string unit = unit_of(include.from), included = unit_of(include.to);
    if (unit != included) units[unit].emplace(included, include);
    const std::string from = module_of(include.from);
    const std::string to = module_of(include.to);
    if (!from.empty() && !to.empty() && from != to) folders[from].emplace(to, include);
  }
  CycleSearch(folders, "folders", findings).run();
  CycleSearch(units, "units", findings).run();
}

}  // namespace atl::tidy
