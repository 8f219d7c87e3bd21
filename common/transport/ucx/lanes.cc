#include "common/transport/ucx/lanes.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace quarry::transport::ucx {
namespace {

// "lane[0]:  4:rc_mlx5/mlx5_0:1.0 md[3]  -> ...": behind the resource's number stands its transport.
bool IsRdmaLane(absl::string_view line) {
  constexpr absl::string_view kTransports[] = {":rc_", ":dc_", ":gga_"};
  return absl::StrContains(line, "lane[") &&
         std::any_of(std::begin(kTransports), std::end(kTransports),
                     [line](absl::string_view transport) { return absl::StrContains(line, transport); });
}

}  // namespace

bool NamesRdmaLane(absl::string_view info) {
  const std::vector<absl::string_view> lines = absl::StrSplit(info, '\n');
  return std::any_of(lines.begin(), lines.end(), IsRdmaLane);
}

bool MovesByRma(UcxOptions::Rma wanted, bool rdma_lane) {
  return wanted == UcxOptions::Rma::kAlways || (wanted == UcxOptions::Rma::kAuto && rdma_lane);
}

}  // namespace quarry::transport::ucx
