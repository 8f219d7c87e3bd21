// Lease tokens and their time. Which blocks a lease pins is the block store's matter: here
// they are numbers.
#ifndef QUARRY_SERVER_LEASES_H_
#define QUARRY_SERVER_LEASES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "quarry/block.h"

namespace quarry::server {

inline constexpr size_t kLeaseTokenBytes = 16;

// Thread-safe. Times are nanoseconds of the caller's clock. A lease ends at its time,
// whether or not it has been collected.
class LeaseTable {
 public:
  using Blocks = std::vector<uint32_t>;

  struct Limits {
    uint64_t leases = 0;
    uint64_t blocks = 0;  // of all leases; a block counts in each
  };
  explicit LeaseTable(Limits limits) : limits_(limits) {}

  struct Room {
    uint64_t blocks = 0;                   // 0: nothing is reserved
    LeaseLimit limit = LeaseLimit::kNone;  // why these are fewer than asked for
  };
  // Room for one lease of at most so many blocks, at least 1, for Add.
  Room Reserve(uint64_t blocks);
  // Of a reservation of so many, keeps fewer; 0: there is none any more.
  void Shrink(uint64_t reserved, uint64_t kept);

  // Uses a reservation of as many blocks. Returns the token, unguessable.
  std::string Add(absl::string_view tenant, uint32_t ns, int64_t expires_ns, Blocks blocks);
  // The same without a token: it only ends by time.
  void AddInternal(int64_t expires_ns, Blocks blocks);

  bool Holds(absl::string_view tenant, uint32_t ns, absl::string_view token, int64_t now_ns) const;
  // False: no such lease of the tenant, or it has ended.
  bool Renew(absl::string_view tenant, absl::string_view token, int64_t now_ns, int64_t expires_ns);
  // Ends it; the blocks it pinned.
  std::optional<Blocks> Take(absl::string_view tenant, absl::string_view token, int64_t now_ns);
  // One lease whose time is over, if any.
  std::optional<Blocks> TakeExpired(int64_t now_ns);

  struct Counts {  // since the start
    uint64_t granted = 0;
    uint64_t retained = 0;  // those without a token
    uint64_t renewed = 0;
    uint64_t released = 0;
    uint64_t expired = 0;
  };
  Counts counts() const;
  // Reserved ones included.
  uint64_t size() const;
  uint64_t blocks() const;

 private:
  struct Lease {
    std::string token;  // empty: internal
    std::string tenant;
    uint32_t ns = 0;
    Blocks blocks;
  };
  using ByExpiry = std::multimap<int64_t, std::unique_ptr<Lease>>;

  void AddLocked(int64_t expires_ns, std::unique_ptr<Lease> lease);
  std::unordered_map<std::string, ByExpiry::iterator>::const_iterator FindLocked(absl::string_view tenant,
                                                                                 absl::string_view token,
                                                                                 int64_t now_ns) const;
  Blocks RemoveLocked(ByExpiry::iterator lease);

  const Limits limits_;
  mutable std::mutex mutex_;
  uint64_t leases_ = 0;  // here or reserved
  uint64_t blocks_ = 0;
  Counts counts_;
  ByExpiry by_expiry_;
  std::unordered_map<std::string, ByExpiry::iterator> by_token_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_LEASES_H_
