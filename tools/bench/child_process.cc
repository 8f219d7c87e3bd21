#include "tools/bench/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace quarry::bench {
namespace {

constexpr int kStopPollMs = 5;
constexpr int kDestructorTimeoutMs = 10'000;
constexpr size_t kMaxBufferedOutput = 16 << 20;

std::string Error(int error) { return std::string(strerror(error)); }

int64_t DeadlineNs(int timeout_ms) { return Clock::Real()->NowNs() + int64_t{timeout_ms} * 1'000'000; }

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void Exec(char* const* argv, int in, int out, int error_pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (getppid() == parent && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0) execvp(argv[0], argv);
  const int error = errno;
  const ssize_t ignored = write(error_pipe, &error, sizeof(error));
  _exit(ignored == sizeof(error) ? 127 : 126);
}

struct Pipe {
  int read = -1;
  int write = -1;
  bool Open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    read = fds[0];
    write = fds[1];
    return true;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv) {
  std::vector<char*> raw;
  for (const std::string& argument : argv) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  Pipe in, out, failure;
  if (!in.Open() || !out.Open() || !failure.Open()) return absl::UnavailableError(Error(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(raw.data(), in.read, out.write, failure.write, parent);
  const int fork_error = errno;
  for (int fd : {in.read, out.write, failure.write}) close(fd);
  int error = pid < 0 ? fork_error : 0;
  if (pid > 0 && read(failure.read, &error, sizeof(error)) == sizeof(error)) waitpid(pid, nullptr, 0);
  close(failure.read);
  if (error != 0) {
    close(in.write);
    close(out.read);
    return absl::UnavailableError(absl::StrCat("cannot run ", argv[0], ": ", Error(error)));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(argv[0], pid, in.write, out.read));
}

ChildProcess::~ChildProcess() {
  if (pid_ != 0) Stop(kDestructorTimeoutMs).IgnoreError();  // who cares calls Stop
  if (in_ >= 0) close(in_);
  close(out_);
}

absl::Status ChildProcess::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t n = write(in_, text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, ": cannot write to it: ", Error(errno)));
}

absl::Status ChildProcess::Fill(int64_t deadline_ns) {
  if (buffer_.size() > kMaxBufferedOutput)
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": too much output"));
  for (;;) {
    const int64_t left_ms = (deadline_ns - Clock::Real()->NowNs()) / 1'000'000;
    if (left_ms <= 0) return absl::DeadlineExceededError(absl::StrCat(name_, ": no answer in time"));
    pollfd poll_out = {out_, POLLIN, 0};
    if (poll(&poll_out, 1, static_cast<int>(std::min<int64_t>(left_ms, 1'000))) <= 0) continue;
    char bytes[4096];
    const ssize_t n = read(out_, bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::OutOfRangeError(absl::StrCat(name_, ": its output has ended"));
    buffer_.append(bytes, static_cast<size_t>(n));
    return absl::OkStatus();
  }
}

absl::StatusOr<std::string> ChildProcess::ReadLine(int timeout_ms) {
  const int64_t deadline = DeadlineNs(timeout_ms);
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const absl::Status more = Fill(deadline);
    if (absl::IsOutOfRange(more)) return absl::UnavailableError(more.message());
    if (!more.ok()) return more;
  }
}

absl::StatusOr<std::string> ChildProcess::ReadAll(int timeout_ms) {
  const int64_t deadline = DeadlineNs(timeout_ms);
  for (;;) {
    const absl::Status more = Fill(deadline);
    if (absl::IsOutOfRange(more)) return std::exchange(buffer_, {});
    if (!more.ok()) return more;
  }
}

absl::Status ChildProcess::Stop(int timeout_ms) {
  kill(pid_, SIGTERM);
  return WaitOrKill(timeout_ms);
}

absl::Status ChildProcess::Finish(int timeout_ms) {
  close(std::exchange(in_, -1));
  return WaitOrKill(timeout_ms);
}

absl::Status ChildProcess::WaitOrKill(int timeout_ms) {
  const int64_t deadline = DeadlineNs(timeout_ms);
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::Real()->NowNs() >= deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      pid_ = 0;
      return absl::DeadlineExceededError(absl::StrCat(name_, ": did not stop in ", timeout_ms, " ms; killed"));
    }
    poll(nullptr, 0, kStopPollMs);
  }
  pid_ = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(WIFSIGNALED(status) ? absl::StrCat(name_, ": ended by signal ", WTERMSIG(status))
                                                 : absl::StrCat(name_, ": exit status ", WEXITSTATUS(status)));
}

std::string ProgramFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace quarry::bench
