#pragma once

#include <type_traits>

namespace atl::ops::cuda {

/// The kernels of a .cuh file as types: those that nvcc compiles for a GPU.
template <typename... Kernels>
struct KernelList {
  template <typename Kernel>
  static constexpr bool kHas = (std::is_same_v<Kernel, Kernels> || ...);

  /// Calls visit(std::type_identity<Kernel>) for each.
  template <typename Visit>
  static void for_each(Visit&& visit) {
    (visit(std::type_identity<Kernels>{}), ...);
  }
};

template <typename... Lists>
struct Join;
template <typename... Kernels>
struct Join<KernelList<Kernels...>> {
  using Type = KernelList<Kernels...>;
};
template <typename... First, typename... Second, typename... Rest>
struct Join<KernelList<First...>, KernelList<Second...>, Rest...> {
  using Type = typename Join<KernelList<First..., Second...>, Rest...>::Type;
};

/// The kernels of several lists.
template <typename... Lists>
using Joined = typename Join<Lists...>::Type;

}  // namespace atl::ops::cuda
