// quarry-bench-limit: what plain sockets, copies and direct IO reach on this machine, to hold Quarry against.
//
// Prints `ready ...` and then, for every line on standard input (a time in seconds), runs
// for that long and prints one JSON object. Ends with its input.
#include <signal.h>
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "tools/bench/limit/copy_limit.h"
#include "tools/bench/limit/disk_limit.h"
#include "tools/bench/limit/echo_limit.h"
#include "tools/bench/limit/socket_limit.h"
#if QUARRY_WITH_UCX
#include "tools/bench/limit/ucx_limit.h"
#endif

namespace {

void RunStream(const limit::StreamOptions& options) {
  limit::StreamLimit stream(options);
  printf("ready buffer_bytes=%d\n", stream.buffer_bytes());
  fflush(stdout);
  for (double seconds; std::cin >> seconds;) {
    printf("{\"gb_per_s\": %.4f, \"buffer_bytes\": %d}\n", stream.Run(seconds), stream.buffer_bytes());
    fflush(stdout);
  }
}

void RunEcho(const limit::EchoOptions& options) {
  limit::EchoLimit echo(options);
  printf("ready\n");
  fflush(stdout);
  for (double seconds; std::cin >> seconds;) {
    const std::vector<uint32_t> latencies = echo.Run(seconds);
    const auto at = [&](double share) {
      const size_t index = static_cast<size_t>(share * static_cast<double>(latencies.size()));
      return latencies.empty() ? 0.0 : latencies[std::min(index, latencies.size() - 1)] / 1e3;
    };
    printf("{\"p50_us\": %.2f, \"p99_us\": %.2f, \"ops\": %zu}\n", at(0.5), at(0.99), latencies.size());
    fflush(stdout);
  }
}

void RunCopy(const limit::CopyOptions& options) {
  limit::CopyLimit copy(options);
  printf("ready\n");
  fflush(stdout);
  for (double seconds; std::cin >> seconds;) {
    printf("{\"gb_per_s\": %.4f}\n", copy.Run(seconds));
    fflush(stdout);
  }
}

#if QUARRY_WITH_UCX
void RunUcx(const limit::UcxOptions& options) {
  limit::UcxLimit ucx(options);
  printf("ready ucx=%s\n", ucx.version());
  fflush(stdout);
  for (double seconds; std::cin >> seconds;) {
    printf("{\"gb_per_s\": %.4f}\n", ucx.Run(seconds));
    fflush(stdout);
  }
}
#endif

void RunDisk(const limit::DiskOptions& options) {
  limit::DiskLimit disk(options);
  printf("ready io=%s\n", disk.io());
  fflush(stdout);
  for (double seconds; std::cin >> seconds;) {
    printf("{\"gb_per_s\": %.4f, \"io\": \"%s\"}\n", disk.Run(seconds), disk.io());
    fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What plain sockets, plain copies, or direct IO, reach on this machine. Reads times in seconds, one a line, and "
      "runs for "
      "each.");
  app.require_subcommand(1);

  limit::StreamOptions stream;
  std::string op = "get";
  CLI::App* stream_command = app.add_subcommand("stream", "Random blocks into random places, as fast as TCP can");
  stream_command->add_option("--op", op, "get: server to client; put: client to server")
      ->check(CLI::IsMember({"get", "put"}));
  const CLI::AsSizeValue size(false);
  stream_command->add_option("--block", stream.block_bytes)->transform(size);
  stream_command->add_option("--segment", stream.segment_bytes)->transform(size);
  stream_command->add_option("--connections", stream.connections)->check(CLI::Range(1, 1024));
  stream_command->add_option("--server-arena", stream.server_arena_bytes)->transform(size);
  stream_command->add_option("--client-arena", stream.client_arena_bytes)->transform(size);
  stream_command->add_option("--buffer", stream.buffer_bytes,
                             "Socket buffers in bytes; 0: the kernel's tuning; -1: the best of several");

  limit::CopyOptions copy;
  std::string copy_op = "get";
  std::string by = "memcpy";
  CLI::App* copy_command = app.add_subcommand("copy", "Random blocks into random places, as fast as they are copied");
  copy_command->add_option("--op", copy_op, "get: from blocks to places; put: from places to blocks")
      ->check(CLI::IsMember({"get", "put"}));
  copy_command->add_option("--by", by, "memcpy within shared memory, or process_vm calls to another process")
      ->check(CLI::IsMember({"memcpy", "process_vm"}));
  copy_command->add_option("--block", copy.block_bytes)->transform(size);
  copy_command->add_option("--segment", copy.segment_bytes)->transform(size);
  copy_command->add_option("--threads", copy.threads)->check(CLI::Range(1, 1024));
  copy_command->add_option("--server-arena", copy.server_arena_bytes)->transform(size);
  copy_command->add_option("--client-arena", copy.client_arena_bytes)->transform(size);

  limit::EchoOptions echo;
  CLI::App* echo_command = app.add_subcommand("echo", "Round trips of a request and a reply");
  echo_command->add_option("--request", echo.request_bytes)->check(CLI::PositiveNumber);
  echo_command->add_option("--reply", echo.reply_bytes)->check(CLI::PositiveNumber);
  echo_command->add_option("--connections", echo.connections)->check(CLI::Range(1, 1024));

  limit::DiskOptions disk;
  std::string disk_op = "read";
  CLI::App* disk_command = app.add_subcommand("disk", "Blocks between a disk and memory, by direct IO");
  disk_command->add_option("--op", disk_op, "read: random blocks; write: in order, with syncs")
      ->check(CLI::IsMember({"read", "write"}));
  disk_command->add_option("--dir", disk.dir, "Where its files lie")->required();
  disk_command->add_option("--block", disk.block_bytes)->transform(size);
  disk_command->add_option("--total", disk.total_bytes, "Of all files")->transform(size);
  disk_command->add_option("--file", disk.file_bytes, "Of each")->transform(size);
  disk_command->add_option("--depth", disk.depth, "Requests in flight")->check(CLI::Range(1, 1024));
  disk_command->add_option("--io", disk.io)->check(CLI::IsMember({"auto", "io_uring", "libaio"}));

#if QUARRY_WITH_UCX
  limit::UcxOptions ucx;
  std::string ucx_op = "get";
  CLI::App* ucx_command = app.add_subcommand("ucx", "Random blocks into random places, as fast as bare UCX can");
  ucx_command->add_option("--op", ucx_op, "get: server to client; put: client to server")
      ->check(CLI::IsMember({"get", "put"}));
  ucx_command->add_option("--block", ucx.block_bytes)->transform(size);
  ucx_command->add_option("--segment", ucx.segment_bytes)->transform(size);
  ucx_command->add_option("--window", ucx.window, "Blocks under way")->check(CLI::Range(1, 1024));
  ucx_command->add_option("--server-arena", ucx.server_arena_bytes)->transform(size);
  ucx_command->add_option("--client-arena", ucx.client_arena_bytes)->transform(size);
  ucx_command->add_option("--library", ucx.libucp, "libucp");
#endif
  CLI11_PARSE(app, argc, argv);

  stream.put = op == "put";
  if (stream.block_bytes == 0 || stream.segment_bytes == 0 || stream.server_arena_bytes < stream.block_bytes ||
      stream.client_arena_bytes < stream.segment_bytes) {
    fprintf(stderr, "quarry-bench-limit: an arena must hold at least one block or segment\n");
    return 2;
  }
  copy.put = copy_op == "put";
  copy.process_vm = by == "process_vm";
  if (copy.segment_bytes == 0 || copy.block_bytes < copy.segment_bytes || copy.server_arena_bytes < copy.block_bytes ||
      copy.client_arena_bytes < copy.segment_bytes) {
    fprintf(stderr, "quarry-bench-limit: a block must hold at least one segment, and an arena one of its own\n");
    return 2;
  }
  disk.write = disk_op == "write";
  if (disk.block_bytes == 0 || disk.total_bytes == 0 || disk.file_bytes < disk.block_bytes * disk.depth) {
    fprintf(stderr, "quarry-bench-limit: a file must hold at least --depth blocks\n");
    return 2;
  }
  if (*stream_command) RunStream(stream);
  if (*copy_command) RunCopy(copy);
  if (*echo_command) RunEcho(echo);
  if (*disk_command) RunDisk(disk);
#if QUARRY_WITH_UCX
  ucx.put = ucx_op == "put";
  if (ucx.segment_bytes == 0 || ucx.block_bytes < ucx.segment_bytes || ucx.server_arena_bytes < ucx.block_bytes ||
      ucx.client_arena_bytes < ucx.segment_bytes) {
    fprintf(stderr, "quarry-bench-limit: a block must hold at least one segment, and an arena one of its own\n");
    return 2;
  }
  if (*ucx_command) RunUcx(ucx);
#endif
  return 0;
}
