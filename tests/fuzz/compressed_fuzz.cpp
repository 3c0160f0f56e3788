// Compressed files, by lines and as documents.

#include "atoll/data/bytes/document_stream.h"
#include "atoll/data/bytes/text_window.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::fuzz::MemoryFile file(data, size);
  // What some bytes can become takes longer than a target has; a thousand pieces find no less.
  constexpr int kPieces = 1000;
  atl::fuzz::expect_result_or_refusal([&] {
    atl::data::TextWindow window(file.path());
    for (int i = 0; i < kPieces && window.next_line(); ++i) {
    }
  });
  atl::fuzz::expect_result_or_refusal([&] {
    atl::data::TextWindow window(file.path());
    atl::data::DocumentStream documents(window, atl::data::DocumentMode::kBlankLine);
    for (int i = 0; i < kPieces && documents.next();) {
      for (; i < kPieces; ++i) {
        const std::size_t bytes = documents.front(64).size();
        if (bytes == 0) break;
        documents.consume(bytes);
      }
    }
  });
  return 0;
}
