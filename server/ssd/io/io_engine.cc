#include "server/ssd/io/io_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ssd/io/aio_engine.h"
#include "server/ssd/io/thread_engine.h"
#include "server/ssd/io/uring_engine.h"

namespace quarry::server {
namespace {

absl::StatusOr<std::unique_ptr<IoEngine>> CreateThreadEngine(uint32_t depth) {
  return std::make_unique<ThreadEngine>(depth);
}

struct Candidate {
  IoEngineKind kind;
  absl::string_view name;
  absl::StatusOr<std::unique_ptr<IoEngine>> (*create)(uint32_t depth);
};

constexpr Candidate kFastestFirst[] = {
    {IoEngineKind::kUring, "io_uring", CreateUringEngine},
    {IoEngineKind::kAio, "libaio", CreateAioEngine},
    {IoEngineKind::kThreads, "threads", CreateThreadEngine},
};

}  // namespace

absl::StatusOr<IoEngineKind> ParseIoEngineKind(absl::string_view text) {
  if (text == "auto") return IoEngineKind::kAuto;
  for (const Candidate& candidate : kFastestFirst) {
    if (text == candidate.name) return candidate.kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("IO engine '", text, "' is none of auto, io_uring, libaio and threads"));
}

absl::StatusOr<IoEngineChoice> CreateIoEngine(IoEngineKind kind, uint32_t depth) {
  if (depth == 0 || depth > kMaxIoDepth) {
    return absl::InvalidArgumentError(absl::StrCat("IO depth ", depth, " is not from 1 to ", kMaxIoDepth));
  }
  IoEngineChoice choice;
  for (const Candidate& candidate : kFastestFirst) {
    if (kind != IoEngineKind::kAuto && kind != candidate.kind) continue;
    absl::StatusOr<std::unique_ptr<IoEngine>> engine = candidate.create(depth);
    if (engine.ok()) {
      choice.engine = *std::move(engine);
      return choice;
    }
    absl::StrAppend(&choice.reason, choice.reason.empty() ? "" : "; ", candidate.name, ": ", engine.status().message());
  }
  return absl::UnavailableError(choice.reason);
}

}  // namespace quarry::server
