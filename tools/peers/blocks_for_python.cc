// What load programs in Python need of block_content.h, by ctypes: content is written and
// checked at memory speed, as it is for the others.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tools/bench/block_content.h"

#define QUARRY_PEERS_API extern "C" __attribute__((visibility("default")))

QUARRY_PEERS_API void fill_block(uint64_t id, void* block, uint64_t bytes) {
  quarry::bench::FillBlock(id, quarry::SegmentList{{.base = static_cast<std::byte*>(block), .length = bytes}});
}

QUARRY_PEERS_API void poison_block(void* block, uint64_t bytes) {
  quarry::bench::PoisonBlock(quarry::SegmentList{{.base = static_cast<std::byte*>(block), .length = bytes}});
}

QUARRY_PEERS_API uint64_t wrong_bytes(uint64_t id, void* block, uint64_t bytes) {
  return quarry::bench::WrongBytes(id, quarry::SegmentList{{.base = static_cast<std::byte*>(block), .length = bytes}});
}
