#include "absl/strings/str_cat.h"
#include "tools/bench/data_client.h"
#include "tools/bench/workload.h"

namespace quarry::bench {
namespace {

class DataWorkload : public Workload {
 public:
  explicit DataWorkload(std::vector<std::unique_ptr<DataClient>> clients) : clients_(std::move(clients)) {}

  Slice Run(int64_t duration_ns) override { return RunClients(clients_, duration_ns); }

 private:
  std::vector<std::unique_ptr<DataClient>> clients_;
};

}  // namespace

absl::Status CheckSizes(const TransferOptions& options, uint64_t blocks) {
  const uint64_t under_way = uint64_t{options.inflight} * options.batch;
  const uint64_t pieces = (options.block_bytes + options.segment_bytes - 1) / options.segment_bytes;
  if (options.block_bytes % 8 != 0 || options.segment_bytes % 8 != 0) {
    return absl::InvalidArgumentError("--block and --segment must be multiples of 8 bytes");
  }
  if (options.arena_bytes / options.clients / options.segment_bytes < under_way * pieces) {
    return absl::InvalidArgumentError(absl::StrCat("--arena must hold --clients x --inflight x --batch blocks: ",
                                                   options.clients * under_way * pieces * options.segment_bytes,
                                                   " bytes at least"));
  }
  if (options.op != TransferOp::kPut && blocks < uint64_t{options.batch} * 2) {
    return absl::InvalidArgumentError("--working-set must hold at least twice --batch blocks");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Workload>> MakeDataWorkload(const TransferOptions& options, const std::string& server) {
  const uint64_t blocks = options.working_set_bytes / options.block_bytes;
  if (absl::Status status = CheckSizes(options, blocks); !status.ok()) return status;
  std::vector<std::unique_ptr<DataClient>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) {
    auto client = DataClient::Create(options, server, i, blocks);
    if (!client.ok()) return client.status();
    clients.push_back(*std::move(client));
  }
  if (options.op != TransferOp::kPut) {
    std::vector<absl::Status> filled(clients.size());
    InParallel(clients.size(), [&](size_t i) {
      filled[i] = FillServer(clients[i]->client(), clients[i]->ns(), i, blocks, clients.size());
    });
    for (const absl::Status& status : filled) {
      if (!status.ok()) return status;
    }
  }
  return std::unique_ptr<Workload>(new DataWorkload(std::move(clients)));
}

}  // namespace quarry::bench
