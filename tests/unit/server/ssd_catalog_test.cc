#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "server/ssd/catalog.h"
#include "tests/unit/server/catalog_testing.h"

namespace quarry::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// With every field set, and none by its default.
CatalogNamespace TestNamespace(uint32_t number) {
  CatalogNamespace ns;
  ns.number = number;
  ns.tenant = "tenant";
  ns.name = std::string(256, 'n');
  ns.ttl_ms = 86'400'000;
  ns.spec = {.engine = "vllm",
             .layout = "layout",
             .model = "model",
             .weights_revision = "revision",
             .adapter_digest = "adapter",
             .kv_dtype = "bfloat16",
             .quantization = "fp8",
             .hash_scheme = "vllm-sha256_cbor",
             .hash_seed = "seed",
             .hash_bytes = 8,
             .allow_short_hashes = true,
             .layers = 61};
  ns.spec.groups = {{GroupKind::kFull, 32, 0, 8, 1 << 20, false}, {GroupKind::kWindow, 16, 4096, 2, 4097, true}};
  return ns;
}

std::map<uint32_t, CatalogNamespace> Namespaces(const Catalog& catalog) {
  std::map<uint32_t, CatalogNamespace> all;
  uint64_t unreadable = 0;
  EXPECT_TRUE(
      catalog.ForEachNamespace([&all](CatalogNamespace ns) { all[ns.number] = std::move(ns); }, &unreadable).ok());
  EXPECT_EQ(unreadable, 0u);
  return all;
}

std::vector<std::pair<uint32_t, uint64_t>> Extents(const Catalog& catalog) {
  std::vector<std::pair<uint32_t, uint64_t>> all;
  uint64_t unreadable = 0;
  EXPECT_TRUE(catalog
                  .ForEachExtent([&all](CatalogExtent extent) { all.emplace_back(extent.number, extent.generation); },
                                 &unreadable)
                  .ok());
  EXPECT_EQ(unreadable, 0u);
  return all;
}

class CatalogTest : public ::testing::Test {
 protected:
  void Reopen() {
    catalog_.reset();
    catalog_ = OpenCatalog(dir_.path());
    ASSERT_NE(catalog_, nullptr);
  }
  void Commit(CatalogBatch* batch) {
    const absl::Status status = catalog_->Commit(batch, true);
    ASSERT_TRUE(status.ok()) << status;
  }
  // A record with its payload, as text.
  static void PutInline(CatalogBatch* batch, uint32_t extent, uint32_t page, const std::string& payload) {
    HeldRecord record = TestRecord(extent, page);
    record.fields.inlined = true;
    batch->Put(record.fields);
    batch->PutPayload(extent, page, "header ", payload);
  }

  TempDir dir_;
  std::unique_ptr<Catalog> catalog_ = OpenCatalog(dir_.path());
};

TEST_F(CatalogTest, WhatIsCommittedIsThereAfterReopening) {
  CatalogBatch batch;
  HeldRecord inlined = TestRecord(2, 9);
  inlined.fields.inlined = true;
  batch.Put(TestRecord(1, 0).fields);
  batch.Put(inlined.fields);
  batch.PutPayload(2, 9, "header ", std::string("pay\0load", 8));
  batch.Put(CatalogExtent{.number = 1, .generation = UINT64_MAX});
  batch.Put(CatalogExtent{.number = 2, .generation = 4});
  Commit(&batch);
  EXPECT_FALSE(catalog_->wiped());
  Reopen();
  EXPECT_FALSE(catalog_->wiped());
  EXPECT_THAT(Records(*catalog_), ElementsAre(TestRecord(1, 0), inlined));
  EXPECT_THAT(Extents(*catalog_), ElementsAre(Pair(1, UINT64_MAX), Pair(2, 4)));
  EXPECT_EQ(catalog_->ReadPayload(2, 9).value(), std::string("header pay\0load", 15));
}

TEST_F(CatalogTest, ABatchIsEmptyOnceItIsCommitted) {
  CatalogBatch batch;
  batch.Put(TestRecord(1, 0).fields);
  Commit(&batch);
  CatalogBatch removal;
  removal.Remove(1, 0, false);
  Commit(&removal);
  Commit(&batch);
  EXPECT_TRUE(Records(*catalog_).empty());
}

TEST_F(CatalogTest, ABatchThatIsNotCommittedLeavesNothing) {
  {
    CatalogBatch batch;
    PutInline(&batch, 1, 0, "payload");
    batch.Put(CatalogExtent{.number = 1, .generation = 1});
    batch.Put(TestNamespace(1));
  }
  Reopen();
  EXPECT_TRUE(Records(*catalog_).empty());
  EXPECT_TRUE(Extents(*catalog_).empty());
  EXPECT_TRUE(Namespaces(*catalog_).empty());
  EXPECT_TRUE(absl::IsNotFound(catalog_->ReadPayload(1, 0).status()));
}

TEST_F(CatalogTest, RecordsAreVisitedInTheOrderOfTheDisk) {
  CatalogBatch batch;
  // Little-endian keys would put 256 before 1, signed ones the last two first.
  for (const uint32_t extent : {0x80000000u, 256u, 1u, UINT32_MAX, 0u}) {
    for (const uint32_t page : {0x10000u, 255u, 256u}) batch.Put(TestRecord(extent, page).fields);
  }
  Commit(&batch);
  std::vector<std::pair<uint32_t, uint32_t>> expected;
  for (const uint32_t extent : {0u, 1u, 256u, 0x80000000u, UINT32_MAX}) {
    for (const uint32_t page : {255u, 256u, 0x10000u}) expected.emplace_back(extent, page);
  }
  EXPECT_EQ(Places(Records(*catalog_)), expected);
}

TEST_F(CatalogTest, HashesOfEveryLengthComeBack) {
  CatalogBatch batch;
  for (uint32_t bytes = 1; bytes <= kMaxHashBytes; ++bytes) batch.Put(TestRecord(0, bytes, bytes).fields);
  Commit(&batch);
  Reopen();
  const std::vector<HeldRecord> records = Records(*catalog_);
  ASSERT_EQ(records.size(), kMaxHashBytes);
  for (uint32_t i = 0; i < kMaxHashBytes; ++i) EXPECT_EQ(records[i], TestRecord(0, i + 1, i + 1));
}

TEST_F(CatalogTest, EmptyTakesAnExtentsRecordsAndPayloadsAndNoOthers) {
  for (const uint32_t emptied : {0u, 255u, UINT32_MAX}) {
    CatalogBatch batch;
    for (const uint32_t extent : {0u, 1u, 254u, 255u, 256u, UINT32_MAX - 1, UINT32_MAX}) {
      for (const uint32_t page : {0u, UINT32_MAX}) PutInline(&batch, extent, page, "payload");
    }
    Commit(&batch);
    batch.Empty(emptied);
    Commit(&batch);
    Reopen();
    EXPECT_EQ(Records(*catalog_).size(), 12u);
    for (const uint32_t extent : {0u, 1u, 254u, 255u, 256u, UINT32_MAX - 1, UINT32_MAX}) {
      for (const uint32_t page : {0u, UINT32_MAX}) {
        const auto payload = catalog_->ReadPayload(extent, page);
        EXPECT_EQ(payload.status().code(), extent == emptied ? absl::StatusCode::kNotFound : absl::StatusCode::kOk);
      }
    }
  }
}

TEST_F(CatalogTest, WhatABatchPutsAfterEmptyStays) {
  CatalogBatch batch;
  PutInline(&batch, 5, 0, "old");
  PutInline(&batch, 5, 1, "old");
  Commit(&batch);
  PutInline(&batch, 5, 2, "before");
  batch.Empty(5);
  PutInline(&batch, 5, 1, "new");
  Commit(&batch);
  EXPECT_THAT(Places(Records(*catalog_)), ElementsAre(Pair(5, 1)));
  EXPECT_EQ(catalog_->ReadPayload(5, 1).value(), "header new");
  EXPECT_TRUE(absl::IsNotFound(catalog_->ReadPayload(5, 2).status()));
}

TEST_F(CatalogTest, RemoveTakesOneRecordWithItsPayload) {
  CatalogBatch batch;
  PutInline(&batch, 1, 1, "first");
  PutInline(&batch, 1, 2, "second");
  Commit(&batch);
  batch.Remove(1, 1, true);
  Commit(&batch);
  EXPECT_THAT(Places(Records(*catalog_)), ElementsAre(Pair(1, 2)));
  EXPECT_TRUE(absl::IsNotFound(catalog_->ReadPayload(1, 1).status()));
  EXPECT_EQ(catalog_->ReadPayload(1, 2).value(), "header second");
}

TEST_F(CatalogTest, NamespacesKeepEveryField) {
  CatalogBatch batch;
  batch.Put(TestNamespace(1));
  CatalogNamespace plain = TestNamespace(UINT32_MAX);
  plain.tenant = plain.name = "";
  plain.ttl_ms = 0;
  plain.spec.adapter_digest = plain.spec.quantization = plain.spec.hash_seed = "";
  plain.spec.hash_bytes = 64;
  plain.spec.allow_short_hashes = false;
  plain.spec.groups = {{GroupKind::kState, 1 << 20, 0, 256, 64 << 20, true}};
  batch.Put(plain);
  batch.Put(TestNamespace(3));
  Commit(&batch);
  batch.RemoveNamespace(3);
  Commit(&batch);
  Reopen();
  const auto all = Namespaces(*catalog_);
  ASSERT_EQ(all.size(), 2u);
  for (const CatalogNamespace& expected : {TestNamespace(1), plain}) {
    const auto found = all.find(expected.number);
    ASSERT_NE(found, all.end());
    EXPECT_EQ(found->second.tenant, expected.tenant);
    EXPECT_EQ(found->second.name, expected.name);
    EXPECT_EQ(found->second.ttl_ms, expected.ttl_ms);
    EXPECT_EQ(found->second.spec, expected.spec)
        << testing::PrintToString(DifferingFields(found->second.spec, expected.spec));
  }
}

TEST_F(CatalogTest, APayloadThatIsNotThereIsNotFound) {
  CatalogBatch batch;
  batch.Put(TestRecord(1, 0).fields);
  PutInline(&batch, 1, 1, "");
  Commit(&batch);
  EXPECT_TRUE(absl::IsNotFound(catalog_->ReadPayload(1, 0).status()));
  EXPECT_EQ(catalog_->ReadPayload(1, 1).value(), "header ");
}

TEST_F(CatalogTest, StatsCountWhatWasWritten) {
  const CatalogStats before = catalog_->stats();
  CatalogBatch batch;
  for (uint32_t page = 0; page < 20'000; ++page) PutInline(&batch, 1, page, std::string(1000, 'p'));
  Commit(&batch);
  const CatalogStats after = catalog_->stats();
  EXPECT_EQ(before.records, 0u);
  EXPECT_NEAR(static_cast<double>(after.records), 20'000, 2'000);
  EXPECT_GT(after.wal_bytes, before.wal_bytes + 20'000'000);
  EXPECT_GT(after.bytes_on_disk, before.bytes_on_disk + 20'000'000);
  EXPECT_GT(after.memory_bytes, before.memory_bytes);
}

TEST_F(CatalogTest, MemtablesStayWithinTheMemoryAllowed) {
  catalog_.reset();
  catalog_ = OpenCatalog(dir_.path(), {.memory_bytes = 8 << 20});
  CatalogBatch batch;
  for (uint32_t extent = 0; extent < 64; ++extent) {
    for (uint32_t page = 0; page < 1000; ++page) PutInline(&batch, extent, page, std::string(1000, 'p'));
    Commit(&batch);
    EXPECT_LT(catalog_->stats().memory_bytes, 10u << 20) << extent;
  }
  EXPECT_GT(catalog_->stats().flush_bytes, 32u << 20);
}

}  // namespace
}  // namespace quarry::server
