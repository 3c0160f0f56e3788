// The products of a training step at oneDNN's best speed for their shapes, beside ours: how long
// a step must take at least where the library does its products.
//
//   products_bench gpt2 1024      (model, tokens of a micro-batch)
//   products_bench llama 1024
//   products_bench demo 512
//   products_bench gpt2 1024 bf16 (all but weight gradients stored in bf16)
//   products_bench gpt2 1024 f32 1024 12 64   (and attention's: context, heads, their width)
//
// The library runs each product whole on two threads, with its operands as they lie and with b in
// the layout that it likes best, packed beforehand; the better counts. Ours includes packing.
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
#include <vector>

#include "atoll/ops/matmul.h"
#include "atoll/ops/testing.h"

namespace atl {
namespace {

constexpr int kThreads = 2;
constexpr int kRepeats = 9;

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

double best_seconds(const std::function<void()>& call) {
  call();
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

double best_seconds(dnnl::stream& stream, const dnnl::matmul& product, const dnnl::memory& a,
                    const dnnl::memory& b, const dnnl::memory& c) {
  return best_seconds([&] {
    product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
  });
}

// On a thread of its own: the library's thread count belongs to the calling thread.
template <typename T, typename TC>
double library_seconds(const Product& p, const T* a, const T* b, TC* c, bool packed) {
  double seconds = 0;
  std::thread([&] {
    omp_set_num_threads(kThreads);
    using Md = dnnl::memory::desc;
    using Dims = dnnl::memory::dims;
    using Type = dnnl::memory::data_type;
    constexpr Type kStored = std::is_same_v<T, Bf16> ? Type::bf16 : Type::f32;
    constexpr Type kResult = std::is_same_v<TC, Bf16> ? Type::bf16 : Type::f32;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const bool ta = p.transpose == ops::Transpose::kTN;
    const bool tb = p.transpose == ops::Transpose::kNT;
    const Md a_md({p.m, p.k}, kStored, ta ? Dims{1, p.m} : Dims{p.k, 1});
    const Md b_md({p.k, p.n}, kStored, tb ? Dims{1, p.k} : Dims{p.n, 1});
    const Md c_md({p.m, p.n}, kResult, Dims{p.n, 1});
    const Md any({p.k, p.n}, kStored, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(a_md, packed ? any : b_md, c_md), engine);
    const dnnl::memory a_memory(a_md, engine, const_cast<T*>(a));
    const dnnl::memory plain(b_md, engine, const_cast<T*>(b));
    dnnl::memory b_memory = plain;
    if (packed) {
      b_memory = dnnl::memory(description.weights_desc(), engine);
      dnnl::reorder(plain, b_memory).execute(stream, const_cast<dnnl::memory&>(plain), b_memory);
    }
    const dnnl::memory c_memory(c_md, engine, c);
    const dnnl::matmul primitive(description);
    seconds = best_seconds(stream, primitive, a_memory, b_memory, c_memory);
  }).join();
  return seconds;
}

// `batch` products beside each other, each with memory of its own.
double batched_seconds(const Product& p, std::int64_t batch) {
  double seconds = 0;
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
    seconds = best_seconds(stream, primitive, a_memory, b_memory, c_memory);
  }).join();
  return seconds;
}

// Scores, outputs and the four gradients of a step, as far as the mask lets them be seen.
void compare_attention(const Model& model, std::int64_t tokens, std::int64_t context,
                       std::int64_t heads, std::int64_t width) {
  const std::int64_t batch = heads * (tokens / context);
  const std::array<Product, 3> all = {
      Product{ops::Transpose::kNT, context, context, width},   // q k', d(out) v'
      Product{ops::Transpose::kNN, context, width, context},   // p v, ds k
      Product{ops::Transpose::kTN, context, width, context}};  // p' d(out), ds' q
  double total = 0;
  for (const Product& p : all) total += 2 * model.layers * batched_seconds(p, batch);
  const double seen = (static_cast<double>(context) + 1) / (2 * static_cast<double>(context));
  fmt::print("attention's products of a step: {:.1f} ms at the library's best\n",
             1e3 * seen * total);
}

// Seconds of one product: the library's, plain and packed, and ours.
struct Seconds {
  double plain = 0, packed = 0, own = 0;
};

/// T: what operands are stored in; TC: the result.
template <typename T, typename TC>
Seconds measure(Run& run, const Product& p) {
  const bool ta = p.transpose == ops::Transpose::kTN;
  const bool tb = p.transpose == ops::Transpose::kNT;
  auto a = test::random_tensor<T>(ta ? Shape{p.k, p.m} : Shape{p.m, p.k}, 1);
  auto b = test::random_tensor<T>(tb ? Shape{p.n, p.k} : Shape{p.k, p.n}, 2);
  test::OwnedTensor<TC> c({p.m, p.n});
  const auto library = [&](bool packed) {
    return library_seconds(p, a.values.data(), b.values.data(), c.values.data(), packed);
  };
  return {library(false), library(true),
          best_seconds([&] { ops::matmul(run, p.transpose, a, b, c); })};
}

int compare(const std::string& name, std::int64_t tokens, bool bf16) {
  test::TestRun run(kThreads, std::size_t{1} << 30);
  double library_total = 0, own_total = 0;
  fmt::print(
      "| product (M, N, K) | calls | oneDNN, plain | packed | ours (GFLOP/s) "
      "|\n|---|---|---|---|---|\n");
  constexpr std::array kNames = {"NN", "NT", "TN"};
  for (const Product& p : products_of(model_named(name), tokens)) {
    const bool gradient = p.transpose == ops::Transpose::kTN;
    const Seconds seconds = !bf16      ? measure<float, float>(run, p)
                            : gradient ? measure<Bf16, float>(run, p)
                                       : measure<Bf16, Bf16>(run, p);
    const double flops =
        2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / 1e9;
    fmt::print("| {} ({}, {}, {}) | {} | {:.0f} | {:.0f} | {:.0f} |\n",
               kNames[static_cast<std::size_t>(p.transpose)], p.m, p.n, p.k, p.calls,
               flops / seconds.plain, flops / seconds.packed, flops / seconds.own);
    library_total += p.calls * std::min(seconds.plain, seconds.packed);
    own_total += p.calls * seconds.own;
  }
  fmt::print("\nall products of a step: {:.1f} ms at the library's best, {:.1f} ms ours\n",
             1e3 * library_total, 1e3 * own_total);
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
