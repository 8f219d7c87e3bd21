// The movement of one transfer's bytes between its slot and the client's memory, by steps.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_ITEM_COPY_H_
#define QUARRY_COMMON_TRANSPORT_SHM_ITEM_COPY_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/checksum.h"
#include "common/transport/shm/board.h"
#include "common/transport/shm/region_table.h"
#include "common/transport/transport.h"

namespace quarry::transport::shm {

// While it is open, the request counts as used; each step uses the regions that it touches.
class ItemCopy {
 public:
  ItemCopy(ServerBoard* board, RegionTable* regions) : board_(board), regions_(regions) {}
  ~ItemCopy() { Close(); }
  ItemCopy(const ItemCopy&) = delete;
  ItemCopy& operator=(const ItemCopy&) = delete;

  enum class Found : uint8_t {
    kHere,
    kNotExposed,  // withdrawn, or never exposed
    kByStream,    // not to be reached from here
    kWrongSize,
    kRegionGone,  // unregistered
    kMalformed,   // the client is wrong; see status()
  };
  // Looks the item up. kHere, and no other: it is open.
  Found Open(const Transfer& transfer);
  // Whether the client verifies the item, or has summed it.
  bool checksum() const { return (record_.flags & ItemRecord::kChecksum) != 0; }

  enum class Progress : uint8_t {
    kMore,
    kDone,
    kTakenBack,  // the client has withdrawn the request or a region
    kBroken,     // the client's memory is not there; see status()
  };
  // Moves about `bytes`. A read is summed on the way, into the transfer's sums. `next`: of a write.
  Progress Step(size_t bytes);
  size_t moved() const { return moved_; }
  const absl::Status& status() const { return status_; }

  // True: the client waits to hear that the request is used no more.
  bool Close();

 private:
  // Consecutive pieces in one region.
  struct Run {
    std::shared_ptr<Region> region;
    std::vector<Segment> segments;
    size_t bytes = 0;
  };
  Found BuildRuns(const std::vector<Descriptor>& descriptors);
  Progress StepInRun(Run& run, size_t bytes);

  ServerBoard* const board_;
  RegionTable* const regions_;
  const Transfer* transfer_ = nullptr;
  std::optional<ServerBoard::Entered> entered_;
  ItemRecord record_;
  std::vector<Run> runs_;
  size_t run_ = 0;
  size_t run_moved_ = 0;
  SegmentCursor cursor_;  // in runs_[run_]
  size_t moved_ = 0;
  ChunkSummer summer_;
  absl::Status status_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_ITEM_COPY_H_
