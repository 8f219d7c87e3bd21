// Both ends of a transport, as the conformance tests see them. A new transport joins the
// suite by a Link and a line in kLinks.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_LINK_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_LINK_H_

#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "common/transport/transport.h"

namespace quarry::transport {

class Link {
 public:
  virtual ~Link() = default;
  virtual ServerChannel& server() = 0;
  virtual ClientChannel& client() = 0;
  // Lets what was started move: all of it where a test moves things by hand, something in
  // a moment's time where threads do.
  virtual void Settle() = 0;
  // Lets a little of it move.
  virtual void Nudge() = 0;
  // The client's end ends alone.
  virtual void DestroyClient() = 0;
  // How often on_closed was called, at both ends.
  virtual int broken() const = 0;
};

struct LinkKind {
  const char* name;
  std::unique_ptr<Link> (*make)();
};
inline std::ostream& operator<<(std::ostream& out, const LinkKind& kind) { return out << kind.name; }

std::vector<LinkKind> AllLinks();

// From the first to the last byte of an item.
MemoryRange RangeOf(absl::Span<const Segment> segments);

// Settles until `condition` holds. False: it did not within a time that is long for any
// machine.
bool WaitUntil(Link& link, const std::function<bool()>& condition);

}  // namespace quarry::transport

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_LINK_H_
