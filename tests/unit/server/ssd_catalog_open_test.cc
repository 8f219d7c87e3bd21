// Which directories open, and what is said of those that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "rocksdb/db.h"
#include "server/ssd/catalog_format.h"
#include "tests/unit/server/catalog_testing.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;

// A directory's RocksDB, with all its families, past Catalog.
class Raw {
 public:
  explicit Raw(const std::string& dir) {
    std::vector<std::string> names;
    EXPECT_TRUE(rocksdb::DB::ListColumnFamilies(rocksdb::Options(), dir, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(rocksdb::Options(), dir, families, &families_, &db);
    EXPECT_TRUE(status.ok()) << status.ToString();
    db_.reset(db);
  }
  ~Raw() {
    for (rocksdb::ColumnFamilyHandle* family : families_) db_->DestroyColumnFamilyHandle(family);
  }
  void Put(CatalogFamily family, const std::string& key, const std::string& value) {
    EXPECT_TRUE(db_->Put(rocksdb::WriteOptions(), families_[static_cast<size_t>(family)], key, value).ok());
  }
  void Delete(const std::string& key) { EXPECT_TRUE(db_->Delete(rocksdb::WriteOptions(), key).ok()); }
  void AddFamily(const std::string& name) {
    rocksdb::ColumnFamilyHandle* family = nullptr;
    EXPECT_TRUE(db_->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), name, &family).ok());
    families_.push_back(family);
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
};

std::string ErrorOf(const std::string& dir, const CatalogOptions& options, absl::StatusCode code) {
  const auto catalog = Catalog::Open(dir, options);
  EXPECT_EQ(catalog.status().code(), code) << catalog.status();
  EXPECT_THAT(std::string(catalog.status().message()), HasSubstr(dir));
  return std::string(catalog.status().message());
}

// A catalog with one record, closed.
void MakeCatalog(const std::string& dir) {
  CatalogBatch batch;
  batch.Put(TestRecord(1, 2).fields);
  ASSERT_TRUE(OpenCatalog(dir)->Commit(&batch, true).ok());
}

// As a later version might leave it: with a family that this one does not know.
void MakeNewer(const std::string& dir) {
  MakeCatalog(dir);
  Raw raw(dir);
  raw.Put(CatalogFamily::kDefault, kCatalogFormatKey, EncodeFormat(Catalog::kFormatVersion + 1));
  raw.AddFamily("of_the_future");
}

// Names and bytes of a directory's files.
std::map<std::string, uintmax_t> Files(const std::string& dir) {
  std::map<std::string, uintmax_t> files;
  for (const auto& file : std::filesystem::directory_iterator(dir)) files[file.path()] = file.file_size();
  return files;
}

TEST(CatalogOpenTest, ANewerFormatIsRefusedAndLeftAsItIs) {
  TempDir dir;
  MakeNewer(dir.path());
  const auto before = Files(dir.path());
  for (const bool read_only : {false, true}) {
    const std::string error =
        ErrorOf(dir.path(), {.wipe_newer = read_only, .read_only = read_only}, absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error, HasSubstr("format 2"));
    EXPECT_THAT(error, HasSubstr("up to 1"));
    EXPECT_THAT(error, HasSubstr("--ssd-on-newer=wipe"));
  }
  EXPECT_EQ(Files(dir.path()), before);
}

TEST(CatalogOpenTest, ANewerFormatIsWipedOnRequest) {
  TempDir dir;
  MakeNewer(dir.path());
  {
    const auto catalog = OpenCatalog(dir.path(), {.wipe_newer = true});
    ASSERT_NE(catalog, nullptr);
    EXPECT_TRUE(catalog->wiped());
    EXPECT_TRUE(Records(*catalog).empty());
    CatalogBatch batch;
    batch.Put(TestRecord(3, 4).fields);
    ASSERT_TRUE(catalog->Commit(&batch, true).ok());
  }
  const auto catalog = OpenCatalog(dir.path(), {.wipe_newer = true});
  ASSERT_NE(catalog, nullptr);
  EXPECT_FALSE(catalog->wiped());
  EXPECT_THAT(Records(*catalog), ::testing::ElementsAre(TestRecord(3, 4)));
}

TEST(CatalogOpenTest, SomebodyElsesRocksDbIsRefused) {
  TempDir dir;
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, dir.path(), &db).ok());
  ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), "key", "value").ok());
  delete db;
  EXPECT_THAT(ErrorOf(dir.path(), {.wipe_newer = true}, absl::StatusCode::kFailedPrecondition),
              HasSubstr("not Quarry's catalog"));
}

TEST(CatalogOpenTest, ACatalogThatLostItsFormatIsRefused) {
  TempDir dir;
  MakeCatalog(dir.path());
  Raw(dir.path()).Delete(kCatalogFormatKey);
  EXPECT_THAT(ErrorOf(dir.path(), {.wipe_newer = true}, absl::StatusCode::kFailedPrecondition),
              HasSubstr("not Quarry's catalog"));
}

TEST(CatalogOpenTest, AFormatThatIsNoVersionIsRefused) {
  TempDir dir;
  MakeCatalog(dir.path());
  for (const std::string& value : {std::string(), std::string(4, '\0'), std::string("12345")}) {
    Raw(dir.path()).Put(CatalogFamily::kDefault, kCatalogFormatKey, value);
    EXPECT_THAT(ErrorOf(dir.path(), {.wipe_newer = true}, absl::StatusCode::kFailedPrecondition),
                HasSubstr("not Quarry's catalog"));
  }
}

TEST(CatalogOpenTest, ACatalogWhoseMakingWasCutShortIsMade) {
  TempDir dir;
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, dir.path(), &db).ok());
  rocksdb::ColumnFamilyHandle* first = nullptr;
  ASSERT_TRUE(db->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), kCatalogFamilyNames[1], &first).ok());
  db->DestroyColumnFamilyHandle(first);
  delete db;
  MakeCatalog(dir.path());
  EXPECT_THAT(Records(*OpenCatalog(dir.path())), ::testing::ElementsAre(TestRecord(1, 2)));
}

TEST(CatalogOpenTest, ASecondOpenInOneProcessFails) {
  TempDir dir;
  const auto first = OpenCatalog(dir.path());
  for (const bool read_only : {false, true}) {
    EXPECT_THAT(ErrorOf(dir.path(), {.read_only = read_only}, absl::StatusCode::kFailedPrecondition),
                HasSubstr("in use"));
  }
}

TEST(CatalogOpenTest, ReadOnlyReadsAndRefusesToWrite) {
  TempDir dir;
  MakeCatalog(dir.path());
  {
    const auto catalog = OpenCatalog(dir.path(), {.read_only = true});
    ASSERT_NE(catalog, nullptr);
    EXPECT_THAT(Records(*catalog), ::testing::ElementsAre(TestRecord(1, 2)));
    CatalogBatch batch;
    batch.Empty(1);
    EXPECT_TRUE(absl::IsFailedPrecondition(catalog->Commit(&batch, true)));
    ErrorOf(dir.path(), {}, absl::StatusCode::kFailedPrecondition);  // who reads keeps writers out
  }
  EXPECT_THAT(Records(*OpenCatalog(dir.path())), ::testing::ElementsAre(TestRecord(1, 2)));
}

TEST(CatalogOpenTest, ReadOnlyMakesNothing) {
  TempDir dir;
  ErrorOf(dir.path(), {.read_only = true}, absl::StatusCode::kNotFound);
  ErrorOf(dir.path() + "/missing", {.read_only = true}, absl::StatusCode::kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(CatalogOpenTest, ADirectoryThatCannotBeMadeIsNamed) {
  TempDir dir;
  ErrorOf(dir.path() + "/no/parent", {}, absl::StatusCode::kNotFound);
}

TEST(CatalogOpenTest, ValuesThatCannotBeReadAreCountedAndPassedOver) {
  TempDir dir;
  MakeCatalog(dir.path());
  const std::string record = EncodeRecord(TestRecord(1, 3).fields);
  uint64_t bad = 0;
  {
    Raw raw(dir.path());
    std::vector<std::string> values = {"", "garbage", record + std::string(40, 'h')};
    // Cut anywhere: without a hash at the longest.
    for (size_t bytes = 0; bytes <= record.size() - 32; ++bytes) values.push_back(record.substr(0, bytes));
    for (const size_t changed : {0, 1}) {  // version, flags
      values.push_back(record);
      values.back()[changed] = 2;
    }
    for (uint32_t i = 0; i < values.size(); ++i) raw.Put(CatalogFamily::kBlocks, PlaceKey(2, i), values[i]);
    raw.Put(CatalogFamily::kBlocks, "short", record);
    raw.Put(CatalogFamily::kBlocks, PlaceKey(2, 0) + "long", record);
    raw.Put(CatalogFamily::kBlocks, PlaceKey(9, 9), record);
    bad = values.size() + 2;
    raw.Put(CatalogFamily::kExtents, NumberKey(1), EncodeExtent({.number = 1, .generation = 5}) + "x");
    raw.Put(CatalogFamily::kExtents, NumberKey(2), EncodeExtent({.number = 2, .generation = 5}));
    raw.Put(CatalogFamily::kNamespaces, NumberKey(1), EncodeNamespace({.number = 1}));  // no valid spec
    raw.Put(CatalogFamily::kNamespaces, NumberKey(2), "\x01garbage of which no field can be made");
    raw.Put(CatalogFamily::kPayloads, PlaceKey(1, 1), "");
    raw.Put(CatalogFamily::kPayloads, PlaceKey(1, 2), "\x02payload");
  }
  const auto catalog = OpenCatalog(dir.path());
  uint64_t unreadable = 0;
  EXPECT_EQ(Places(Records(*catalog, &unreadable)), (std::vector<std::pair<uint32_t, uint32_t>>{{1, 2}, {9, 9}}));
  EXPECT_EQ(unreadable, bad);
  unreadable = 0;
  int visited = 0;
  ASSERT_TRUE(catalog->ForEachExtent([&visited](const CatalogExtent&) { ++visited; }, &unreadable).ok());
  EXPECT_EQ(visited, 1);
  EXPECT_EQ(unreadable, 1u);
  unreadable = 0;
  ASSERT_TRUE(catalog->ForEachNamespace([&visited](const CatalogNamespace&) { ++visited; }, &unreadable).ok());
  EXPECT_EQ(visited, 1);
  EXPECT_EQ(unreadable, 2u);
  for (const uint32_t page : {1u, 2u}) EXPECT_TRUE(absl::IsDataLoss(catalog->ReadPayload(1, page).status()));
}

}  // namespace
}  // namespace quarry::server
