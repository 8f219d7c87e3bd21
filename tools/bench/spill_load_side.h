// One server under spill-load: hot blocks that are got, and puts at a rate beside.
#ifndef QUARRY_TOOLS_BENCH_SPILL_LOAD_SIDE_H_
#define QUARRY_TOOLS_BENCH_SPILL_LOAD_SIDE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/data_client.h"
#include "tools/bench/rate_pace.h"
#include "tools/bench/run_order.h"
#include "tools/bench/spill_load.h"
#include "tools/bench/ssd_counters.h"
#include "tools/bench/transfer.h"

namespace quarry::bench {

class SpillLoadSide {
 public:
  // Starts a private server and puts the hot blocks. `options` outlives it.
  static absl::StatusOr<std::unique_ptr<SpillLoadSide>> Create(const SpillLoadOptions& options, bool with_ssd);

  // Gets and puts until memory is full of cold blocks and the SSD has been written over, so that
  // every step evicts, spills and reclaims.
  absl::Status WarmUp(double put_bytes_per_s);
  // Waits until nothing is left to be written, then runs one step. 0: no puts.
  SpillStep Run(double put_bytes_per_s);

  absl::StatusOr<SsdCounters> Counters() const { return FetchSsdCounters(server_->metrics()); }
  absl::Status Stop();

 private:
  SpillLoadSide(const SpillLoadOptions& options, bool with_ssd);
  absl::Status Init();
  absl::Status Settle();
  SpillStep RunFor(double put_bytes_per_s, int64_t duration_ns, uint64_t* put_bytes);

  const SpillLoadOptions& options_;
  const bool with_ssd_;
  const uint64_t hot_runs_;  // of SpillLoadOptions::batch blocks each
  TransferOptions gets_;
  TransferOptions puts_;
  RunOrder order_;
  RatePace pace_;
  std::unique_ptr<ServerUnderTest> server_;
  std::vector<std::unique_ptr<DataClient>> getters_;
  std::unique_ptr<DataClient> putter_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SPILL_LOAD_SIDE_H_
