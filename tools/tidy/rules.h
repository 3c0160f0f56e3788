#pragma once

// The house rules. Each reads the tree and appends what breaks it; none changes a file.

#include <string>
#include <vector>

#include "tidy/source_tree.h"

namespace atl::tidy {

/// `floor`: a file of src/atoll includes its own folder and lower floors only, and inside a folder
/// lower floors of that, by the table in tools/tidy/floors.txt; a folder that the table lacks is a
/// finding.
void check_floors(const Tree& tree, Findings& findings);

/// `cycle`: no folder of src/atoll includes itself through others, and no unit does: x.h and x.cpp
/// of a folder are one unit.
void check_cycles(const Tree& tree, Findings& findings);

/// `dependency`: the DEPS of each atoll_module() of src/atoll/CMakeLists.txt are the folders that
/// its files include.
void check_dependencies(const Tree& tree, Findings& findings);

/// `tour`: docs/tour.md shows the lines of tools/tidy/floors.txt that are about whole folders.
void check_tour(const Tree& tree, Findings& findings);

/// `readme`: each folder of src/atoll has a README.md.
void check_readmes(const Tree& tree, Findings& findings);

/// `folder`: no folder of src/atoll has more than 60 files of its own.
void check_folder_sizes(const Tree& tree, Findings& findings);

/// `dead`: a header that no other file includes, a .cpp that no CMakeLists.txt picks up.
void check_dead_files(const Tree& tree, Findings& findings);

/// `docstring`: types and free functions in the headers of src/atoll/<folder>/ and of its rooms
/// carry a `///`, or follow without an empty line one that does. Headers of one backend (their
/// names or folders begin with cpu, cuda, fake_cuda or ref), test code and internal namespaces are
/// exempt, and so are operators, forward declarations and definitions of members.
void check_docstrings(const Tree& tree, Findings& findings);

/// `conditional` (#if outside device/, base/check.h and Highway's macros), `pragma-once`, `tab`,
/// `columns` (over 100), `machine-path` (a path of somebody's machine, in any file).
void check_text(const Tree& tree, Findings& findings);

/// `tensor-memory`: above ops and beside comm, code takes no address of a tensor's elements; tests
/// may. `host-access`: a file that uses tensor/host_access.h stands in tools/tidy/exceptions.txt.
void check_host_access(const Tree& tree, Findings& findings);

/// Everything above, less what tools/tidy/exceptions.txt allows, sorted by place. Findings of the
/// rule `exceptions` name lines there that lack a reason or excuse nothing.
Findings check_all(const Tree& tree);

/// The largest files, the longest functions and the headers that only their own source and test
/// include: for information, as text.
std::string report(const Tree& tree);

}  // namespace atl::tidy
