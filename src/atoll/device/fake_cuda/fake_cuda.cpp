#include "atoll/device/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <cstdlib>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/processes/memory_error.h"
#include "atoll/base/quantity.h"
#include "atoll/base/rng.h"
#include "atoll/device/device_lost.h"
#include "atoll/device/fake_cuda/protected_memory.h"

namespace atl::fake_cuda {

namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

// While one lives, the device's memory is open: its work runs.
class FakeCudaDevice::Unlocked {
 public:
  explicit Unlocked(FakeCudaDevice& device) : device_(device) { set(false); }
  ~Unlocked() { set(true); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  void set(bool is_protected) {
    for (const auto& [data, bytes] : device_.memory_) set_protected(data, bytes, is_protected);
  }
  FakeCudaDevice& device_;
};

FakeCudaDevice::FakeCudaDevice(const Options& options)
    : options_(options), threads_(options.threads) {}

FakeCudaDevice::~FakeCudaDevice() {
  for (const auto& [data, bytes] : memory_) unmap_protected(data, bytes);
}

std::string FakeCudaDevice::name() const {
  return "fake GPU";
}

void FakeCudaDevice::check_there() const {
  if (options_.lost_after == 0 || num_kernels_ <= options_.lost_after) return;
  throw DeviceLostError(
      fmt::format("the GPU is lost: {} does not answer since kernel {}", name(), num_kernels_));
}

void FakeCudaDevice::check_no_capture(const char* what) const {
  for (const FakeStream* stream : streams_) {
    ATOLL_CHECK(stream->captured_ == nullptr, "{} while a graph is captured", what);
  }
}

void FakeCudaDevice::count_kernel() {
  ++num_kernels_;
  check_there();
}

void* FakeCudaDevice::allocate(std::size_t bytes) {
  check_there();
  check_no_capture("memory of the device is taken");
  ++num_allocations_;
  const std::size_t size = whole_pages(bytes);
  if (used_ + size > options_.total_memory) {
    throw MemoryError(fmt::format("{} refused {} of memory ({} installed, {} in use)", name(),
                                  format_bytes(bytes), format_bytes(options_.total_memory),
                                  format_bytes(used_)));
  }
  std::byte* data = map_protected(size);
  memory_.emplace(data, size);
  used_ += size;
  return data;
}

void FakeCudaDevice::deallocate(void* data, std::size_t) noexcept {
  const auto found = memory_.find(static_cast<std::byte*>(data));
  if (found == memory_.end()) return;
  for (FakeStream* stream : streams_) stream->abandon_capture();  // an error is on its way
  try {  // as cudaFree: nothing that is queued may still use it
    run_until([this] {
      return std::all_of(streams_.begin(), streams_.end(),
                         [](const FakeStream* stream) { return stream->items_.empty(); });
    });
  } catch (...) {
    for (FakeStream* stream : streams_) stream->items_.clear();  // nobody is left to be told
  }
  unmap_protected(found->first, found->second);
  used_ -= found->second;
  memory_.erase(found);
}

void* FakeCudaDevice::allocate_host(std::size_t bytes) {
  check_no_capture("page-locked memory is taken");
  ++num_allocations_;
  void* data = std::calloc(whole_pages(bytes) / kPage, kPage);
  if (data == nullptr) {
    throw MemoryError(
        fmt::format("{} of page-locked memory are not to be had", format_bytes(bytes)));
  }
  return data;
}

void FakeCudaDevice::deallocate_host(void* data, std::size_t) noexcept {
  std::free(data);
}

std::unique_ptr<Stream> FakeCudaDevice::open_stream() {
  return std::make_unique<FakeStream>(*this);
}

std::unique_ptr<Event> FakeCudaDevice::make_event() {
  return std::make_unique<FakeEvent>(*this);
}

void FakeCudaDevice::copy_now(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  run_until([this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const FakeStream* stream) { return stream->items_.empty(); });
  });
  if (bytes == 0) return;
  const Unlocked open(*this);
  std::memcpy(to, from, bytes);
}

FakeStream* FakeCudaDevice::next_ready() {
  std::vector<FakeStream*> ready;
  for (FakeStream* stream : streams_) {
    if (stream->items_.empty()) continue;
    const FakeStream::Item& first = stream->items_.front();
    if (!first.is_ready || first.is_ready()) ready.push_back(stream);
  }
  ATOLL_CHECK(!ready.empty(),
              "{} in order {}: every stream waits for an event that no stream comes to", name(),
              options_.seed);
  if (options_.seed == 0) return ready.front();
  if (options_.seed == 1) return ready.back();
  const RngStream draws(options_.seed, RngPurpose::kShuffle, 1);
  return ready[draws.word(num_chosen_++) % ready.size()];
}

void FakeCudaDevice::run_until(const std::function<bool()>& is_done) {
  const std::lock_guard lock(mutex_);
  check_there();
  check_no_capture("the host waits for the device");
  if (is_done()) return;
  ++num_waits_;
  const Unlocked open(*this);
  while (!is_done()) {
    FakeStream* stream = next_ready();
    const FakeStream::Item item = std::move(stream->items_.front());
    stream->items_.pop_front();
    if (item.work) item.work();
  }
}

FakeStream::FakeStream(FakeCudaDevice& device) : Stream(device), fake_(device) {
  fake_.streams_.push_back(this);
}

FakeStream::~FakeStream() {
  try {
    synchronize();
  } catch (...) {
    items_.clear();  // a destructor cannot tell; whoever wanted the results has waited
  }
  std::erase(fake_.streams_, this);
}

void FakeStream::synchronize() {
  fake_.run_until([this] { return items_.empty(); });
}

void FakeStream::queue(std::function<void()> work, std::function<bool()> is_ready) {
  if (captured_ != nullptr) {
    ATOLL_CHECK(!is_ready, "a stream waits for an event while a graph is captured");
    captured_->work_.push_back(std::move(work));
    return;
  }
  items_.push_back({std::move(work), std::move(is_ready)});
}

void FakeStream::call_library(std::string description, std::function<void()> work) {
  (captured_ ? captured_->library_calls_ : fake_.library_calls_).push_back(std::move(description));
  queue(std::move(work));
}

void FakeStream::begin_capture() {
  ATOLL_CHECK(captured_ == nullptr, "a capture begins within a capture");
  captured_ = std::make_unique<FakeGraph>();
}

std::unique_ptr<cuda::KernelGraph> FakeStream::end_capture() {
  ATOLL_CHECK(captured_ != nullptr, "no capture is under way");
  return std::move(captured_);
}

void FakeStream::launch(cuda::KernelGraph& graph) {
  const auto& recorded = dynamic_cast<const FakeGraph&>(graph);
  ATOLL_CHECK(captured_ == nullptr, "a graph is launched while another is captured");
  for (const std::string& call : recorded.library_calls_) fake_.library_calls_.push_back(call);
  for (const std::function<void()>& work : recorded.work_) queue(work);
}

void FakeStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) queue([to, from, bytes] { std::memcpy(to, from, bytes); });
}

void FakeStream::fill_zero(void* data, std::size_t bytes) {
  if (bytes > 0) queue([data, bytes] { std::memset(data, 0, bytes); });
}

void FakeStream::wait(const Event& event) {
  queue({}, dynamic_cast<const FakeEvent&>(event).reached());
}

void FakeStream::launch(const cuda::KernelCode& code, const cuda::LaunchShape& shape,
                        const void* operands, std::size_t bytes) {
  check_launch(code, shape);
  const auto* begin = static_cast<const std::byte*>(operands);
  // Operands are structs with at most the alignment of a pointer, which a vector's memory has.
  std::vector<std::byte> copy(begin, begin + bytes);
  queue([this, code, shape, copy = std::move(copy)] {
    fake_.count_kernel();
    KernelTotal& total = fake_.totals_[code.name];
    ++total.launches;
    total.traffic += run_kernel(fake_.threads_, code, shape, copy.data(),
                                Order{fake_.options_.seed}, fake_.options_.checks);
  });
}

void FakeEvent::record(Stream& stream) {
  auto& fake = dynamic_cast<FakeStream&>(stream);
  ATOLL_CHECK(!fake.is_capturing(), "an event is recorded while a graph is captured");
  point_ = std::make_shared<std::optional<Time>>();
  fake.queue([point = point_] { *point = std::chrono::steady_clock::now(); });
}

std::function<bool()> FakeEvent::reached() const {
  return [point = point_] { return point == nullptr || point->has_value(); };
}

bool FakeEvent::is_done() {
  device_.check_no_capture("an event is asked for");
  return reached()();
}

void FakeEvent::wait() {
  device_.run_until(reached());
}

double FakeEvent::seconds_since(const Event& earlier) const {
  const auto& begin = dynamic_cast<const FakeEvent&>(earlier);
  ATOLL_CHECK(point_ && point_->has_value() && begin.point_ && begin.point_->has_value(),
              "an event has recorded no point");
  return std::chrono::duration<double>(**point_ - **begin.point_).count();
}

}  // namespace atl::fake_cuda
