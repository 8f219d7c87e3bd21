// How the catalog's keys and values lie on the disk.
//
// Keys: numbers of 4 bytes, big-endian. Values: a byte with the version of their kind, then
// numbers, little-endian, in this order:
//
//   format     u32 version of the catalog as a whole; alone without a version byte
//   namespace  u64 ttl_ms, u16 bytes of tenant, tenant, u16 bytes of name, name, and to the
//              end the spec as types.proto has it
//   extent     u64 generation
//   record     u8 flags, u8 group, u16 shard, u32 ns, u32 depth, u32 payload_bytes,
//              i64 stored_at_ms, u64 root, and to the end the hash
//   payload    header and payload
#ifndef QUARRY_SERVER_SSD_CATALOG_FORMAT_H_
#define QUARRY_SERVER_SSD_CATALOG_FORMAT_H_

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/ssd/catalog.h"

namespace quarry::server {

// In the order in which they are created: RocksDB numbers them so.
enum class CatalogFamily : uint8_t { kDefault, kNamespaces, kExtents, kBlocks, kPayloads };
inline constexpr const char* kCatalogFamilyNames[] = {"default", "namespaces", "extents", "blocks", "payloads"};
inline constexpr size_t kCatalogFamilies = std::size(kCatalogFamilyNames);

inline constexpr const char* kCatalogFormatKey = "format";
inline constexpr char kPayloadVersion = 1;

std::string NumberKey(uint32_t number);  // of a namespace or an extent
std::string PlaceKey(uint32_t extent, uint32_t page);
// The least key behind all that NumberKey(number) begins.
std::string KeyBehind(uint32_t number);

std::string EncodeFormat(uint32_t version);
std::string EncodeNamespace(const CatalogNamespace& ns);
std::string EncodeExtent(const CatalogExtent& extent);
std::string EncodeRecord(const CatalogRecord& record);

// Nothing: not of that kind, of another version, cut short, too long, or with a value that no
// writer puts there. A record's hash points into `value`.
std::optional<uint32_t> DecodeFormat(absl::string_view value);
std::optional<CatalogNamespace> DecodeNamespace(absl::string_view key, absl::string_view value);
std::optional<CatalogExtent> DecodeExtent(absl::string_view key, absl::string_view value);
std::optional<CatalogRecord> DecodeRecord(absl::string_view key, absl::string_view value);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CATALOG_FORMAT_H_
