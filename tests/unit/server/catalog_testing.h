// What the tests of the catalog share.
#ifndef QUARRY_TESTS_UNIT_SERVER_CATALOG_TESTING_H_
#define QUARRY_TESTS_UNIT_SERVER_CATALOG_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/ssd/catalog.h"

namespace quarry::server {

// A folder of the test's own, removed with it.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "quarry-catalog-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << name;
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a record says of a block, with the hash held.
struct HeldRecord {
  HeldRecord(const CatalogRecord& record) : fields(record), hash(record.hash) { fields.hash = hash; }  // NOLINT
  HeldRecord(const HeldRecord& other) : HeldRecord(other.fields) {}
  HeldRecord& operator=(const HeldRecord&) = delete;

  friend bool operator==(const HeldRecord& a, const HeldRecord& b) {
    const auto tied = [](const CatalogRecord& r) {
      return std::tie(r.extent, r.page, r.ns, r.group, r.inlined, r.shard, r.depth, r.payload_bytes, r.stored_at_ms,
                      r.root, r.hash);
    };
    return tied(a.fields) == tied(b.fields);
  }

  CatalogRecord fields;
  std::string hash;
};

// A record with every field set, different for each place.
inline HeldRecord TestRecord(uint32_t extent, uint32_t page, size_t hash_bytes = 32) {
  const std::string hash(hash_bytes, static_cast<char>('a' + (extent + page) % 26));
  CatalogRecord record;
  record.extent = extent;
  record.page = page;
  record.ns = 7;
  record.group = 3;
  record.shard = 255;
  record.depth = 70'000 + page;
  record.payload_bytes = 64 << 20;
  record.stored_at_ms = 1'700'000'000'000 + page;
  record.root = 0xfedcba9876543210u ^ page;
  record.hash = hash;
  return HeldRecord(record);
}

inline std::unique_ptr<Catalog> OpenCatalog(const std::string& dir, const CatalogOptions& options = {}) {
  auto catalog = Catalog::Open(dir, options);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return catalog.ok() ? *std::move(catalog) : nullptr;
}

inline std::vector<HeldRecord> Records(const Catalog& catalog, uint64_t* unreadable) {
  std::vector<HeldRecord> records;
  const absl::Status status =
      catalog.ForEachRecord([&records](const CatalogRecord& record) { records.emplace_back(record); }, unreadable);
  EXPECT_TRUE(status.ok()) << status;
  return records;
}

inline std::vector<HeldRecord> Records(const Catalog& catalog) {
  uint64_t unreadable = 0;
  std::vector<HeldRecord> records = Records(catalog, &unreadable);
  EXPECT_EQ(unreadable, 0u);
  return records;
}

inline std::vector<std::pair<uint32_t, uint32_t>> Places(const std::vector<HeldRecord>& records) {
  std::vector<std::pair<uint32_t, uint32_t>> places;
  for (const HeldRecord& record : records) places.emplace_back(record.fields.extent, record.fields.page);
  return places;
}

}  // namespace quarry::server

#endif  // QUARRY_TESTS_UNIT_SERVER_CATALOG_TESTING_H_
