// peer-load-redis: pipelined SET, GET and EXISTS of the Redis protocol over a plain socket.
//
// No client library is in between, because none reads a reply straight into the caller's
// buffer: here the payload of a SET is written from where it lies, and that of a GET read to
// where it belongs, without a copy.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"
#include "tools/peers/peer.h"
#include "tools/peers/redis_stream.h"

namespace quarry::peers {
namespace {

using bench::kHashBytes;

class RedisPeer : public Peer {
 public:
  static absl::StatusOr<std::unique_ptr<Peer>> Create(const LoadOptions& options, absl::Span<std::byte>) {
    auto stream = RedisStream::Connect(options.server);
    if (!stream.ok()) return stream.status();
    return std::unique_ptr<Peer>(new RedisPeer(options, *std::move(stream)));
  }

  void Put(absl::Span<const Batch> batches, Outcome* outcome) override { Transfer(true, batches, outcome); }
  void Get(absl::Span<const Batch> batches, Outcome* outcome) override { Transfer(false, batches, outcome); }

  absl::StatusOr<uint64_t> CountPresent(absl::string_view keys, uint32_t count) override {
    std::string command = absl::StrCat("*", count + 1, "\r\n$6\r\nEXISTS\r\n");
    for (uint32_t i = 0; i < count; ++i) {
      absl::StrAppend(&command, "$", kHashBytes, "\r\n", keys.substr(i * kHashBytes, kHashBytes), "\r\n");
    }
    if (absl::Status status = stream_->Send(command); !status.ok()) return status;
    return stream_->ReceiveNumber(':');
  }

  absl::Status Forget(absl::Span<const uint64_t> ids) override {
    for (const uint64_t id : ids) {
      if (absl::Status status = stream_->Send(Command("DEL", id)); !status.ok()) return status;
      if (auto deleted = stream_->ReceiveNumber(':'); !deleted.ok()) return deleted.status();
    }
    return absl::OkStatus();
  }

 private:
  RedisPeer(const LoadOptions& options, std::unique_ptr<RedisStream> stream)
      : options_(options), stream_(std::move(stream)) {}

  static std::string Command(absl::string_view name, uint64_t id) {
    return absl::StrCat("*2\r\n$", name.size(), "\r\n", name, "\r\n$", kHashBytes, "\r\n", bench::HashOf(id), "\r\n");
  }

  // A command is sent as soon as the window has room; replies come in order.
  void Transfer(bool put, absl::Span<const Batch> batches, Outcome* outcome) {
    const uint64_t calls = uint64_t{options_.batch} * options_.inflight;
    const uint64_t most = options_.window == 0 ? calls : std::min<uint64_t>(calls, options_.window);
    Place sent, received;
    std::vector<int64_t> begun_ns(batches.size());
    uint64_t under_way = 0;
    while (received.batch < batches.size()) {
      while (sent.batch < batches.size() && under_way < most) {
        if (sent.block == 0) begun_ns[sent.batch] = Clock::Real()->NowNs();
        if (absl::Status status = SendOne(put, batches[sent.batch], sent.block); !status.ok()) {
          return outcome->AddError(status.message());
        }
        sent.Advance(batches);
        ++under_way;
      }
      const size_t batch = received.batch;
      if (absl::Status status = ReceiveOne(put, batches[batch], received.block, outcome); !status.ok()) {
        return outcome->AddError(status.message());
      }
      received.Advance(batches);
      --under_way;
      if (received.batch != batch) outcome->latencies.Add(Clock::Real()->NowNs() - begun_ns[batch]);
    }
  }

  // Which block of which batch.
  struct Place {
    size_t batch = 0;
    size_t block = 0;
    void Advance(absl::Span<const Batch> batches) {
      if (++block < batches[batch].ids.size()) return;
      block = 0;
      ++batch;
    }
  };

  absl::Status SendOne(bool put, const Batch& batch, size_t block) {
    if (!put) return stream_->Send(Command("GET", batch.ids[block]));
    const std::string header = absl::StrCat("*3\r\n$3\r\nSET\r\n$", kHashBytes, "\r\n", bench::HashOf(batch.ids[block]),
                                            "\r\n$", options_.block_bytes, "\r\n");
    return stream_->Send(header, {batch.buffers[block], options_.block_bytes}, "\r\n");
  }

  absl::Status ReceiveOne(bool put, const Batch& batch, size_t block, Outcome* outcome) {
    if (put) {
      const auto line = stream_->ReceiveLine();
      if (!line.ok()) return line.status();
      *line == "+OK" ? ++outcome->blocks : (outcome->AddError(*line), 0);
      return absl::OkStatus();
    }
    const auto bytes = stream_->ReceiveNumber('$');
    if (!bytes.ok()) return bytes.status();
    if (*bytes != options_.block_bytes) {
      return absl::DataLossError(absl::StrCat("a value of ", *bytes, " bytes instead of ", options_.block_bytes));
    }
    if (absl::Status status = stream_->ReceiveInto({batch.buffers[block], options_.block_bytes}); !status.ok()) {
      return status;
    }
    ++outcome->blocks;
    return absl::OkStatus();
  }

  const LoadOptions& options_;
  std::unique_ptr<RedisStream> stream_;
};

}  // namespace
}  // namespace quarry::peers

int main(int argc, char** argv) {
  return quarry::peers::RunLoad(argc, argv, "peer-load-redis", quarry::peers::RedisPeer::Create);
}
