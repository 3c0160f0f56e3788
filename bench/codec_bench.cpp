// How fast codecs are, in GB/s of the f32 that go in or come out, on one thread, beside memcpy of
// as many: best and median call. Best against best holds on a busy machine, as noise only slows.
//
//   codec_bench --benchmark_min_time=0.5

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "atoll/compress/codec.h"
#include "atoll/compress/testing.h"

namespace atl {
namespace {

constexpr std::size_t kElements = std::size_t{4} << 20;  // 16 MiB: more than the caches of a core

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Interleaved with memcpy, so that both meet the same neighbours.
void measure(benchmark::State& state, const std::function<void()>& call) {
  std::vector<float> from(kElements, 1.0F);
  std::vector<float> to(kElements, 2.0F);
  call();
  std::vector<double> seconds;
  double copy = 1;
  for (auto _ : state) {
    copy = std::min(copy, seconds_of([&] {
                      std::memcpy(to.data(), from.data(), kElements * sizeof(float));
                      benchmark::DoNotOptimize(to.data());
                    }));
    seconds.push_back(seconds_of(call));
  }
  std::sort(seconds.begin(), seconds.end());
  const double gigabytes = kElements * sizeof(float) / 1e9;
  state.counters["GB/s"] = gigabytes / seconds[seconds.size() / 2];
  state.counters["best"] = gigabytes / seconds.front();
  state.counters["memcpy"] = gigabytes / copy;
  state.counters["%"] = 100 * copy / seconds.front();
}

void encode(benchmark::State& state, const std::string& name, bool with_error) {
  const auto codec = compress::make_codec(name);
  const std::vector<float> x = test::codec_values(kElements, 1);
  std::vector<float> error(with_error ? kElements : 0, 0.0F);
  std::vector<std::byte> bytes;
  measure(state, [&] { codec->encode(x, error, bytes); });
  state.counters["times fewer"] =
      static_cast<double>(kElements * sizeof(float)) / static_cast<double>(bytes.size());
}

void decode(benchmark::State& state, const std::string& name, bool with_sum) {
  const auto codec = compress::make_codec(name);
  const std::vector<std::byte> bytes = test::encode(*codec, test::codec_values(kElements, 1));
  std::vector<float> out(kElements, 0.0F);
  measure(state, [&] {
    if (with_sum) {
      codec->decode_add(bytes, 0.25F, out);
    } else {
      codec->decode(bytes, out);
    }
  });
}

void add_codec(const std::string& name) {
  const auto add = [&](const char* what, std::function<void(benchmark::State&)> body) {
    benchmark::RegisterBenchmark((name + "/" + what).c_str(), std::move(body))->UseRealTime();
  };
  add("encode", [name](benchmark::State& state) { encode(state, name, false); });
  add("encode_error", [name](benchmark::State& state) { encode(state, name, true); });
  add("decode", [name](benchmark::State& state) { decode(state, name, false); });
  add("decode_add", [name](benchmark::State& state) { decode(state, name, true); });
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  for (const char* name : atl::compress::codec_names()) atl::add_codec(name);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
