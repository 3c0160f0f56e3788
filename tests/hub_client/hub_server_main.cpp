// hub_server ROOT: serves ROOT/models/ORG/NAME and ROOT/datasets/ORG/NAME as the Hugging Face hub
// does, until standard input ends. Prints its address, then a line for each request: method,
// target, bytes of the body. Answers an empty line with "mark". For tests/oracle/hub.py.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "atoll/base/files/file.h"
#include "hub_server.h"

namespace fs = std::filesystem;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: hub_server ROOT\n", stderr);
    return 2;
  }
  const fs::path root = argv[1];
  atl::hub::HubServer server;
  server.set_page_size(3);
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const fs::path name = entry.path().lexically_relative(root);
    auto part = name.begin();
    std::string key = (part++)->string();
    for (int i = 0; i < 2; ++i) key += "/" + (part++)->string();
    const std::string path = entry.path().lexically_relative(root / key).string();
    const std::string ending = entry.path().extension().string();
    const bool is_large = ending == ".safetensors" || ending == ".gguf" || ending == ".jsonl";
    server.add(key, path, atl::read_file(entry.path()), is_large);
  }
  server.set_log([](const atl::hub::SeenRequest& request) {
    fmt::print("{} {} {}\n", request.method, request.target, request.body_bytes);
    std::fflush(stdout);
  });
  fmt::print("{}\n", server.endpoint());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
    if (byte == '\n') {
      fmt::print("mark\n");
      std::fflush(stdout);
    }
  }
  return 0;
}
