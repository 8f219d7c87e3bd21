#include "server/ssd/catalog_format.h"

#include <endian.h>

#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "common/session/messages.h"

namespace quarry::server {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

constexpr uint8_t kNamespaceVersion = 1;
constexpr uint8_t kExtentVersion = 1;
constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kInlined = 1;  // a record's only flag

template <typename... T>
void Append(std::string* out, T... numbers) {
  (out->append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
}

void AppendKeyNumber(std::string* out, uint32_t number) { Append(out, htobe32(number)); }

void AppendText(std::string* out, absl::string_view text) {
  Append(out, static_cast<uint16_t>(text.size()));
  out->append(text.data(), text.size());
}

// Takes from the front of a value; once something is missing, nothing more.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  template <typename... T>
  bool Take(T&... numbers) {
    return (TakeOne(numbers) && ...);
  }
  bool TakeVersion(uint8_t version) {
    uint8_t found = 0;
    return Take(found) && found == version;
  }
  bool TakeText(std::string& text) {
    uint16_t bytes = 0;
    if (!Take(bytes) || rest_.size() < bytes) return false;
    text.assign(rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return true;
  }
  absl::string_view rest() const { return rest_; }

 private:
  template <typename T>
  bool TakeOne(T& number) {
    if (rest_.size() < sizeof(number)) return false;
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_.remove_prefix(sizeof(number));
    return true;
  }

  absl::string_view rest_;
};

template <typename... T>
bool TakeKey(absl::string_view key, T&... numbers) {
  Reader reader(key);
  if (!reader.Take(numbers...) || !reader.rest().empty()) return false;
  ((numbers = be32toh(numbers)), ...);
  return true;
}

}  // namespace

std::string NumberKey(uint32_t number) {
  std::string key;
  AppendKeyNumber(&key, number);
  return key;
}

std::string PlaceKey(uint32_t extent, uint32_t page) {
  std::string key;
  AppendKeyNumber(&key, extent);
  AppendKeyNumber(&key, page);
  return key;
}

std::string KeyBehind(uint32_t number) {
  if (number != UINT32_MAX) return NumberKey(number + 1);
  return std::string(2 * sizeof(uint32_t) + 1, '\xff');  // longer than every key
}

std::string EncodeFormat(uint32_t version) {
  std::string value;
  Append(&value, version);
  return value;
}

std::string EncodeNamespace(const CatalogNamespace& ns) {
  std::string value;
  Append(&value, kNamespaceVersion, ns.ttl_ms);
  AppendText(&value, ns.tenant);
  AppendText(&value, ns.name);
  wire::AppendSpec(ns.spec, &value);
  return value;
}

std::string EncodeExtent(const CatalogExtent& extent) {
  std::string value;
  Append(&value, kExtentVersion, extent.generation);
  return value;
}

std::string EncodeRecord(const CatalogRecord& record) {
  std::string value;
  const uint8_t flags = record.inlined ? kInlined : 0;
  Append(&value, kRecordVersion, flags, record.group, record.shard, record.ns, record.depth, record.payload_bytes,
         record.stored_at_ms, record.root);
  value.append(record.hash.data(), record.hash.size());
  return value;
}

std::optional<uint32_t> DecodeFormat(absl::string_view value) {
  uint32_t version = 0;
  Reader reader(value);
  if (!reader.Take(version) || !reader.rest().empty() || version == 0) return std::nullopt;
  return version;
}

std::optional<CatalogNamespace> DecodeNamespace(absl::string_view key, absl::string_view value) {
  CatalogNamespace ns;
  Reader reader(value);
  if (!TakeKey(key, ns.number) || !reader.TakeVersion(kNamespaceVersion) || !reader.Take(ns.ttl_ms) ||
      !reader.TakeText(ns.tenant) || !reader.TakeText(ns.name)) {
    return std::nullopt;
  }
  absl::StatusOr<ModelSpec> spec = wire::DecodeSpec(reader.rest());
  if (!spec.ok() || !Validate(*spec).ok()) return std::nullopt;
  ns.spec = *std::move(spec);
  return ns;
}

std::optional<CatalogExtent> DecodeExtent(absl::string_view key, absl::string_view value) {
  CatalogExtent extent;
  Reader reader(value);
  if (!TakeKey(key, extent.number) || !reader.TakeVersion(kExtentVersion) || !reader.Take(extent.generation) ||
      !reader.rest().empty()) {
    return std::nullopt;
  }
  return extent;
}

std::optional<CatalogRecord> DecodeRecord(absl::string_view key, absl::string_view value) {
  CatalogRecord record;
  uint8_t flags = 0;
  Reader reader(value);
  if (!TakeKey(key, record.extent, record.page) || !reader.TakeVersion(kRecordVersion) ||
      !reader.Take(flags, record.group, record.shard, record.ns, record.depth, record.payload_bytes,
                   record.stored_at_ms, record.root) ||
      (flags & ~kInlined) != 0) {
    return std::nullopt;
  }
  record.inlined = flags == kInlined;
  record.hash = reader.rest();
  if (record.hash.empty() || record.hash.size() > kMaxHashBytes) return std::nullopt;
  return record;
}

}  // namespace quarry::server
