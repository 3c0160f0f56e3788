#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/plan/op_cases.h"

namespace atl::plan {

/// What lies between the ranks of one group.
struct Link {
  double latency_s = 0;  ///< of one collective, or one message
  /// Bytes a second that each rank sends while all of them do: in a gather, in a sum, in a message.
  double gather_bytes_per_s = 1e9;
  double reduce_bytes_per_s = 1e9;
  double send_bytes_per_s = 1e9;

  bool operator==(const Link&) const = default;
};

/// What a machine does: measured here (measure.h), or from a file for a machine that is not here.
/// Rates are those of one rank while all ranks of its host are at work.
struct Figures {
  std::string machine = "unknown";
  int ranks_per_host = 1;
  int threads = 0;         ///< of a rank; 0: not known
  double memory_gib = 0;   ///< of a rank
  double flops_per_s = 0;  ///< of matrix products, where `rates` has no nearer one
  double bytes_per_s = 0;  ///< of work that memory bounds, each byte read or written once
  double call_s = 0;       ///< that a call takes at least: of a GPU, the start of a kernel
  /// Time of a layer's passes divided by that of their ops alone.
  double layer_factor = 1;
  /// The part of a collective's time that compute beside it hides; 0: it takes the compute's time.
  double overlap = 1;
  /// How much faster a rank computes when 1, 2, ... ranks of its host do; the last is 1.
  std::vector<double> speedups = {1};
  /// FLOP/s or bytes/s by op and sizes: see rate_key().
  std::map<std::string, double> rates;
  /// Between ranks of one host, by the size of the group.
  std::map<int, Link> host;
  /// Between hosts, one way, for all ranks of a host together.
  Link network = {.latency_s = 50e-6,
                  .gather_bytes_per_s = 1.25e9,
                  .reduce_bytes_per_s = 1.25e9,
                  .send_bytes_per_s = 1.25e9};

  bool operator==(const Figures&) const = default;
};

/// "mlp_up/forward 512x1536x256".
std::string rate_key(const OpCase& op);

/// The seconds of one call: by the rate of its op at the nearest sizes, or, where the op has none,
/// by flops_per_s or bytes_per_s.
double seconds_of(const Figures& figures, const OpCase& op);

/// The link of a group of so many ranks of one host: that of the nearest size.
const Link& host_link(const Figures& figures, int group_size);

/// A TOML text that parse_figures() reads back as the same figures.
std::string to_toml(const Figures& figures);
/// Reads figures; `origin` stands in messages. Throws Error(kUser) naming line and key for what is
/// not known, not a number, out of range or missing.
Figures parse_figures(std::string_view text, const std::string& origin);
Figures read_figures(const std::filesystem::path& path);

}  // namespace atl::plan
