// The namespaces a node knows: who owns them and what their blocks look like.
#ifndef QUARRY_SERVER_NAMESPACES_H_
#define QUARRY_SERVER_NAMESPACES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quarry/model_spec.h"

namespace quarry::server {

// An index entry has 16 bits for the namespace.
inline constexpr uint32_t kNamespacesPerIndex = 1u << 16;

// Bounds of a time to live that is set; 0: none is.
inline constexpr uint64_t kMinTtlMs = 1'000;
inline constexpr uint64_t kMaxTtlMs = 315'360'000'000;  // ten years

// Alive as long as the registry. Immutable once opened, but for what is atomic.
struct Namespace {
  // This node's number of its contents, part of the index key: a flush gives it another, and
  // no number is given twice.
  std::atomic<uint32_t> index{0};
  std::atomic<bool> retired{false};
  std::atomic<uint64_t> ttl_ms{0};  // see NamespaceInfo in types.proto
  uint32_t tenant_index = 0;
  std::string id;  // NamespaceId(tenant, name, spec), 32 bytes
  std::string tenant;
  std::string name;
  ModelSpec spec;
  // Of matches since it was opened.
  mutable std::atomic<uint64_t> match_hashes{0};
  mutable std::atomic<uint64_t> match_hits{0};
  mutable std::atomic<uint64_t> saved_tokens{0};  // usable beyond what engines had themselves
};

struct OpenedNamespace {
  const Namespace* ns = nullptr;
  std::vector<std::string> differing_fields;  // not empty: `ns` is a sibling
};

// Thread-safe. Bounded: at most `max_namespaces` (and kNamespacesPerIndex) and `max_tenants`.
class NamespaceRegistry {
 public:
  explicit NamespaceRegistry(uint32_t max_namespaces = 4096, uint32_t max_tenants = 1024)
      : max_namespaces_(max_namespaces), max_tenants_(max_tenants) {}

  // InvalidArgument: bad name or spec. FailedPrecondition: the name is taken by another
  // spec and no sibling is wanted; the message names the differing fields. `ttl_ms` is for a
  // namespace that is created.
  // ResourceExhausted: too many.
  absl::StatusOr<OpenedNamespace> Open(absl::string_view tenant, absl::string_view name, const ModelSpec& spec,
                                       bool sibling_on_mismatch, uint64_t ttl_ms = 0);
  // nullptr: not known here.
  const Namespace* Find(absl::string_view tenant, absl::string_view name) const;
  // Those that are not retired.
  std::vector<const Namespace*> List() const;

  // InvalidArgument names the bounds. NotFound: the namespace has been retired.
  absl::Status SetTtl(const Namespace& ns, uint64_t ttl_ms);
  // Makes it empty: whatever was stored under its number until now is not found any more.
  // Returns that number, for the store to sweep. ResourceExhausted: no number is left.
  absl::StatusOr<uint32_t> Flush(const Namespace& ns);
  // The same, and its name is free again. NotFound: it was retired already.
  absl::StatusOr<uint32_t> Retire(const Namespace& ns);
  // ResourceExhausted: Flush and Retire would say so.
  absl::Status CheckNumberLeft() const;
  // Whose contents have, or had, that number; nullptr: nobody's.
  const Namespace* OfIndex(uint32_t index) const;

 private:
  // The namespace of that name, whatever its spec.
  absl::StatusOr<const Namespace*> FindOrCreateLocked(absl::string_view tenant, absl::string_view name,
                                                      const ModelSpec& spec, uint64_t ttl_ms);
  absl::Status CheckNumberLeftLocked() const;
  uint32_t RenumberLocked(Namespace& ns);

  const uint32_t max_namespaces_;
  const uint32_t max_tenants_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;         // retired ones too: sessions may have them open
  std::vector<Namespace*> contents_;                           // by index
  std::unordered_map<std::string, uint32_t> tenants_;          // to tenant_index
  std::unordered_map<std::string, const Namespace*> by_name_;  // tenant \0 name
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_NAMESPACES_H_
