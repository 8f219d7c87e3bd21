#include "tools/quarryctl/node/names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/units.h"

namespace quarry::ctl {
namespace {

std::string Short(const std::string& name, absl::string_view prefix, int number) {
  if (name.empty()) return absl::StrCat(number);
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

}  // namespace

std::string Name(v1::BlockState state) { return Short(v1::BlockState_Name(state), "BLOCK_STATE_", state); }
std::string Name(v1::MissCause cause) { return Short(v1::MissCause_Name(cause), "MISS_CAUSE_", cause); }
std::string Name(v1::RefusalReason reason) { return Short(v1::RefusalReason_Name(reason), "REFUSAL_REASON_", reason); }
std::string Name(v1::GroupKind kind) { return Short(v1::GroupKind_Name(kind), "GROUP_KIND_", kind); }
std::string Name(v1::WatchEvent::Kind kind) { return Short(v1::WatchEvent::Kind_Name(kind), "KIND_", kind); }
std::string Name(v1::PutResponse::Outcome::Kind kind) {
  return Short(v1::PutResponse::Outcome::Kind_Name(kind), "KIND_", kind);
}

std::string WhyMissing(v1::MissCause cause) {
  switch (cause) {
    case v1::MISS_CAUSE_NEVER_STORED:
      return "no engine has stored it since the node started, or so long ago that the node does not remember";
    case v1::MISS_CAUSE_EVICTED:
      return "it was stored, and evicted to make room";
    case v1::MISS_CAUSE_INCOMPLETE:
      return "some of its shards were never stored";
    case v1::MISS_CAUSE_IN_FLIGHT:
      return "it is being stored right now";
    case v1::MISS_CAUSE_REFUSED:
      return "a put of it was refused lately, or did not end";
    case v1::MISS_CAUSE_RETIRED:
      return "it was removed, or its namespace was flushed or retired";
    case v1::MISS_CAUSE_NODE_LOST:
      return "the node or the disk that held it is gone";
    case v1::MISS_CAUSE_CORRUPT:
      return "its checksum did not hold, and the copy was dropped";
    default:
      return "the node gives no reason";
  }
}

std::string WhatToDo(v1::MissCause cause) {
  switch (cause) {
    case v1::MISS_CAUSE_NEVER_STORED:
      return "check that the engine stores at all (quarryctl stats) and that its hash scheme, hash seed, block size "
             "and namespace are those of this one";
    case v1::MISS_CAUSE_EVICTED:
      return "give the node more memory, or pin what must stay (quarryctl pin)";
    case v1::MISS_CAUSE_INCOMPLETE:
      return "check that every rank of the engine runs and stores its shard";
    case v1::MISS_CAUSE_IN_FLIGHT:
      return "ask again when the put has ended";
    case v1::MISS_CAUSE_REFUSED:
      return "see the refusals by reason (quarryctl stats), and let the engine store it again";
    case v1::MISS_CAUSE_RETIRED:
      return "let the engine store it again";
    case v1::MISS_CAUSE_NODE_LOST:
      return "let the engine store it again, once the node is back";
    case v1::MISS_CAUSE_CORRUPT:
      return "let the engine store it again; if it recurs, test the machine's memory";
    default:
      return "see the node's log";
  }
}

std::string Describe(const v1::GroupSpec& group) {
  return absl::StrCat(Name(group.kind()), ", ", group.tokens_per_block(), " tokens a block, ", group.shards(),
                      group.shards() == 1 ? " shard of " : " shards of ", group.exact_bytes() ? "" : "at most ",
                      FormatBytes(group.shard_bytes()));
}

}  // namespace quarry::ctl
