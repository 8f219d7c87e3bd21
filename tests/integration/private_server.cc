#include "tests/integration/private_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/net/socket.h"

namespace quarry::testing {
namespace {

constexpr int64_t kPatienceNs = 60'000'000'000;

[[noreturn]] void Give(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

std::string Field(const std::string& ready_line, const std::string& key) {
  const size_t begin = ready_line.find(key + "=");
  if (begin == std::string::npos) Give("quarryd is not ready: '" + ready_line + "'");
  const size_t value = begin + key.size() + 1;
  return ready_line.substr(value, ready_line.find(' ', value) - value);
}

// The answer to a GET, headers included.
std::string HttpGet(const std::string& address, const std::string& path) {
  const int64_t deadline_ns = Clock::Real()->NowNs() + kPatienceNs;
  auto fd = Dial(address, deadline_ns);
  if (!fd.ok()) Give("no metrics: " + fd.status().ToString());
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
  if (!WriteAll(fd->get(), request, deadline_ns).ok()) Give("the metrics port takes no request");
  std::string answer;
  while (true) {
    pollfd entry{fd->get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(kPatienceNs / 1'000'000)) != 1) Give("the metrics port does not answer");
    char part[16 << 10];
    const ssize_t got = recv(fd->get(), part, sizeof part, 0);
    if (got <= 0) return answer;
    answer.append(part, static_cast<size_t>(got));
  }
}

std::string Show(const PrivateServer::Metrics& metrics) {
  std::ostringstream text;
  for (const auto& [series, value] : metrics) {
    if (value != 0) text << series << " " << value << "\n";
  }
  return text.str();
}

}  // namespace

PrivateServer::PrivateServer(const std::string& memory, const Flags& flags) {
  std::vector<std::string> words = {QUARRYD,
                                    "--memory=" + memory,
                                    "--listen-transfer=" + flags.transfer,
                                    "--listen-grpc=127.0.0.1:0",
                                    "--listen-metrics=127.0.0.1:0",
                                    "--socket=" + flags.socket,
                                    "--log-level=warn"};
  words.insert(words.end(), flags.more.begin(), flags.more.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Give("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  stdout_ = ends[0];
  std::string line;
  for (char c; read(stdout_, &c, 1) == 1 && c != '\n';) line += c;
  address_ = Field(line, "transfer");
  metrics_address_ = Field(line, "metrics");
}

PrivateServer::~PrivateServer() {
  if (pid_ > 0) Kill();
  close(stdout_);
}

void PrivateServer::Signal(int signal) const {
  kill(pid_, signal);
  // A process goes on for a moment until it is stopped.
  if (int status = 0; signal == SIGSTOP) waitpid(pid_, &status, WUNTRACED);
}

int PrivateServer::Wait() {
  int status = -1;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

void PrivateServer::Kill() {
  Signal(SIGKILL);
  Wait();
}

int PrivateServer::Stop() {
  Signal(SIGTERM);
  return Wait();
}

PrivateServer::Metrics PrivateServer::Scrape() const {
  std::istringstream lines(HttpGet(metrics_address_, "/metrics"));
  Metrics metrics;
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (line.rfind("quarry_", 0) != 0 || space == std::string::npos) continue;
    metrics[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
  return metrics;
}

double PrivateServer::Metric(const std::string& series) const {
  const Metrics metrics = Scrape();
  const auto found = metrics.find(series);
  if (found == metrics.end()) Give("no series " + series + " in\n" + Show(metrics));
  return found->second;
}

::testing::AssertionResult PrivateServer::Until(const std::function<bool(const Metrics&)>& condition) const {
  const int64_t end_ns = Clock::Real()->NowNs() + kPatienceNs;
  Metrics metrics;
  do {
    metrics = Scrape();
    if (condition(metrics)) return ::testing::AssertionSuccess();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (Clock::Real()->NowNs() < end_ns);
  return ::testing::AssertionFailure() << "not within a minute; metrics:\n" << Show(metrics);
}

::testing::AssertionResult PrivateServer::BecomesIdle(int sessions) const {
  return Until([sessions](const Metrics& metrics) {
    for (const char* gauge : {kInFlightBytes, kInFlightPuts, kQueued, kLeases, "quarry_leased_bytes{tier=\"dram\"}"}) {
      if (metrics.at(gauge) != 0) return false;
    }
    return metrics.at("quarry_sessions") == sessions;
  });
}

}  // namespace quarry::testing
