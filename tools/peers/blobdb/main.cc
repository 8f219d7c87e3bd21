// peer-load-blobdb: a BlobDB in this process, which its threads write to and read from: no server
// and no network. Every connection is a thread.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/clock.h"
#include "tools/bench/block_content.h"
#include "tools/peers/blobdb/blob_db.h"
#include "tools/peers/peer.h"

namespace quarry::peers {
namespace {

class BlobDbPeer : public Peer {
 public:
  BlobDbPeer(const LoadOptions& options, std::shared_ptr<BlobDb> db) : options_(options), db_(std::move(db)) {}

  // Ends when what this thread has put is on the disk.
  void Put(absl::Span<const Batch> batches, Outcome* outcome) override {
    Transfer(batches, &BlobDb::Put, outcome);
    if (absl::Status status = db_->Flush(); !status.ok()) outcome->AddError(status.message());
  }

  void Get(absl::Span<const Batch> batches, Outcome* outcome) override { Transfer(batches, &BlobDb::Get, outcome); }

  absl::StatusOr<uint64_t> CountPresent(absl::string_view keys, uint32_t count) override {
    uint64_t present = 0;
    std::vector<std::byte> value(options_.block_bytes);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string key(keys.substr(i * bench::kHashBytes, bench::kHashBytes));
      std::byte* const to = value.data();
      const absl::Status status = db_->Get({&key, 1}, {&to, 1}, value.size());
      if (!status.ok() && !absl::IsNotFound(status)) return status;
      present += status.ok();
    }
    return present;
  }

  absl::Status Forget(absl::Span<const uint64_t>) override { return db_->Clear(); }

 private:
  using Operation = absl::Status (BlobDb::*)(absl::Span<const std::string>, absl::Span<std::byte* const>, size_t);

  // At most LoadOptions::window blocks at once.
  void Transfer(absl::Span<const Batch> batches, Operation operation, Outcome* outcome) {
    for (const Batch& batch : batches) {
      const size_t most = options_.window == 0 ? batch.ids.size() : options_.window;
      const int64_t begin_ns = Clock::Real()->NowNs();
      for (size_t first = 0; first < batch.ids.size(); first += most) {
        const size_t count = std::min(most, batch.ids.size() - first);
        std::vector<std::string> keys(count);
        for (size_t i = 0; i < count; ++i) keys[i] = bench::HashOf(batch.ids[first + i]);
        const absl::Status status =
            (*db_.*operation)(keys, absl::MakeConstSpan(batch.buffers).subspan(first, count), options_.block_bytes);
        if (!status.ok()) {
          outcome->AddError(status.message());
        } else {
          outcome->blocks += count;
        }
      }
      outcome->latencies.Add(Clock::Real()->NowNs() - begin_ns);
    }
  }

  const LoadOptions& options_;
  const std::shared_ptr<BlobDb> db_;
};

}  // namespace
}  // namespace quarry::peers

int main(int argc, char** argv) {
  using quarry::peers::BlobDb;
  std::shared_ptr<BlobDb> db;
  return quarry::peers::RunLoad(argc, argv, "peer-load-blobdb",
                                [&db](const quarry::peers::LoadOptions& options,
                                      absl::Span<std::byte>) -> absl::StatusOr<std::unique_ptr<quarry::peers::Peer>> {
                                  if (options.dir.empty()) return absl::InvalidArgumentError("--dir is required");
                                  if (db == nullptr) {
                                    auto opened = BlobDb::Open(options.dir, options.wal);
                                    if (!opened.ok()) return opened.status();
                                    db = *std::move(opened);
                                  }
                                  return std::make_unique<quarry::peers::BlobDbPeer>(options, db);
                                });
}
