// Makes an --ssd-dir as if that many blocks of 64 KiB had been spilled to it, without writing their
// payload: for starts with large catalogs.
//
// usage: many_records DIR RECORDS
//
// The blocks belong to namespace "many" of the tenant "default"; their payload reads as zeros, so no
// block that is asked for comes back. Prints how many bytes the extents have together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "common/net/socket.h"
#include "server/ssd/catalog.h"
#include "server/ssd/extent_files.h"
#include "server/ssd/record_header.h"

namespace {

using namespace quarry;          // NOLINT
using namespace quarry::server;  // NOLINT

constexpr uint64_t kPayloadBytes = 64 << 10;
constexpr uint64_t kExtentBytes = 1 << 30;
constexpr uint64_t kTogether = 10'000;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "many_records: %s\n", status.ToString().c_str());
  std::exit(1);
}

CatalogNamespace Many() {
  CatalogNamespace ns;
  ns.number = 1;
  ns.tenant = "default";
  ns.name = "many";
  ns.spec.engine = "test";
  ns.spec.model = "m";
  ns.spec.kv_dtype = "bfloat16";
  ns.spec.hash_scheme = "numbers";
  ns.spec.hash_bytes = 32;
  ns.spec.layers = 1;
  ns.spec.groups.push_back({GroupKind::kFull, 16, 0, 1, kPayloadBytes, false});
  return ns;
}

void MakeSparse(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(kExtentBytes)) != 0) Check(absl::ErrnoToStatus(errno, path));
}

uint64_t Fill(const std::string& dir, uint64_t records) {
  std::filesystem::create_directories(dir + "/extents");
  auto catalog = Catalog::Open(dir + "/catalog", {});
  Check(catalog.status());
  const uint64_t of_one = kExtentBytes / RecordBytes(kPayloadBytes);
  CatalogBatch batch;
  batch.Put(Many());
  uint32_t extent = 0;
  for (uint64_t id = 0; id < records; ++id) {
    if (id % of_one == 0) {
      ++extent;
      MakeSparse(ExtentPath(dir + "/extents", extent));
      batch.Put(CatalogExtent{extent, extent});
    }
    std::string hash(32, '\0');
    const uint64_t words[4] = {id, id * 0x9E3779B97F4A7C15u, id ^ 0xC2B2AE3D27D4EB4Fu, ~id};
    std::memcpy(hash.data(), words, sizeof words);
    CatalogRecord record;
    record.extent = extent;
    record.page = static_cast<uint32_t>(id % of_one * RecordBytes(kPayloadBytes) / kPageBytes);
    record.ns = 1;
    record.depth = static_cast<uint32_t>(id % 100);
    record.payload_bytes = kPayloadBytes;
    record.hash = hash;
    batch.Put(record);
    if (id % kTogether == kTogether - 1) Check((*catalog)->Commit(&batch, false));
  }
  Check((*catalog)->Commit(&batch, true));
  return extent * kExtentBytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::strtoull(argv[2], nullptr, 10) == 0) {
    std::fprintf(stderr, "usage: many_records DIR RECORDS\n");
    return 2;
  }
  std::printf("%llu\n", static_cast<unsigned long long>(Fill(argv[1], std::strtoull(argv[2], nullptr, 10))));
  return 0;
}
