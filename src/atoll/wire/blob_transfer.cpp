#include "atoll/wire/blob_transfer.h"

namespace atl::wire {

const char* to_string(TransferEnd end) {
  switch (end) {
    case TransferEnd::kDone:
      return "done";
    case TransferEnd::kUnreachable:
      return "unreachable";
    case TransferEnd::kGone:
      return "gone";
    case TransferEnd::kRefused:
      return "refused";
    case TransferEnd::kCancelled:
      return "cancelled";
    case TransferEnd::kDamaged:
      return "damaged";
  }
  return "?";
}

}  // namespace atl::wire
