#include "server/health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/units.h"

namespace quarry::server {
namespace {

using Part = AdminHooks::Part;

Part Sessions(const HealthInputs& in) {
  const std::string open = absl::StrCat(in.sessions.now, " open");
  if (in.draining) return {"sessions", false, absl::StrCat("draining: new ones are refused; ", open)};
  if (in.control_late_ns >= Health::kLateNs) {
    return {"sessions", false,
            absl::StrCat("a control thread has not come round for ", FormatDuration(in.control_late_ns), "; ", open)};
  }
  if (!in.accepting) {
    return {"sessions", false,
            absl::StrCat("connections cannot be accepted: out of file descriptors or memory; ", open)};
  }
  if (in.sessions.now >= in.sessions.most) {
    return {"sessions", false, absl::StrCat(open, ", the most that --max-sessions allows: new ones are refused")};
  }
  return {"sessions", true, absl::StrCat(open, ", at most ", in.sessions.most)};
}

Part Grpc(const HealthInputs& in) {
  std::vector<std::string> full;
  std::vector<std::string> all;
  for (const auto& [name, use] : {std::pair("gets", in.gets), {"puts", in.puts}, {"watches", in.watches}}) {
    if (use.now >= use.most) full.push_back(absl::StrCat(use.now, " ", name));
    all.push_back(absl::StrCat(use.now, " ", name));
  }
  if (full.empty()) return {"grpc", true, absl::StrCat(absl::StrJoin(all, ", "), " under way")};
  return {"grpc", false,
          absl::StrCat(absl::StrJoin(full, ", "), " under way, as many as may be: new ones are refused")};
}

Part Metrics(const HealthInputs& in) {
  const HealthInputs::Use& use = in.http_connections;
  std::string open = absl::StrCat(use.now, " HTTP connections open");
  if (use.now < use.most) return {"metrics", true, std::move(open)};
  return {"metrics", false, absl::StrCat(open, ", as many as may be: scrapes and probes wait")};
}

Part Ssd(const HealthInputs& in) {
  std::vector<std::string> stopped;
  for (const HealthInputs::Ssd& ssd : in.ssds) {
    if (!ssd.writing) stopped.push_back(absl::StrCat(ssd.dir, ": ", ssd.last_error));
  }
  if (stopped.empty()) return {"ssd", true, absl::StrCat("all ", in.ssds.size(), " directories take writes")};
  return {"ssd", false, absl::StrCat("takes no writes: ", absl::StrJoin(stopped, "; "))};
}

Part Integrity(const HealthInputs& in) {
  if (in.corrupt == 0) return {"integrity", true, "no checksum has failed"};
  return {"integrity", false, absl::StrCat(in.corrupt, " checksums have failed since the start")};
}

bool CostsReadiness(const Part& part) { return part.name == "sessions" || part.name == "scheduler"; }

}  // namespace

Part Health::Memory(const HealthInputs& in) {
  puts_.push_back({in.now_ns, in.refused_puts, in.stored_shards});
  // What lies at the window's edge stays: the window begins with it.
  while (puts_.size() > 2 && puts_[1].at_ns <= in.now_ns - kWindowNs) puts_.pop_front();
  const uint64_t refused = puts_.back().refused - puts_.front().refused;
  const uint64_t puts = refused + puts_.back().stored - puts_.front().stored;
  const std::string use = absl::StrCat(FormatBytes(in.used.now), " of ", FormatBytes(in.used.most), " in use, ",
                                       FormatBytes(in.leased_bytes), " leased or pinned");
  if (refused * kRefusalsOneIn < puts || refused == 0) return {"memory", true, use};
  return {"memory", false,
          absl::StrCat(refused, " of ", puts, " puts within ", FormatDuration(kWindowNs),
                       " were refused for want of room: ", use)};
}

Part Health::Scheduler(const HealthInputs& in) {
  // However slow its client, a session has one transfer on its way when others of it wait.
  const bool stuck = in.transfers_queued != 0 && in.bytes_in_flight == 0;
  if (!stuck) {
    stuck_since_ns_ = 0;
  } else if (stuck_since_ns_ == 0) {
    stuck_since_ns_ = in.now_ns;
  }
  const std::string work =
      absl::StrCat(in.transfers_queued, " transfers queued, ", FormatBytes(in.bytes_in_flight), " in flight");
  if (in.data_late_ns >= kLateNs) {
    return {"scheduler", false,
            absl::StrCat("a data thread has not come round for ", FormatDuration(in.data_late_ns), "; ", work)};
  }
  if (stuck && in.now_ns - stuck_since_ns_ >= kLateNs) {
    return {"scheduler", false,
            absl::StrCat("transfers have waited for ", FormatDuration(in.now_ns - stuck_since_ns_),
                         " though nothing moves; ", work)};
  }
  return {"scheduler", true, work};
}

void Health::Update(const HealthInputs& inputs) {
  std::lock_guard<std::mutex> lock(mutex_);
  report_.parts = {Memory(inputs), Sessions(inputs), Scheduler(inputs),
                   Grpc(inputs),   Metrics(inputs),  Integrity(inputs)};
  if (!inputs.ssds.empty()) report_.parts.push_back(Ssd(inputs));
  report_.ready = true;
  for (const Part& part : report_.parts) report_.ready = report_.ready && (part.healthy || !CostsReadiness(part));
}

AdminHooks::Health Health::report() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return report_;
}

std::string Health::WhyNotReady() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> why;
  for (const Part& part : report_.parts) {
    if (!part.healthy && CostsReadiness(part)) why.push_back(absl::StrCat(part.name, ": ", part.detail));
  }
  return absl::StrJoin(why, "\n");
}

}  // namespace quarry::server
