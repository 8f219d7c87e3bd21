// FAKE. The extents' side of a disk that does what a test tells it: its requests fail, move
// less than they were asked to, or are held back; files cannot be made; and what was not
// synced when the power goes is undone. Beneath are the real files and the real engine.
#ifndef QUARRY_TESTS_FAKES_FAKE_DISK_H_
#define QUARRY_TESTS_FAKES_FAKE_DISK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/ssd/ssd_disk.h"
#include "tests/fakes/fake_power.h"

namespace quarry::fakes {

// Thread-safe. Outlives the disks that it is attached to.
class FakeDisk {
 public:
  using Kind = server::IoRequest::Kind;
  static constexpr uint64_t kForEver = UINT64_MAX;

  // With a power, unsynced writes are kept track of, and no sync goes to the real disk.
  explicit FakeDisk(FakePower* power = nullptr) : power_(power) {}

  // To the disk in `dir`.
  void Attach(const std::string& dir, server::SsdDiskOptions* options);

  // `count` requests from the `from`-th on fail; the next one is the first.
  void Fail(Kind kind, int error, uint64_t from = 1, uint64_t count = kForEver);
  // Each moves so much at most.
  void Shorten(Kind kind, uint64_t most_bytes);
  // They wait until Release.
  void Hold(Kind kind);
  // With an error: they fail.
  void Release(Kind kind, int error = 0);
  // Files cannot be made, for that reason.
  void FailCreate(absl::Status status);
  // Everything works again; what is held stays so.
  void Heal();

  uint64_t requests(Kind kind) const;  // that came
  uint64_t failed(Kind kind) const;    // of them
  uint64_t held(Kind kind) const;      // now

  // Once the disk is closed: undoes what no sync has covered. A write that was there when a
  // sync failed is covered by none that follows, as with Linux.
  void LoseUnsynced(Loss loss, uint64_t seed);

 private:
  class Engine;
  class Files;

  struct Held {
    Engine* engine;
    server::IoRequest request;
  };
  struct Faults {
    int error = 0;
    uint64_t fail_from = 0;  // of `requests`
    uint64_t fail_count = 0;
    uint64_t most_bytes = UINT64_MAX;
    bool hold = false;
    std::vector<Held> held;
    uint64_t requests = 0;
    uint64_t failed = 0;
  };
  // What a page held before a write that no sync has covered.
  struct Before {
    uint64_t write;
    std::string bytes;
  };
  struct File {
    std::map<uint64_t, std::vector<Before>> pages;  // by offset; in the order of the writes
    std::set<uint64_t> ended;                       // writes that a sync would cover
  };

  Faults& faults(Kind kind) { return faults_[static_cast<size_t>(kind)]; }
  const Faults& faults(Kind kind) const { return faults_[static_cast<size_t>(kind)]; }
  void Take(Engine* engine, server::IoRequest request);
  // 0: it does not fail.
  int ErrorOfLocked(const server::IoRequest& request);
  void NoteFailed(const server::IoRequest& request);
  void Forward(Engine* engine, server::IoRequest request);
  void TrackWrite(server::IoRequest* request);
  void CoverBySync(server::IoRequest* request);
  absl::Status BeforeCreate();
  void Forget(const std::string& path);

  FakePower* const power_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::array<Faults, 3> faults_;
  absl::Status create_status_;
  std::map<std::string, File> files_;  // by path
  uint64_t writes_ = 0;
};

}  // namespace quarry::fakes

#endif  // QUARRY_TESTS_FAKES_FAKE_DISK_H_
