// What the tests of a disk share: a disk of their own that opens and closes, and payloads that
// follow from a number.
#ifndef QUARRY_TESTS_UNIT_SERVER_SSD_TESTING_H_
#define QUARRY_TESTS_UNIT_SERVER_SSD_TESTING_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "server/dram/slab_arena.h"
#include "server/ssd/ssd_disk.h"
#include "tests/fakes/fake_catalog_disk.h"
#include "tests/fakes/fake_disk.h"
#include "tests/fakes/fake_power.h"
#include "tests/fakes/fake_ssd_owner.h"
#include "tests/unit/server/catalog_testing.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {

inline constexpr uint32_t kLarge = 100'000;  // bytes of a payload in an extent
inline constexpr uint32_t kSmall = 1000;     // of one in the catalog

// Bytes of which every eight say whose they are and where they belong.
inline void FillBytes(uint64_t id, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = (id * 0x9E3779B97F4A7C15u) ^ (at * 0xC2B2AE3D27D4EB4Fu);
    std::memcpy(to + at, &word, std::min<size_t>(8, bytes - at));
  }
}

inline bool HoldsBytes(uint64_t id, const std::byte* from, size_t bytes) {
  std::vector<std::byte> expected(bytes);
  FillBytes(id, expected.data(), bytes);
  return std::memcmp(expected.data(), from, bytes) == 0;
}

// Payload and header, as whoever receives a put fills them.
inline void FillSlot(const SlotRef& slot, const Namespace& ns, const std::string& hash, uint64_t id, uint32_t bytes,
                     uint32_t group = 0, uint32_t shard = 0) {
  FillBytes(id, slot.payload(), bytes);
  SlotHeader& header = *slot.header();
  header.payload_bytes = bytes;
  for (size_t chunk = 0; chunk < ChunkCount(bytes); ++chunk) {
    const size_t begin = chunk * kChunkBytes;
    header.sums[chunk] = ChunkSum(slot.payload() + begin, std::min(kChunkBytes, bytes - begin));
  }
  header.root =
      RootSum(IdentitySeed(ns.id, group, shard, hash), bytes, absl::MakeConstSpan(header.sums, ChunkCount(bytes)));
}

// Polls; a minute is for ever.
inline bool Until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// One --ssd-dir, with somebody who owns its records. Blocks are numbered; their hashes are TestHash.
// Beneath it are fake disks, which do not wait for real syncs and fail when told to; or else, of
// a Real one, nothing but the code under test.
class DiskHarness {
 public:
  static constexpr uint64_t kMiB = 1 << 20;
  using Outcome = SsdRead::Outcome;

  enum class Beneath { kFakes, kReal };

  explicit DiskHarness(Beneath beneath = Beneath::kFakes) {
    options.dir = dir_.path();
    if (beneath == Beneath::kFakes) AttachFakes();
    options.max_bytes = 32 * kMiB;
    options.extent_bytes = 4 * kMiB;
    options.catalog_memory_bytes = 8 * kMiB;
    auto arena = SlabArena::Create({.arena_bytes = 96 * kMiB, .slab_bytes = 2 * kMiB, .prefault = false});
    EXPECT_TRUE(arena.ok()) << arena.status();
    arena_ = *std::move(arena);
    ns = OpenNamespace("n");
  }
  ~DiskHarness() { Close(); }

  void AttachFakes() {
    faults.Attach(options.dir, &options);
    options.env = catalog_faults.env();
  }

  const Namespace* OpenNamespace(const std::string& name) {
    auto opened = namespaces.Open("t", name, TestSpec(4096), false);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened->ns;
  }

  // What was written before is there again. All namespaces are known, except those that
  // `unknown` names.
  absl::Status TryOpen() {
    auto created = RecordTable::Create(max_records);
    if (!created.ok()) return created.status();
    records_ = *std::move(created);
    owner = std::make_unique<fakes::FakeSsdOwner>(records_.get());
    auto opened = SsdDisk::Open(options, records_.get(), owner.get(), &clock);
    if (!opened.ok()) return opened.status();
    disk_ = *std::move(opened);
    owner->set_disk(disk_.get());
    const auto know = [this](const CatalogNamespace& known) -> std::optional<RecordLog::Contents> {
      if (unknown.contains(known.name)) return std::nullopt;
      const Namespace* found = OpenNamespace(known.name);
      return RecordLog::Contents{static_cast<uint16_t>(found->index), found};
    };
    absl::Status status =
        disk_->Recover(know, [this](uint16_t ns_index, const CatalogRecord& record, const RecordPlace& place) {
          return owner->Restore(ns_index, record, place);
        });
    if (status.ok() && start) disk_->Start();
    return status;
  }
  void Open() {
    const absl::Status status = TryOpen();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Close() { disk_.reset(); }
  void Reopen() {
    Close();
    Open();
  }
  SsdDisk* operator->() const { return disk_.get(); }
  SsdDisk& disk() const { return *disk_; }

  SpillItem Item(uint64_t id, uint32_t bytes) {
    const int size_class = arena_->size_classes().ClassOf(bytes);
    SpillItem item;
    // What is on its way to the disk gives its slot back soon.
    EXPECT_TRUE(Until([&] { return static_cast<bool>(item.slot = arena_->Allocate(size_class, {})); }));
    item.ns = ns;
    item.ns_index = static_cast<uint16_t>(ns->index);
    item.hash = TestHash(id);
    FillSlot(item.slot, *ns, item.hash, id, bytes);
    return item;
  }
  // Does not wait for the commit.
  void Send(const std::vector<uint64_t>& ids, uint32_t bytes) {
    std::vector<SpillItem> items;
    for (uint64_t id : ids) items.push_back(Item(id, bytes));
    disk_->Write(std::move(items));
  }
  void Write(const std::vector<uint64_t>& ids, uint32_t bytes) {
    Send(ids, bytes);
    disk_->Flush();
  }

  bool Has(uint64_t id) const { return owner->held().contains(TestHash(id)); }
  RecordPlace PlaceOf(uint64_t id) const { return owner->places().at(TestHash(id)).place; }
  uint64_t FileOffset(uint64_t id) const { return PlaceOf(id).page * kPageBytes; }
  std::filesystem::path FileOf(uint32_t extent) const {
    char name[32];
    std::snprintf(name, sizeof name, "%08u.extent", extent);
    return std::filesystem::path(options.dir) / "extents" / name;
  }
  std::filesystem::path FileOf(const RecordPlace& place) const { return FileOf(place.extent); }

  // Reads them together. kGood: the bytes are right, as well; nothing: nobody has it.
  std::vector<std::optional<Outcome>> Read(const std::vector<uint64_t>& ids) {
    std::vector<std::optional<Outcome>> outcomes(ids.size());
    std::vector<std::promise<Outcome>> ends(ids.size());
    std::vector<SsdRead> reads;
    std::vector<size_t> begun;
    for (size_t i = 0; i < ids.size(); ++i) {
      auto read = BeginRead(ids[i], [&ends, i, id = ids[i]](Outcome outcome, SlotRef slot, bool) {
        if (outcome == Outcome::kGood) {
          EXPECT_TRUE(HoldsBytes(id, slot.payload(), slot.header()->payload_bytes)) << id;
        }
        slot = SlotRef();
        ends[i].set_value(outcome);
      });
      if (!read) continue;
      begun.push_back(i);
      reads.push_back(*std::move(read));
    }
    disk_->Read(std::move(reads));
    for (size_t i : begun) outcomes[i] = ends[i].get_future().get();
    return outcomes;
  }
  std::optional<Outcome> Read(uint64_t id) { return Read(std::vector<uint64_t>{id}).front(); }
  // A read that has begun, and waits for disk()->Read.
  std::optional<SsdRead> BeginRead(uint64_t id, decltype(SsdRead::done) done) {
    const auto held = owner->BeginRead(TestHash(id));
    if (!held) return std::nullopt;
    SsdRead read;
    read.place = held->place;
    read.namespace_id = namespaces.OfIndex(held->ns_index)->id;
    read.hash = TestHash(id);
    read.payload_bytes = held->payload_bytes;
    EXPECT_TRUE(Until([&] {
      return static_cast<bool>(read.to = arena_->Allocate(arena_->size_classes().ClassOf(held->payload_bytes), {}));
    }));
    read.done = std::move(done);
    return read;
  }
  // How many of them are there, each with the right bytes.
  size_t Good(const std::vector<uint64_t>& ids) {
    size_t good = 0;
    for (size_t begin = 0; begin < ids.size(); begin += 16) {
      const size_t end = std::min(ids.size(), begin + 16);
      for (const auto& outcome : Read(std::vector<uint64_t>(ids.begin() + begin, ids.begin() + end))) {
        EXPECT_TRUE(!outcome || *outcome == Outcome::kGood);
        if (outcome == Outcome::kGood) ++good;
      }
    }
    return good;
  }
  uint64_t BytesOfFiles() const {
    uint64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(options.dir + "/extents")) bytes += file.file_size();
    return bytes;
  }

  fakes::FakePower power;
  fakes::FakeDisk faults{&power};
  fakes::FakeCatalogDisk catalog_faults{&power};
  SsdDiskOptions options;
  uint32_t max_records = 1 << 20;
  std::set<std::string> unknown;  // names of namespaces
  bool start = true;              // false: neither writes nor reclaims before Start
  ManualClock clock;
  NamespaceRegistry namespaces;
  const Namespace* ns = nullptr;
  std::unique_ptr<fakes::FakeSsdOwner> owner;

 private:
  const TempDir dir_;
  std::unique_ptr<SlabArena> arena_;
  std::unique_ptr<RecordTable> records_;
  std::unique_ptr<SsdDisk> disk_;
};

}  // namespace quarry::server

#endif  // QUARRY_TESTS_UNIT_SERVER_SSD_TESTING_H_
