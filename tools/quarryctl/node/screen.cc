#include "tools/quarryctl/node/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace quarry::ctl {
namespace {

// ECMA-48, and xterm's private modes 1049 (alternate screen) and 25 (cursor).
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearToEndOfLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";

bool Continues(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

std::string FitLine(absl::string_view line, size_t columns) {
  std::string fitted;
  size_t used = 0;
  for (const char c : line) {
    if (!Continues(c) && ++used > columns) break;
    fitted.push_back(absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? '?' : c);
  }
  return fitted;
}

ScreenSize SizeNow() {
  winsize size{};
  ScreenSize result;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return result;
  if (size.ws_col != 0) result.columns = size.ws_col;
  if (size.ws_row != 0) result.rows = size.ws_row;
  return result;
}

}  // namespace

bool IsScreen() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && absl::string_view(terminal) != "dumb";
}

std::string Fit(absl::string_view text, const ScreenSize& size) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (lines.size() == size.rows) break;
    lines.push_back(FitLine(line, size.columns));
  }
  return absl::StrJoin(lines, "\n");
}

Screen::Screen(std::ostream* out) : out_(*out) { Enter(); }
Screen::~Screen() { Leave(); }

void Screen::Enter() { (out_ << kEnter).flush(); }
void Screen::Leave() { (out_ << kLeave).flush(); }

void Screen::Draw(absl::string_view text) {
  const ScreenSize size = SizeNow();
  const std::vector<std::string> lines = absl::StrSplit(Fit(text, size), '\n');
  // A line is cleared just before it is drawn, not behind it: there, after a line as long as
  // the screen is wide, the cursor still stands on its last character.
  out_ << kHome << kClearToEndOfLine << absl::StrJoin(lines, absl::StrCat("\r\n", kClearToEndOfLine));
  if (lines.size() < size.rows) out_ << "\r\n" << kClearBelow;
  out_.flush();
}

void Screen::Suspend() {
  Leave();
  raise(SIGSTOP);
  Enter();
}

}  // namespace quarry::ctl
