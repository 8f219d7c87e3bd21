#include "server/grpc/admin_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/grpc/convert.h"
#include "server/grpc/request_target.h"
#include "server/grpc/ssd_convert.h"

namespace quarry::server {

absl::Status AdminCalls::Handle(const v1::GetConfigRequest&, v1::GetConfigResponse* response) {
  for (AdminHooks::ConfigValue& value : hooks_.config()) {
    v1::ConfigValue* out = response->add_values();
    out->set_name(std::move(value.name));
    out->set_value(std::move(value.value));
    out->set_given(value.given);
    out->set_reloadable(value.reloadable);
    out->set_help(std::move(value.help));
  }
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::ListNamespacesRequest& request, v1::ListNamespacesResponse* response) {
  for (const Namespace* ns : service_->namespaces().List()) {
    if (!request.tenant().empty() && request.tenant() != ns->tenant) continue;
    const NamespaceUse use = service_->store().use(*ns);
    v1::NamespaceUsage* out = response->add_namespaces();
    ToProto(*ns, out->mutable_namespace_());
    out->set_blocks(use.blocks);
    out->set_payload_bytes(use.payload_bytes);
    out->set_match_hashes(ns->match_hashes.load(std::memory_order_relaxed));
    out->set_match_hits(ns->match_hits.load(std::memory_order_relaxed));
    out->set_saved_tokens(ns->saved_tokens.load(std::memory_order_relaxed));
  }
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::SetNamespaceTtlRequest& request, v1::SetNamespaceTtlResponse*) {
  return service_->SetTtl(TenantOr(request.tenant()), request.namespace_(), request.ttl_ms());
}

absl::Status AdminCalls::Handle(const v1::FlushNamespaceRequest& request, v1::FlushNamespaceResponse* response) {
  const absl::StatusOr<uint64_t> blocks = service_->Flush(TenantOr(request.tenant()), request.namespace_());
  if (blocks.ok()) response->set_blocks(*blocks);
  return blocks.status();
}

absl::Status AdminCalls::Handle(const v1::RetireNamespaceRequest& request, v1::RetireNamespaceResponse* response) {
  const absl::StatusOr<uint64_t> blocks = service_->Retire(TenantOr(request.tenant()), request.namespace_());
  if (blocks.ok()) response->set_blocks(*blocks);
  return blocks.status();
}

absl::Status AdminCalls::Handle(const v1::PinRequest& request, v1::PinResponse* response) {
  const absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request);
  if (!target.ok()) return target.status();
  absl::StatusOr<PinnedBlocks> pinned = service_->store().Pin(*target->ns, target->group, target->hashes());
  if (!pinned.ok()) return pinned.status();
  response->set_pin(std::move(pinned->token));
  response->set_pinned(pinned->count);
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::UnpinRequest& request, v1::UnpinResponse*) {
  absl::Status status = service_->store().ReleaseLease(TenantOr(request.tenant()), request.pin());
  if (!status.ok()) status = absl::NotFoundError("pin: no such pin of this tenant");
  return status;
}

absl::Status AdminCalls::Handle(const v1::WarmRequest& request, v1::WarmResponse* response) {
  const absl::StatusOr<BlockTarget> target = BlocksOf(*service_, request);
  if (!target.ok()) return target.status();
  BlockStore& store = service_->store();
  store.Touch(*target->ns, target->group, target->hashes());
  const std::vector<BlockInfo> blocks = store.Lookup(*target->ns, target->group, target->hashes());
  std::string cold;
  for (const BlockInfo& block : blocks) {
    if (block.state == BlockState::kSsd) cold += block.hash;
    if (block.state == BlockState::kDram || block.state == BlockState::kSsd) {
      response->set_in_dram(response->in_dram() + 1);
    }
  }
  const ModelSpec& spec = target->ns->spec;
  for (uint32_t shard = 0; !cold.empty() && shard < spec.groups[target->group].shards; ++shard) {
    store.Load(*target->ns, target->group, shard, HashSpan(cold, spec.hash_bytes), [](size_t, const ReadResult&) {});
  }
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::DrainRequest&, v1::DrainResponse*) {
  hooks_.drain();
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::SetLogLevelRequest& request, v1::SetLogLevelResponse* response) {
  absl::StatusOr<std::string> before = hooks_.set_log_level(request.level());
  if (!before.ok()) return before.status();
  response->set_before(*std::move(before));
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::GetHealthRequest&, v1::GetHealthResponse* response) {
  AdminHooks::Health health = hooks_.health();
  response->set_ready(health.ready && !service_->draining());
  for (AdminHooks::Part& part : health.parts) {
    v1::PartHealth* out = response->add_parts();
    out->set_part(std::move(part.name));
    out->set_healthy(part.healthy);
    out->set_detail(std::move(part.detail));
  }
  return absl::OkStatus();
}

absl::Status AdminCalls::Handle(const v1::GetSsdRequest& request, v1::GetSsdResponse* response) {
  response->set_uptime_seconds(static_cast<double>(Clock::Real()->NowNs() - start_ns_) / 1e9);
  const SsdTier* ssd = service_->store().ssd();
  if (ssd == nullptr) return absl::OkStatus();
  for (const SsdDiskStats& stats : ssd->stats()) ToProto(stats, response->add_disks());
  if (!request.extents()) return absl::OkStatus();
  const std::vector<std::vector<SsdExtentInfo>> extents = ssd->extents();
  for (size_t disk = 0; disk < extents.size(); ++disk) {
    for (const SsdExtentInfo& extent : extents[disk]) {
      ToProto(extent, response->mutable_disks(static_cast<int>(disk))->add_extents());
    }
  }
  return absl::OkStatus();
}

}  // namespace quarry::server
