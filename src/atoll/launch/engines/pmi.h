#pragma once

// The PMI of MPICH's mpiexec (Hydra) and its like, version 1 of the wire protocol: lines of
// "key=value" words on a socket that the launcher gives each process. atoll takes one text from it,
// where ranks meet, and no MPI.

#include <string>

namespace atl::launch {

/// Gives every process of a launcher the text of the first one. All of them must call it, once, one
/// of them with `is_first`; `text` of the others is not used. A text has up to 200 characters and
/// no space. The socket is that of PMI_FD. Throws Error(kPeer) when the launcher answers otherwise,
/// or not within `timeout_s` seconds.
std::string share_by_pmi(bool is_first, const std::string& text, double timeout_s);

/// The same on a given socket, which stays open.
std::string share_by_pmi(int socket, bool is_first, const std::string& text, double timeout_s);

}  // namespace atl::launch
