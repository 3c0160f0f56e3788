#include "atoll/data/bytes/text_window.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

// What is decoded at a time.
constexpr std::size_t kPiece = std::size_t{1} << 20;

}  // namespace

TextWindow::TextWindow(fs::path path, Decompress decompress)
    : path_(std::move(path)), file_(path_) {
  if (decompress == Decompress::kNever) return;
  compression_ = compression_of(whole_file());
  if (compression_ != Compression::kNone) decoder_ = make_decoder(compression_);
}

fs::path TextWindow::name_inside() const {
  if (compression_ == Compression::kNone) return path_;
  std::string ending = path_.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!is_compressed_ending(ending)) return path_;
  fs::path inside = path_;
  // .tgz and its like say that a tar is inside.
  return inside.replace_extension(ending.starts_with(".t") ? ".tar" : "");
}

std::string_view TextWindow::whole_file() const {
  return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
}

std::string_view TextWindow::view() const {
  if (!decoder_) return whole_file().substr(position_);
  return {buffer_.data() + begin_, end_ - begin_};
}

bool TextWindow::fill(std::size_t bytes) {
  while (view().size() < bytes) {
    if (!decoder_ || has_ended_) return false;
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    // Doubled, so that what is moved stays in proportion to what is read.
    if (buffer_.size() - end_ < kPiece) buffer_.resize(std::max(2 * buffer_.size(), 2 * kPiece));
    decode();
  }
  return true;
}

void TextWindow::consume(std::size_t bytes) {
  ATOLL_CHECK(bytes <= view().size(), "{} bytes of {}", bytes, view().size());
  position_ += bytes;
  if (decoder_) begin_ += bytes;
}

void TextWindow::skip_byte_order_mark() {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (fill(kMark.size()) && view().starts_with(kMark)) consume(kMark.size());
}

std::optional<std::size_t> TextWindow::find(char letter, std::size_t from) {
  for (std::size_t wanted = from + 1;;) {
    const bool has_more = fill(wanted);
    const std::string_view here = view();
    const std::size_t at = from < here.size() ? here.find(letter, from) : std::string_view::npos;
    if (at != std::string_view::npos) return at;
    if (!has_more) return std::nullopt;
    from = here.size();
    wanted = from + 1;
    if (decoder_ && from > kMaxRowBytes) {
      throw user_error(
          "{}: from byte {} of its content on no line or row ends in {} MiB; decompress the file "
          "to read it as it is, or write shorter rows",
          path_.string(), position_, kMaxRowBytes >> 20);
    }
  }
}

std::optional<std::string_view> TextWindow::next_line() {
  if (!fill(1)) return std::nullopt;
  const std::size_t size = find('\n', 0).value_or(view().size());
  const std::string_view line = view().substr(0, size);
  // Nothing moves before the next fill(), so the line stays where it is.
  consume(std::min(size + 1, view().size()));
  return line;
}

void TextWindow::decode() {
  std::string_view rest = whole_file().substr(consumed_);
  if (!is_within_) {
    // Behind a member: another one, or zeros, which tapes leave.
    const std::size_t zeros = std::min(rest.find_first_not_of('\0'), rest.size());
    consumed_ += zeros;
    rest.remove_prefix(zeros);
    if (rest.empty()) {
      has_ended_ = true;
      return;
    }
    const bool goes_on = compression_of(rest) == compression_ || is_skippable_frame(rest);
    if (!goes_on) fail("what follows there is no such data");
    is_within_ = true;
  }
  DecodeStep done;  // of an empty input too: what is left of the output may be in the decoder
  try {
    done = decoder_->step(std::span(rest.data(), rest.size()),
                          std::span(buffer_.data() + end_, buffer_.size() - end_));
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
  consumed_ += done.consumed;
  end_ += done.produced;
  if (done.ended) is_within_ = false;
  if (done.consumed == 0 && done.produced == 0 && !done.ended) {
    fail("the file ends before its content does");
  }
}

void TextWindow::fail(const std::string& problem) const {
  throw user_error(
      "{} is damaged at byte {} of {} ({}, behind byte {} of its content): {}; copy or write it "
      "again",
      path_.string(), consumed_, file_bytes(), compression_name(compression_),
      position_ + (end_ - begin_), problem);
}

std::uint64_t content_bytes(const fs::path& path) {
  TextWindow window(path);
  if (window.compression() == Compression::kNone) return window.file_bytes();
  while (window.fill(1)) window.consume(window.view().size());
  return window.position();
}

}  // namespace atl::data
