#include "server/namespaces.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/namespace_id.h"
#include "common/utf8.h"

namespace quarry::server {
namespace {

constexpr size_t kMaxNameBytes = 256;
// What SiblingName adds.
constexpr size_t kSiblingSuffixBytes = 9;

absl::Status CheckName(absl::string_view field, absl::string_view name, size_t max_bytes) {
  if (name.empty() || name.size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", name.size(), " bytes, not 1 to ", max_bytes));
  }
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); })) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": contains a control character"));
  }
  if (!IsUtf8(name)) return absl::InvalidArgumentError(absl::StrCat(field, ": is not UTF-8"));
  return absl::OkStatus();
}

std::string KeyOf(absl::string_view tenant, absl::string_view name) {
  std::string key(tenant);
  key.push_back('\0');
  key.append(name.data(), name.size());
  return key;
}

// A sibling is opened again under its own name, which is longer than a name may be.
size_t MaxNameBytes(absl::string_view name, const ModelSpec& spec) {
  constexpr size_t kMaxSiblingBytes = kMaxNameBytes + kSiblingSuffixBytes;
  if (name.size() <= kMaxNameBytes || name.size() > kMaxSiblingBytes) return kMaxNameBytes;
  const bool sibling = name == SiblingName(name.substr(0, name.size() - kSiblingSuffixBytes), spec);
  return sibling ? kMaxSiblingBytes : kMaxNameBytes;
}

absl::Status CheckTtl(uint64_t ttl_ms) {
  if (ttl_ms == 0 || (ttl_ms >= kMinTtlMs && ttl_ms <= kMaxTtlMs)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ttl_ms: ", ttl_ms, " is neither 0 nor ", kMinTtlMs, " to ", kMaxTtlMs));
}

absl::Status Mismatch(absl::string_view name, const std::vector<std::string>& fields) {
  return absl::FailedPreconditionError(
      absl::StrCat("namespace \"", name, "\" has another spec; differing: ", absl::StrJoin(fields, ", ")));
}

}  // namespace

absl::StatusOr<OpenedNamespace> NamespaceRegistry::Open(absl::string_view tenant, absl::string_view name,
                                                        const ModelSpec& spec, bool sibling_on_mismatch,
                                                        uint64_t ttl_ms) {
  if (absl::Status status = CheckName("tenant", tenant, kMaxNameBytes); !status.ok()) return status;
  if (absl::Status status = Validate(spec); !status.ok()) return status;
  if (absl::Status status = CheckName("name", name, MaxNameBytes(name, spec)); !status.ok()) return status;
  if (absl::Status status = CheckTtl(ttl_ms); !status.ok()) return status;

  std::lock_guard<std::mutex> lock(mutex_);
  auto own = FindOrCreateLocked(tenant, name, spec, ttl_ms);
  if (!own.ok()) return own.status();
  OpenedNamespace opened;
  opened.ns = *own;
  opened.differing_fields = DifferingFields((*own)->spec, spec);
  if (opened.differing_fields.empty()) return opened;
  if (!sibling_on_mismatch) return Mismatch(name, opened.differing_fields);

  const std::string sibling_name = SiblingName(name, spec);
  auto sibling = FindOrCreateLocked(tenant, sibling_name, spec, ttl_ms);
  if (!sibling.ok()) return sibling.status();
  opened.ns = *sibling;
  // The name carries only a part of the digest, and may be opened like any other.
  if (const auto fields = DifferingFields((*sibling)->spec, spec); !fields.empty()) {
    return Mismatch(sibling_name, fields);
  }
  return opened;
}

absl::StatusOr<const Namespace*> NamespaceRegistry::FindOrCreateLocked(absl::string_view tenant, absl::string_view name,
                                                                       const ModelSpec& spec, uint64_t ttl_ms) {
  const std::string key = KeyOf(tenant, name);
  if (const auto it = by_name_.find(key); it != by_name_.end()) return it->second;
  const uint32_t max_namespaces = std::min(max_namespaces_, kNamespacesPerIndex);
  if (by_name_.size() >= max_namespaces) {
    return absl::ResourceExhaustedError(
        absl::StrCat("name: the node has ", max_namespaces, " namespaces, its maximum"));
  }
  if (absl::Status status = CheckNumberLeftLocked(); !status.ok()) return status;
  const auto tenant_it = tenants_.find(std::string(tenant));
  if (tenant_it == tenants_.end() && tenants_.size() >= max_tenants_) {
    return absl::ResourceExhaustedError(absl::StrCat("tenant: the node has ", max_tenants_, " tenants, its maximum"));
  }
  auto ns = std::make_unique<Namespace>();
  ns->index = static_cast<uint32_t>(contents_.size());
  ns->tenant_index = tenant_it != tenants_.end() ? tenant_it->second : static_cast<uint32_t>(tenants_.size());
  ns->id = NamespaceId(tenant, name, spec);
  ns->tenant = std::string(tenant);
  ns->name = std::string(name);
  ns->spec = spec;
  ns->ttl_ms = ttl_ms;
  tenants_.emplace(ns->tenant, ns->tenant_index);
  const Namespace* created = ns.get();
  by_name_.emplace(key, created);
  contents_.push_back(ns.get());
  namespaces_.push_back(std::move(ns));
  return created;
}

const Namespace* NamespaceRegistry::Find(absl::string_view tenant, absl::string_view name) const {
  // Bounds what a key can cost before it is looked up.
  if (tenant.size() > kMaxNameBytes || name.size() > kMaxNameBytes + kSiblingSuffixBytes) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = by_name_.find(KeyOf(tenant, name));
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<const Namespace*> NamespaceRegistry::List() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Namespace*> list;
  for (const auto& ns : namespaces_) {
    if (!ns->retired) list.push_back(ns.get());
  }
  return list;
}

absl::Status NamespaceRegistry::CheckNumberLeft() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return CheckNumberLeftLocked();
}

absl::Status NamespaceRegistry::CheckNumberLeftLocked() const {
  if (contents_.size() < kNamespacesPerIndex) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("name: the node has opened and flushed namespaces ",
                                                   kNamespacesPerIndex, " times; it must be restarted to do so again"));
}

uint32_t NamespaceRegistry::RenumberLocked(Namespace& ns) {
  const auto next = static_cast<uint32_t>(contents_.size());
  contents_.push_back(&ns);
  return ns.index.exchange(next);
}

absl::Status NamespaceRegistry::SetTtl(const Namespace& ns, uint64_t ttl_ms) {
  if (absl::Status status = CheckTtl(ttl_ms); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex_);
  if (ns.retired) return absl::NotFoundError(absl::StrCat("namespace \"", ns.name, "\": retired already"));
  contents_[ns.index]->ttl_ms = ttl_ms;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> NamespaceRegistry::Flush(const Namespace& ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = CheckNumberLeftLocked(); !status.ok()) return status;
  return RenumberLocked(*contents_[ns.index]);
}

absl::StatusOr<uint32_t> NamespaceRegistry::Retire(const Namespace& ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ns.retired) return absl::NotFoundError(absl::StrCat("namespace \"", ns.name, "\": retired already"));
  if (absl::Status status = CheckNumberLeftLocked(); !status.ok()) return status;
  Namespace& own = *contents_[ns.index];
  own.retired = true;
  by_name_.erase(KeyOf(ns.tenant, ns.name));
  return RenumberLocked(own);
}

const Namespace* NamespaceRegistry::OfIndex(uint32_t index) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return index < contents_.size() ? contents_[index] : nullptr;
}

}  // namespace quarry::server
