// FAKE. Stands in for the block store where a disk is tested by itself: an index of its
// records, that keeps what a test says is wanted.
#ifndef QUARRY_TESTS_FAKES_FAKE_SSD_OWNER_H_
#define QUARRY_TESTS_FAKES_FAKE_SSD_OWNER_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "server/ssd/ssd_disk.h"

namespace quarry::fakes {

// Thread-safe. Records are found by their hash; there is one shard and one group.
class FakeSsdOwner final : public server::SsdOwner {
 public:
  struct Held {
    uint32_t record = 0;
    server::RecordPlace place;
    uint32_t payload_bytes = 0;
    uint16_t ns_index = 0;
  };

  explicit FakeSsdOwner(server::RecordTable* records) : records_(records) {}

  // The disk that it owns; nullptr: none any more.
  void set_disk(server::SsdDisk* disk);
  // Is moved when its extent is emptied.
  void Keep(const std::string& hash);
  // Nobody wants it any more.
  void Remove(const std::string& hash);
  // Counts it as read until disk->Read has ended it; the disk is told.
  std::optional<Held> BeginRead(const std::string& hash);
  // As a store forgets a block that cannot be read.
  void Lose(const std::string& hash);

  bool Restore(uint16_t ns_index, const server::CatalogRecord& record, const server::RecordPlace& place);
  std::set<std::string> held() const;
  std::map<std::string, Held> places() const;
  std::set<std::string> failed() const;  // to be written, since the start
  std::set<std::string> lost() const;    // OnLost
  uint64_t moved() const;

  bool OnWritten(const server::SpillItem& item, uint32_t record) override;
  void OnWriteFailed(const server::SpillItem& item, bool disk_failed) override;
  Fate OnReclaim(const server::ShardKey& key, const server::RecordPlace& place, server::UseTime used_since) override;
  bool OnMoved(const server::ShardKey& key, const server::RecordPlace& from, const server::RecordPlace& to) override;
  void OnLost(const server::ShardKey& key, const server::RecordPlace& place) override;

 private:
  void RemoveLocked(const std::string& hash);

  server::RecordTable* const records_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  server::SsdDisk* disk_ = nullptr;
  std::map<std::string, Held> held_;
  std::set<std::string> kept_, failed_, lost_;
  uint64_t moved_ = 0;
};

}  // namespace quarry::fakes

#endif  // QUARRY_TESTS_FAKES_FAKE_SSD_OWNER_H_
