// The fields of every message with their numbers in transfer.proto, once for both
// directions: Fields(coder, message) calls coder.Field(number, member) for each.
#ifndef QUARRY_COMMON_SESSION_FIELDS_H_
#define QUARRY_COMMON_SESSION_FIELDS_H_

#include <concepts>
#include <type_traits>

#include "common/session/messages.h"

namespace quarry::wire {

// The field number of a body in its envelope: they are in the variant in the same order.
constexpr uint32_t BodyTag(size_t variant_index) { return static_cast<uint32_t>(variant_index) + 1; }

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <typename T>
concept Message = std::is_class_v<T>;

// A message, const when it is encoded.
template <typename M, typename T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

void Fields(auto& coder, Is<GroupSpec> auto& m) {
  coder.Field(1, m.kind);
  coder.Field(2, m.tokens_per_block);
  coder.Field(3, m.window_tokens);
  coder.Field(4, m.shards);
  coder.Field(5, m.shard_bytes);
  coder.Field(6, m.exact_bytes);
}

void Fields(auto& coder, Is<ModelSpec> auto& m) {
  coder.Field(1, m.engine);
  coder.Field(2, m.layout);
  coder.Field(3, m.model);
  coder.Field(4, m.weights_revision);
  coder.Field(5, m.adapter_digest);
  coder.Field(6, m.kv_dtype);
  coder.Field(7, m.quantization);
  coder.Field(8, m.hash_scheme);
  coder.Field(9, m.hash_seed);
  coder.Field(10, m.hash_bytes);
  coder.Field(11, m.allow_short_hashes);
  coder.Field(12, m.layers);
  coder.Field(13, m.groups);
}

void Fields(auto& coder, Is<Hello> auto& m) {
  coder.Field(1, m.major);
  coder.Field(2, m.minor);
  coder.Field(3, m.client);
  coder.Field(4, m.credential);
}

void Fields(auto& coder, Is<DataHello> auto& m) {
  coder.Field(1, m.major);
  coder.Field(2, m.minor);
  coder.Field(3, m.session);
  coder.Field(4, m.shared_memory);
  coder.Field(5, m.ucx);
}

void Fields(auto& coder, Is<OpenNamespace> auto& m) {
  coder.Field(1, m.name);
  coder.Field(2, m.spec);
  coder.Field(3, m.sibling_on_mismatch);
  coder.Field(4, m.ttl_ms);
}

void Fields(auto& coder, Is<ChainPart> auto& m) {
  coder.Field(1, m.group);
  coder.Field(2, m.first_block);
  coder.Field(3, m.hashes);
}

void Fields(auto& coder, Is<Match> auto& m) {
  coder.Field(1, m.handle);
  coder.Field(2, m.local_tokens);
  coder.Field(3, m.chains);
  coder.Field(4, m.lease_ms);
  coder.Field(5, m.no_touch);
  coder.Field(6, m.prefetch_shards);
}

void Fields(auto& coder, Is<GetRun> auto& m) {
  coder.Field(1, m.group);
  coder.Field(2, m.shard);
  coder.Field(3, m.hashes);
  coder.Field(4, m.offset);
  coder.Field(5, m.bytes);
}

void Fields(auto& coder, Is<Get> auto& m) {
  coder.Field(1, m.handle);
  coder.Field(2, m.runs);
  coder.Field(3, m.lease);
  coder.Field(4, m.deadline_ms);
  coder.Field(5, m.priority);
  coder.Field(6, m.wait_in_flight);
  coder.Field(7, m.credit_bytes);
}

void Fields(auto& coder, Is<Credit> auto& m) { coder.Field(1, m.bytes); }

void Fields(auto& coder, Is<FetchPrefix> auto& m) {
  coder.Field(1, m.match);
  coder.Field(2, m.shards);
  coder.Field(3, m.max_blocks);
  coder.Field(4, m.min_blocks);
  coder.Field(5, m.deadline_ms);
  coder.Field(6, m.priority);
}

void Fields(auto& coder, Is<PutRun> auto& m) {
  coder.Field(1, m.group);
  coder.Field(2, m.shard);
  coder.Field(3, m.first_block);
  coder.Field(4, m.hashes);
  coder.Field(5, m.parent);
  coder.Field(6, m.bytes);
}

void Fields(auto& coder, Is<Put> auto& m) {
  coder.Field(1, m.handle);
  coder.Field(2, m.runs);
  coder.Field(3, m.deadline_ms);
  coder.Field(4, m.priority);
  coder.Field(5, m.retain_ms);
  coder.Field(6, m.no_ssd);
  coder.Field(7, m.wait_in_flight);
}

void Fields(auto& coder, Is<RenewLease> auto& m) {
  coder.Field(1, m.lease);
  coder.Field(2, m.lease_ms);
}

void Fields(auto& coder, Is<ReleaseLease> auto& m) { coder.Field(1, m.lease); }

void Fields(auto& coder, Is<Touch> auto& m) {
  coder.Field(1, m.handle);
  coder.Field(2, m.chains);
}

void Fields(auto& coder, Is<Delivered> auto& m) {
  coder.Field(1, m.items);
  coder.Field(2, m.bytes);
  coder.Field(3, m.corrupt_items);
}

void Fields(auto& coder, Is<Error> auto& m) {
  coder.Field(1, m.code);
  coder.Field(2, m.message);
  coder.Field(3, m.differing_fields);
}

void Fields(auto& coder, Is<Limits> auto& m) {
  coder.Field(1, m.max_items);
  coder.Field(2, m.max_lease_ms);
  coder.Field(3, m.max_message_bytes);
  coder.Field(4, m.max_data_streams);
  coder.Field(5, m.max_namespaces);
  coder.Field(6, m.max_requests);
}

void Fields(auto& coder, Is<HelloReply> auto& m) {
  coder.Field(1, m.major);
  coder.Field(2, m.minor);
  coder.Field(3, m.session);
  coder.Field(4, m.limits);
  coder.Field(5, m.node);
  coder.Field(6, m.socket);
  coder.Field(7, m.ucx);
}

void Fields(auto& coder, Is<NamespaceReply> auto& m) {
  coder.Field(1, m.handle);
  coder.Field(2, m.id);
  coder.Field(3, m.name);
  coder.Field(4, m.differing_fields);
  coder.Field(5, m.ttl_ms);
}

void Fields(auto& coder, Is<ChainState> auto& m) {
  coder.Field(1, m.states);
  coder.Field(2, m.first_usable);
  coder.Field(3, m.end_usable);
}

void Fields(auto& coder, Is<MatchReply> auto& m) {
  coder.Field(1, m.usable_tokens);
  coder.Field(2, m.chains);
  coder.Field(3, m.first_miss);
  coder.Field(4, m.first_miss_chain);
  coder.Field(5, m.first_miss_block);
  coder.Field(6, m.lease);
  coder.Field(7, m.lease_ms);
  coder.Field(8, m.fetched_blocks);
  coder.Field(9, m.lease_limit);
}

void Fields(auto& coder, Is<GetProgress> auto& m) {
  coder.Field(1, m.missed_items);
  coder.Field(2, m.causes);
  coder.Field(3, m.done);
  coder.Field(4, m.dropped_items);
}

void Fields(auto& coder, Is<PutProgress> auto& m) {
  coder.Field(1, m.items);
  coder.Field(2, m.outcomes);
  coder.Field(3, m.reasons);
  coder.Field(4, m.done);
}

void Fields(auto& coder, Is<LeaseReply> auto& m) { coder.Field(1, m.lease_ms); }

void Fields(auto& coder, Is<View> auto& m) {
  coder.Field(1, m.digest);
  coder.Field(2, m.nodes);
}

// Cancel, GetView, Draining, Ack.
template <typename M>
requires std::is_empty_v<M>
void Fields(auto&, M&) {}

}  // namespace quarry::wire

#endif  // QUARRY_COMMON_SESSION_FIELDS_H_
