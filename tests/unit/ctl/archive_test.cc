// The file of quarryctl export: what is written is read, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "tools/quarryctl/archive/new_file.h"
#include "tools/quarryctl/archive/reader.h"
#include "tools/quarryctl/archive/writer.h"

namespace quarry::ctl {
namespace {

using testing::HasSubstr;

v1::NamespaceInfo Info() {
  v1::NamespaceInfo info;
  info.set_tenant("not kept");
  info.set_name("chat");
  v1::ModelSpec* spec = info.mutable_spec();
  spec->set_model("m");
  spec->set_hash_bytes(16);
  v1::GroupSpec* full = spec->add_groups();
  full->set_kind(v1::GROUP_KIND_FULL);
  full->set_tokens_per_block(16);
  full->set_shards(2);
  full->set_shard_bytes(200'000);
  v1::GroupSpec* state = spec->add_groups();
  state->set_kind(v1::GROUP_KIND_STATE);
  state->set_tokens_per_block(16);
  state->set_shards(1);
  state->set_shard_bytes(5);
  state->set_exact_bytes(true);
  return info;
}

std::string Hash(char c) { return std::string(16, c); }

std::string Payload(size_t bytes, char seed) {
  std::string payload(bytes, seed);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>(seed + i * 7 + i / 251);
  return payload;
}

std::vector<ShardRecord> SmallRecords() {
  return {{0, 0, 0, Hash('a'), "", "x", {}},
          {0, 1, 1, Hash('b'), Hash('a'), Payload(70, 'p'), {}},
          {1, 0, 7, Hash('s'), "", "state", {}}};
}

std::string Written(const std::vector<ShardRecord>& records, const v1::NamespaceInfo& info = Info()) {
  std::string file;
  auto writer = ArchiveWriter::Create(info, [&](absl::string_view bytes) {
    file.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  });
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const ShardRecord& record : records) EXPECT_TRUE(writer->Append(record).ok());
  EXPECT_TRUE(writer->Finish().ok());
  return file;
}

absl::Status Verify(const std::string& file) {
  std::istringstream input(file);
  return VerifyArchive(&input).status();
}

std::string Refusal(const std::string& file) {
  const absl::Status status = Verify(file);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(Archive, GivesBackWhatWasWritten) {
  std::vector<ShardRecord> records = SmallRecords();
  // Three chunks and a part of one; exactly one; a chunk and a byte.
  for (const size_t bytes : {200'000, 65'536, 65'537}) {
    records.push_back({0, 1, bytes, Hash('c'), "", Payload(bytes, 'q'), {}});
  }
  std::istringstream input(Written(records));
  auto reader = ArchiveReader::Open(&input);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->info().name(), "chat");
  EXPECT_EQ(reader->info().tenant(), "");
  EXPECT_EQ(reader->info().spec().SerializeAsString(), Info().spec().SerializeAsString());
  ShardRecord read;
  uint64_t bytes = 0;
  for (const ShardRecord& record : records) {
    const auto more = reader->Next(&read);
    ASSERT_TRUE(more.ok() && *more) << more.status();
    EXPECT_EQ(std::tie(read.group, read.shard, read.depth, read.hash, read.parent, read.payload),
              std::tie(record.group, record.shard, record.depth, record.hash, record.parent, record.payload));
    ASSERT_EQ(read.sums.size(), ChunkCount(record.payload.size()));
    EXPECT_EQ(read.sums[0], ChunkSum(record.payload.data(), std::min(kChunkBytes, record.payload.size())));
    bytes += record.payload.size();
  }
  const auto end = reader->Next(&read);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(*end);
  EXPECT_EQ(reader->totals(), (ArchiveTotals{records.size(), bytes}));
}

TEST(Archive, MayBeWithoutShards) { EXPECT_TRUE(Verify(Written({})).ok()); }

// The layout is a promise to later versions: a change here needs another version number.
TEST(Archive, HasTheLayoutOfItsComment) {
  const std::string file = Written({{0, 1, 0x0102, Hash('h'), Hash('p'), "xyz", {}}});
  EXPECT_EQ(file.substr(0, 8), "QRYBLKS\n");
  EXPECT_EQ(ReadUint32(file.substr(8)), 1u);
  const size_t info_bytes = ReadUint32(file.substr(12));
  EXPECT_EQ(ReadUint64(file.substr(16 + info_bytes)), ChunkSum(file.data(), 16 + info_bytes));
  const std::string record = file.substr(16 + info_bytes + 8);
  EXPECT_EQ(record.substr(0, 24), std::string("\1\0\x10\x10\1\0\0\0\2\1\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24));
  EXPECT_EQ(record.substr(24, 32), Hash('h') + Hash('p'));
  EXPECT_EQ(ReadUint64(record.substr(56)), ChunkSum("xyz", 3));
  EXPECT_EQ(ReadUint64(record.substr(64)), ChunkSum(record.data(), 64));
  EXPECT_EQ(record.substr(72, 3), "xyz");
  const std::string end = record.substr(75);
  EXPECT_EQ(end.substr(0, 24), std::string("\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24));
  const std::string chain = file.substr(16 + info_bytes, 8) + record.substr(64, 8);
  EXPECT_EQ(ReadUint64(end.substr(24)), ChunkSum(chain.data(), chain.size()));
  EXPECT_EQ(ReadUint64(end.substr(32)), ChunkSum(end.data(), 32));
  EXPECT_EQ(end.size(), 40u);
}

TEST(Archive, IsRefusedWhereverItIsCutOff) {
  const std::string file = Written(SmallRecords());
  for (size_t kept = 0; kept < file.size(); ++kept) {
    const std::string message = Refusal(file.substr(0, kept));
    EXPECT_THAT(message, HasSubstr(kept < 8 ? "not a file that quarryctl export" : "cut off")) << kept;
  }
}

TEST(Archive, IsRefusedWhicheverByteWasChanged) {
  const std::string file = Written(SmallRecords());
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int change : {0x01, 0x03, 0x80, 0xff}) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ change);
      EXPECT_TRUE(absl::IsInvalidArgument(Verify(changed))) << at << " ^ " << change;
    }
  }
}

TEST(Archive, IsRefusedWhenBytesWereAddedOrRecordsMoved) {
  const std::vector<ShardRecord> records = SmallRecords();
  const std::string file = Written(records);
  EXPECT_THAT(Refusal(file + '\0'), HasSubstr("more behind the end"));
  EXPECT_THAT(Refusal(file + file), HasSubstr("more behind the end"));
  // Records of one length each, taken out, doubled and swapped: each alone is right.
  const std::vector<ShardRecord> two = {{1, 0, 0, Hash('a'), "", "first", {}}, {1, 0, 1, Hash('b'), "", "other", {}}};
  const std::string both = Written(two);
  const size_t begin = Written({}).size() - 40;
  const size_t bytes = (both.size() - begin - 40) / 2;
  const std::string head = both.substr(0, begin);
  const std::string first = both.substr(begin, bytes);
  const std::string second = both.substr(begin + bytes, bytes);
  const std::string end = both.substr(both.size() - 40);
  ASSERT_TRUE(Verify(head + first + second + end).ok());
  for (const std::string& changed :
       {first, absl::StrCat(first, first), absl::StrCat(second, first), absl::StrCat(first, second, second)}) {
    EXPECT_THAT(Refusal(absl::StrCat(head, changed, end)), HasSubstr("the end tells of 2 shards"));
  }
}

TEST(Archive, OfAnotherKindIsSaidToBeNone) {
  for (const std::string& foreign : {std::string(""),
                                     std::string("\x7f"
                                                 "ELF"),
                                     std::string(4096, '\0'), std::string("{\"a\": 1}")}) {
    EXPECT_THAT(Refusal(foreign), HasSubstr("not a file that quarryctl export has written"));
  }
}

TEST(Archive, OfANewerVersionIsSaidToBeNewer) {
  std::string file = Written(SmallRecords());
  file[8] = 2;
  EXPECT_THAT(Refusal(file), HasSubstr("written by a newer quarryctl: format version 2, this one reads 1"));
  file[8] = 0;
  EXPECT_THAT(Refusal(file), HasSubstr("format version 0"));
}

TEST(Archive, ErrorsSayWhere) {
  std::string file = Written(SmallRecords());
  file[file.size() - 41] ^= 1;  // the last payload's last byte
  EXPECT_THAT(Refusal(file), HasSubstr(absl::StrCat("at byte ", file.size() - 40, ", behind 2 shards")));
}

// A record whose checksums hold and whose head says what it likes.
std::string WithHead(const RecordHead& head, const v1::NamespaceInfo& info = Info()) {
  std::string file = Written({}, info);
  file.resize(file.size() - 40);
  std::string record;
  AppendHead(head, &record);
  record.append(head.hash_bytes + head.parent_bytes, 'h');
  record.append(std::min<size_t>(ChunkCount(head.payload_bytes), 1 << 12) * kSumBytes, 's');
  AppendUint64(Sum(record), &record);
  return file + record;
}

TEST(Archive, RecordsThatTheSpecHasNotAreRefusedBeforeTheirBytesAreBelieved) {
  const RecordHead good{0, 0, 0, 16, 0, 200'000};
  EXPECT_THAT(Refusal(WithHead(good)), HasSubstr("cut off"));
  const std::vector<std::pair<RecordHead, std::string>> cases = {
      {{2, 0, 0, 16, 0, 5}, "group: 2, must be 0 to 1"},
      {{0, 2, 0, 16, 0, 5}, "shard: 2, must be 0 to 1"},
      {{0, 0, 0, 15, 0, 5}, "hash: 15, must be 16 to 16"},
      {{0, 0, 0, 0, 0, 5}, "hash: 0, must be 16 to 16"},
      {{0, 0, 0, 16, 17, 5}, "parent: 17 bytes, must be 0 or 16"},
      {{0, 0, 0, 16, 0, 0}, "payload: 0, must be 1 to 200000"},
      {{0, 0, 0, 16, 0, 200'001}, "payload: 200001, must be 1 to 200000"},
      {{0, 0, 0, 16, 0, ~0ull}, "payload: 18446744073709551615, must be 1 to 200000"},
      {{1, 0, 0, 16, 0, 4}, "payload: 4, must be 5 to 5"},
  };
  for (const auto& [head, message] : cases) EXPECT_THAT(Refusal(WithHead(head)), HasSubstr(message));
}

TEST(Archive, ALengthCostsNoMemoryBeforeItsBytesCome) {
  v1::NamespaceInfo info = Info();
  info.mutable_spec()->mutable_groups(0)->set_shard_bytes(64 << 20);
  const std::string file = WithHead({0, 0, 0, 16, 0, 64 << 20}, info);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT(Refusal(file), HasSubstr("cut off"));
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 8 << 10);  // KiB
}

TEST(Archive, SpecsBeyondTheBoundsAreNeitherWrittenNorRead) {
  const auto refusal = [](const v1::NamespaceInfo& info) {
    return std::string(
        ArchiveWriter::Create(info, [](absl::string_view) { return absl::OkStatus(); }).status().message());
  };
  v1::NamespaceInfo info = Info();
  info.mutable_spec()->mutable_groups(1)->set_shard_bytes((64 << 20) + 1);
  EXPECT_THAT(refusal(info), HasSubstr("spec.groups[1].shard_bytes: 67108865, must be 1 to 67108864"));
  info = Info();
  info.mutable_spec()->mutable_groups(0)->set_shards(257);
  EXPECT_THAT(refusal(info), HasSubstr("spec.groups[0].shards: 257, must be 1 to 256"));
  info = Info();
  info.mutable_spec()->set_hash_bytes(65);
  EXPECT_THAT(refusal(info), HasSubstr("spec.hash_bytes: 65, must be 1 to 64"));
  info = Info();
  info.mutable_spec()->clear_groups();
  EXPECT_THAT(refusal(info), HasSubstr("spec.groups: 0, must be 1 to 16"));
  info = Info();
  info.clear_name();
  EXPECT_THAT(refusal(info), HasSubstr("name: empty"));
  info = Info();
  info.set_name("\xff");
  EXPECT_THAT(refusal(info), HasSubstr("name or spec: a string in it is not UTF-8"));
  info = Info();
  info.mutable_spec()->set_model(std::string(70'000, 'm'));
  EXPECT_THAT(refusal(info), HasSubstr("a file takes at most 65536"));
}

TEST(Archive, AShardThatTheSpecHasNotIsNotWritten) {
  auto writer = ArchiveWriter::Create(Info(), [](absl::string_view) { return absl::OkStatus(); });
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(writer->Append({3, 0, 0, Hash('a'), "", "x", {}})));
  EXPECT_TRUE(absl::IsInvalidArgument(writer->Append({1, 0, 0, Hash('a'), "", "four", {}})));
  EXPECT_EQ(writer->totals().records, 0u);
}

class NewFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/quarry-ctl-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Content() const {
    std::ifstream input(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>());
  }
  auto Files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  std::string folder_;
  std::string path_;
};

TEST_F(NewFileTest, HasItsNameOnceItIsComplete) {
  std::ofstream(path_) << "before";
  {
    auto file = NewFile::Create(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("after").ok());
    EXPECT_EQ(Content(), "before");
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(Content(), "after");
  }
  EXPECT_EQ(Content(), "after");
  EXPECT_EQ(Files(), 1);
}

TEST_F(NewFileTest, LeavesNothingWhenItIsGivenUp) {
  {
    auto file = NewFile::Create(path_);
    ASSERT_TRUE(file.ok() && file->Append("half").ok());
    EXPECT_EQ(Files(), 1);
  }
  EXPECT_EQ(Files(), 0);
}

TEST_F(NewFileTest, ReplacesFilesOnly) {
  EXPECT_THAT(std::string(NewFile::Create(folder_).status().message()), HasSubstr("is not a file"));
  EXPECT_THAT(std::string(NewFile::Create(folder_ + "/none/file").status().message()), HasSubstr("No such file"));
}

}  // namespace
}  // namespace quarry::ctl
