// Tells a forked child from the process that made an object, without a system call.
#ifndef QUARRY_CLIENT_FORK_GUARD_H_
#define QUARRY_CLIENT_FORK_GUARD_H_

#include <cstdint>

namespace quarry {

// Thread-safe. Sees fork(), not a raw clone system call.
class ForkGuard {
 public:
  ForkGuard();
  // False in a child forked after this was made, and in its children.
  bool InOwner() const;

 private:
  const uint64_t generation_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_FORK_GUARD_H_
