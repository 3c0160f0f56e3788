// The products of a training step at oneDNN's best speed for their shapes, beside ours: how long
// a step must take at least where the library does its products.
//
//   products_bench gpt2 1024      (model, tokens of a micro-batch)
//   products_bench llama 1024
//   products_bench demo 512
//   products_bench gpt2 1024 bf16 (all but weight gradients stored in bf16; device.bf16 = auto)
//   products_bench gpt2 1024 f32 1024 12 64   (and attention's: context, heads, their width)
//
// With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 operands lie in huge pages, as a run's do; without,
// tiles of AMX take twice as long.
//
// The library runs each product whole on two threads, with its operands as they lie and with b in
// the layout that it likes best, packed beforehand; the better counts. Ours includes packing.
// All take turns. Rows are of median calls, as a step is made of; totals are of the library's
// fastest calls too, which on a machine shared with others is a speed that nothing keeps up.
// Attention's products are the library's batched ones, heads one after the other in memory; it has
// none that leave out what a causal mask hides, so that part of their time counts.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/testing.h"

namespace atl {
namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 3, kRepeats = 3;

struct Product {
  ops::Transpose transpose = ops::Transpose::kNN;
  std::int64_t m = 0, n = 0, k = 0;
  int calls = 1;
};

struct Model {
  std::int64_t width = 0, qkv = 0, up = 0, down = 0, vocab = 0;
  int layers = 0;
};

Model model_named(const std::string& name) {
  if (name == "gpt2") return {768, 2304, 3072, 3072, 50257, 12};
  if (name == "llama") return {384, 1152, 2048, 1024, 32000, 10};
  if (name == "demo") return {256, 512, 1408, 704, 2048, 6};
  throw user_error("{} is none of gpt2, llama, demo", name);
}

// Forward, input gradient and weight gradient of each matrix.
std::vector<Product> products_of(const Model& model, std::int64_t tokens) {
  std::vector<Product> all;
  const auto add = [&](std::int64_t in, std::int64_t out, int calls) {
    all.push_back({ops::Transpose::kNT, tokens, out, in, calls});
    all.push_back({ops::Transpose::kNN, tokens, in, out, calls});
    all.push_back({ops::Transpose::kTN, out, in, tokens, calls});
  };
  add(model.width, model.qkv, model.layers);
  add(model.width, model.width, model.layers);
  add(model.width, model.up, model.layers);
  add(model.down, model.width, model.layers);
  add(model.width, model.vocab, 1);
  return all;
}

// Seconds of each call, of which the first of a round does not count.
class Times {
 public:
  void add_round(const std::function<void()>& call) {
    call();
    for (int i = 0; i < kRepeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      call();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds_.push_back(took.count());
    }
  }
  double median() const {
    std::vector<double> sorted = seconds_;
    std::ranges::sort(sorted);
    return sorted.at(sorted.size() / 2);
  }
  double best() const { return std::ranges::min(seconds_); }

 private:
  std::vector<double> seconds_;
};

// A product by the library, as it lies or with b packed beforehand. Operands must outlive it.
class LibraryProduct {
 public:
  using Md = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;

  template <typename T, typename TC>
  LibraryProduct(const Product& p, const T* a, const T* b, TC* c, bool packed)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Type = dnnl::memory::data_type;
    constexpr Type kStored = std::is_same_v<T, Bf16> ? Type::bf16 : Type::f32;
    constexpr Type kResult = std::is_same_v<TC, Bf16> ? Type::bf16 : Type::f32;
    const bool ta = p.transpose == ops::Transpose::kTN;
    const bool tb = p.transpose == ops::Transpose::kNT;
    const Md a_md({p.m, p.k}, kStored, ta ? Dims{1, p.m} : Dims{p.k, 1});
    const Md b_md({p.k, p.n}, kStored, tb ? Dims{1, p.k} : Dims{p.n, 1});
    const Md c_md({p.m, p.n}, kResult, Dims{p.n, 1});
    const Md any({p.k, p.n}, kStored, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(a_md, packed ? any : b_md, c_md), engine_);
    dnnl::memory plain(b_md, engine_, const_cast<T*>(b));
    dnnl::memory weights = plain;
    if (packed) {
      weights = dnnl::memory(description.weights_desc(), engine_);
      dnnl::reorder(plain, weights).execute(stream_, plain, weights);
      stream_.wait();
    }
    primitive_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a_md, engine_, const_cast<T*>(a))},
                  {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_DST, dnnl::memory(c_md, engine_, c)}};
  }

  // On a thread of its own: the library's thread count belongs to the calling thread.
  void add_round(Times& times) {
    std::thread([&] {
      omp_set_num_threads(kThreads);
      times.add_round([&] {
        primitive_.execute(stream_, arguments_);
        stream_.wait();
      });
    }).join();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// `batch` products beside each other, each with memory of its own.
Times batched_times(const Product& p, std::int64_t batch) {
  Times times;
  std::thread([&] {
    omp_set_num_threads(kThreads);
    using Md = dnnl::memory::desc;
    using Dims = dnnl::memory::dims;
    constexpr auto kF32 = dnnl::memory::data_type::f32;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const bool ta = p.transpose == ops::Transpose::kTN;
    const bool tb = p.transpose == ops::Transpose::kNT;
    auto a = test::random_tensor<float>({batch * p.m, p.k}, 1);
    auto b = test::random_tensor<float>({batch * p.k, p.n}, 2);
    test::OwnedTensor<float> c({batch * p.m, p.n});
    const Md a_md({batch, p.m, p.k}, kF32, ta ? Dims{p.m * p.k, 1, p.m} : Dims{p.m * p.k, p.k, 1});
    const Md b_md({batch, p.k, p.n}, kF32, tb ? Dims{p.k * p.n, 1, p.k} : Dims{p.k * p.n, p.n, 1});
    const Md c_md({batch, p.m, p.n}, kF32, Dims{p.m * p.n, p.n, 1});
    const dnnl::matmul primitive(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_md, b_md, c_md), engine));
    const dnnl::memory a_memory(a_md, engine, a.values.data());
    const dnnl::memory b_memory(b_md, engine, b.values.data());
    const dnnl::memory c_memory(c_md, engine, c.values.data());
    for (int round = 0; round < kRounds; ++round) {
      times.add_round([&] {
        primitive.execute(
            stream,
            {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, c_memory}});
        stream.wait();
      });
    }
  }).join();
  return times;
}

// Scores, outputs and the four gradients of a step, as far as the mask lets them be seen.
void compare_attention(const Model& model, std::int64_t tokens, std::int64_t context,
                       std::int64_t heads, std::int64_t width) {
  const std::int64_t batch = heads * (tokens / context);
  const std::array<Product, 3> all = {
      Product{ops::Transpose::kNT, context, context, width},   // q k', d(out) v'
      Product{ops::Transpose::kNN, context, width, context},   // p v, ds k
      Product{ops::Transpose::kTN, context, width, context}};  // p' d(out), ds' q
  double median = 0, best = 0;
  const double seen = (static_cast<double>(context) + 1) / (2 * static_cast<double>(context));
  for (const Product& p : all) {
    const Times times = batched_times(p, batch);
    median += 2 * model.layers * seen * times.median();
    best += 2 * model.layers * seen * times.best();
  }
  fmt::print("attention's products of a step: {:.1f} ms by the library ({:.1f} at its luckiest)\n",
             1e3 * median, 1e3 * best);
}

// Of one product: the library's, plain and packed, and ours.
struct Measured {
  Times plain, packed, own;
};

/// T: what operands are stored in; TC: the result. In turn, so that all meet the same machine.
template <typename T, typename TC>
Measured measure(Run& run, const Product& p) {
  const bool ta = p.transpose == ops::Transpose::kTN;
  const bool tb = p.transpose == ops::Transpose::kNT;
  auto a = test::random_tensor<T>(ta ? Shape{p.k, p.m} : Shape{p.m, p.k}, 1);
  auto b = test::random_tensor<T>(tb ? Shape{p.n, p.k} : Shape{p.k, p.n}, 2);
  test::OwnedTensor<TC> c({p.m, p.n});
  const auto library = [&](bool packed) {
    return LibraryProduct(p, a.values.data(), b.values.data(), c.values.data(), packed);
  };
  LibraryProduct plain = library(false), packed = library(true);
  Measured measured;
  for (int round = 0; round < kRounds; ++round) {
    plain.add_round(measured.plain);
    packed.add_round(measured.packed);
    measured.own.add_round([&] { ops::matmul(run, p.transpose, a, b, c); });
  }
  return measured;
}

int compare(const std::string& name, std::int64_t tokens, bool bf16) {
  test::TestRun run(kThreads, std::size_t{1} << 30);
  double library_total = 0, luckiest = 0, own_total = 0, flops_total = 0;
  fmt::print(
      "| product (M, N, K) | calls | oneDNN, plain | packed | ours (GFLOP/s) "
      "|\n|---|---|---|---|---|\n");
  constexpr std::array kNames = {"NN", "NT", "TN"};
  for (const Product& p : products_of(model_named(name), tokens)) {
    const bool gradient = p.transpose == ops::Transpose::kTN;
    const Measured times = !bf16      ? measure<float, float>(run, p)
                           : gradient ? measure<Bf16, float>(run, p)
                                      : measure<Bf16, Bf16>(run, p);
    const double flops =
        2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / 1e9;
    fmt::print("| {} ({}, {}, {}) | {} | {:.0f} | {:.0f} | {:.0f} |\n",
               kNames[static_cast<std::size_t>(p.transpose)], p.m, p.n, p.k, p.calls,
               flops / times.plain.median(), flops / times.packed.median(),
               flops / times.own.median());
    library_total += p.calls * std::min(times.plain.median(), times.packed.median());
    luckiest += p.calls * std::min(times.plain.best(), times.packed.best());
    own_total += p.calls * times.own.median();
    flops_total += p.calls * flops;
  }
  fmt::print(
      "\nall products of a step: {:.1f} ms by the library ({:.1f} at its luckiest), {:.1f} ms "
      "ours\n",
      1e3 * library_total, 1e3 * luckiest, 1e3 * own_total);
  const double loop =
      (bf16 ? ops::measure_amx_peak_flops(run) : ops::measure_peak_flops(run)) / 1e9;
  if (loop > 0) {
    fmt::print("{} on registers alone: {:.0f} GFLOP/s; ours run at {:.1f}% of it\n",
               bf16 ? "tiles of AMX" : "multiply-adds", loop, 100 * flops_total / own_total / loop);
  }
  return 0;
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  try {
    const bool bf16 = argc > 3 && std::string(argv[3]) == "bf16";
    const std::string name = argc > 1 ? argv[1] : "gpt2";
    const std::int64_t tokens = argc > 2 ? std::stoll(argv[2]) : 1024;
    if (argc > 6) {
      atl::compare_attention(atl::model_named(name), tokens, std::stoll(argv[4]),
                             std::stoll(argv[5]), std::stoll(argv[6]));
    }
    return atl::compare(name, tokens, bf16);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
