#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace atl::launch {

/// A machine and how many ranks it takes.
struct Host {
  std::string name;
  int slots = 1;
};

/// Reads a hostfile: lines of `NAME` or `NAME slots=N`, comments from '#'. Throws Error(kUser)
/// naming file and line for anything else, a host that is named twice, or a file without hosts.
std::vector<Host> read_hostfile(const std::filesystem::path& path);

/// The same of a text that is said to stand in `path`.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& path);

/// Whether it may be the name of a host, or of an agent: letters, digits, '.', '-', '_', '@' and
/// ':', of which the first is a letter or digit.
bool is_host_name(const std::string& name);

/// Whether `name` is this machine: "localhost", a loopback address, or what it calls itself.
bool is_this_host(const std::string& name);

/// What this machine calls itself.
std::string this_host();

/// Waits until this machine can look the host up: engines start a process before others know the
/// name of its machine. Throws Error(kPeer) after `timeout_s` seconds.
void wait_for_host(const std::string& host, double timeout_s);

}  // namespace atl::launch
