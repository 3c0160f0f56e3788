#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "tidy/rules.h"

namespace atl::tidy {

namespace {

// Folders whose code knows whose memory a tensor has: kernels, transports and what they stand on.
const std::set<std::string, std::less<>> kFolders = {"base",   "device", "simd",
                                                     "tensor", "ops",    "comm"};

constexpr std::string_view kHeader = "#include \"atoll/tensor/host_access.h\"";
constexpr std::string_view kMemory[] = {".data<", "->data<", ".raw()", "->raw()"};
constexpr std::string_view kAccess[] = {"HostRead", "write_on_host", "update_on_host", "copy_now",
                                        "queue_copy"};

bool is_for_tests(const SourceFile& file) {
  const std::string_view name = std::string_view(file.path).substr(file.path.rfind('/') + 1);
  return file.is_test() || name.find("testing") != name.npos;
}

int line_of(const SourceFile& file, std::size_t at) {
  return 1 + static_cast<int>(std::count(
                 file.code.begin(), file.code.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void check_memory(const SourceFile& file, Findings& findings) {
  for (const std::string_view word : kMemory) {
    for (std::size_t at = file.code.find(word); at != file.code.npos;
         at = file.code.find(word, at + 1)) {
      findings.push_back({file.path, line_of(file, at), "tensor-memory",
                          "a tensor's memory may be a GPU's: use ops or tensor/host_access.h"});
    }
  }
}

// One finding a file: the file is what is named as a place.
void check_access(const SourceFile& file, Findings& findings) {
  int line = 0;
  const auto include = std::find(file.lines.begin(), file.lines.end(), kHeader);
  if (include != file.lines.end()) line = 1 + static_cast<int>(include - file.lines.begin());
  for (const std::string_view word : kAccess) {
    const std::size_t at = file.code.find(word);
    if (line == 0 && at != file.code.npos) line = line_of(file, at);
  }
  if (line == 0) return;
  findings.push_back({file.path, line, "host-access",
                      "the host touches tensors at named places only: leave it to ops, or name "
                      "this file and the reason in tools/tidy/exceptions.txt"});
}

}  // namespace

void check_host_access(const Tree& tree, Findings& findings) {
  for (const SourceFile& file : tree.files) {
    const std::string folder = module_of(file.path);
    if (folder.empty() || kFolders.contains(folder) || !file.is_cpp() || is_for_tests(file)) {
      continue;
    }
    check_memory(file, findings);
    check_access(file, findings);
  }
}

}  // namespace atl::tidy
