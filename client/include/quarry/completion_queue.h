// Where asynchronous operations report to.
#ifndef QUARRY_COMPLETION_QUEUE_H_
#define QUARRY_COMPLETION_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "quarry/export.h"

namespace quarry {

struct MatchResult;
struct TransferResult;
struct FetchResult;
struct ItemResult;

struct Completion {
  enum class Kind : uint8_t {
    kItem,      // one item of a get, put or fetch has ended (only with item_completions)
    kDone,      // the operation has ended; exactly one
    kReleased,  // its buffers are free; only after a kDone with held = true
  };
  Kind kind = Kind::kDone;
  uint64_t operation = 0;  // OperationId
  uint64_t user_data = 0;
  // kDone: how the operation as a whole ended. Not OK: some items may have ended well;
  // the result says which.
  absl::Status status;
  bool held = false;  // kDone: the buffers are not free yet

  // kItem
  uint32_t item = 0;
  std::shared_ptr<const ItemResult> item_result;

  // kDone: the one that fits the operation.
  std::shared_ptr<MatchResult> match;
  std::shared_ptr<TransferResult> transfer;
  std::shared_ptr<FetchResult> fetch;
};

// Bounded by what its user has begun: an operation adds at most items + 2. Thread-safe.
// Outlives the operations that report to it.
class QUARRY_EXPORT CompletionQueue {
 public:
  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // An eventfd that is readable while completions wait; for poll and epoll. Owned by the
  // queue; do not read it.
  int fd() const;

  // The next completion; nullopt when there is none now.
  std::optional<Completion> TryNext();
  // Waits for at most timeout_ms (negative: without limit).
  std::optional<Completion> Next(int64_t timeout_ms = -1);

  struct Impl;

 private:
  friend class Client;
  std::shared_ptr<Impl> impl_;
};

}  // namespace quarry

#endif  // QUARRY_COMPLETION_QUEUE_H_
