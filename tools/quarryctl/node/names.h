// What quarryctl calls the protocol's enums: "never_stored" for MISS_CAUSE_NEVER_STORED.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_NAMES_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_NAMES_H_

#include <string>

#include "quarry/v1/cache.pb.h"
#include "quarry/v1/types.pb.h"

namespace quarry::ctl {

// A value that this program does not know is its number.
std::string Name(v1::BlockState state);
std::string Name(v1::MissCause cause);
std::string Name(v1::RefusalReason reason);
std::string Name(v1::GroupKind kind);
std::string Name(v1::WatchEvent::Kind kind);
std::string Name(v1::PutResponse::Outcome::Kind kind);

// Whether a block in this state can be read.
inline bool IsThere(v1::BlockState state) { return state == v1::BLOCK_STATE_DRAM || state == v1::BLOCK_STATE_SSD; }

// A sentence that says why a block is not served, and one that says what to do.
std::string WhyMissing(v1::MissCause cause);
std::string WhatToDo(v1::MissCause cause);

// "full, 16 tokens a block, 1 shard of 128KiB".
std::string Describe(const v1::GroupSpec& group);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_NAMES_H_
