// A terminal as a page that is drawn again and again.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_SCREEN_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_SCREEN_H_

#include <cstddef>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"

namespace quarry::ctl {

struct ScreenSize {
  size_t columns = 80;
  size_t rows = 24;
};

// Whether standard output is a terminal that knows ANSI sequences, so not TERM=dumb.
bool IsScreen();

// The lines of `text` that fit, each cut to fit. Control characters, which names may hold,
// become "?". A byte that continues a UTF-8 character takes no column.
std::string Fit(absl::string_view text, const ScreenSize& size);

// Standard output's alternate screen; the one before comes back when this is destroyed, so
// whoever has one may not be killed by a signal (signals.h).
class Screen {
 public:
  explicit Screen(std::ostream* out);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // As large as the terminal is now.
  void Draw(absl::string_view text);
  // Gives the terminal back while the process is stopped; then takes it again.
  void Suspend();

 private:
  void Enter();
  void Leave();

  std::ostream& out_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_SCREEN_H_
