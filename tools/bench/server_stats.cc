#include "tools/bench/server_stats.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "quarry/v1/cache.grpc.pb.h"

namespace quarry::bench {
namespace {
constexpr std::chrono::seconds kTimeout(10);
}

absl::StatusOr<ServerStats> FetchServerStats(const std::string& grpc_address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel = grpc::CreateCustomChannel(grpc_address, grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  v1::StatsResponse response;
  const grpc::Status status = v1::Cache::NewStub(channel)->Stats(&context, {}, &response);
  if (!status.ok())
    return absl::UnavailableError(absl::StrCat("Stats of ", grpc_address, ": ", status.error_message()));

  ServerStats stats;
  stats.arena_bytes = response.arena_bytes();
  stats.blocks = response.blocks();
  stats.index_bytes = response.index_bytes();
  stats.evicted_blocks = response.evicted_blocks();
  uint64_t slots = 0, slabs = 0, all_slabs = 0;
  for (const v1::SizeClassStats& size_class : response.size_classes()) {
    all_slabs += size_class.slabs();
    if (size_class.used_slots() + size_class.free_slots() <= slots) continue;
    slots = size_class.used_slots() + size_class.free_slots();
    slabs = size_class.slabs();
    stats.slot_bytes = size_class.slot_bytes();
  }
  // Slabs that no class has taken yet would give as many slots each as those that one has.
  if (slabs > 0) {
    const uint64_t slots_per_slab = slots / slabs;
    const uint64_t slab_bytes = slots_per_slab * stats.slot_bytes;
    stats.capacity_slots = std::max(all_slabs, response.arena_bytes() / slab_bytes) * slots_per_slab;
  }
  return stats;
}

}  // namespace quarry::bench
