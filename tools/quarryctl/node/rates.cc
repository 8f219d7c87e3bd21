#include "tools/quarryctl/node/rates.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace quarry::ctl {
namespace {

uint64_t Growth(uint64_t before, uint64_t after) { return after >= before ? after - before : after; }

class Difference {
 public:
  explicit Difference(double seconds) : seconds_(seconds) {}
  double PerSecond(uint64_t count) const { return seconds_ > 0 ? static_cast<double>(count) / seconds_ : 0; }
  double PerSecond(uint64_t before, uint64_t after) const { return PerSecond(Growth(before, after)); }

 private:
  double seconds_;
};

// The element of `list` that has this key, or an empty one.
template <typename List, typename Matches>
auto Find(const List& list, Matches matches) {
  const auto found = std::find_if(list.begin(), list.end(), matches);
  return found == list.end() ? typename List::value_type() : *found;
}

OperationRates RatesOf(const v1::OperationStats& before, const v1::OperationStats& after, const Difference& per) {
  OperationRates rates;
  rates.operation = after.operation();
  rates.requests_per_second = per.PerSecond(before.requests(), after.requests());
  rates.errors_per_second = per.PerSecond(before.errors(), after.errors());
  if (const uint64_t timed = Growth(before.timed(), after.timed()); timed != 0) {
    rates.mean_seconds =
        static_cast<double>(Growth(before.time_ns(), after.time_ns())) / 1e9 / static_cast<double>(timed);
  }
  return rates;
}

NamespaceRates RatesOf(const v1::NamespaceUsage& before, const v1::NamespaceUsage& after, const Difference& per) {
  NamespaceRates rates;
  rates.tenant = after.namespace_().tenant();
  rates.name = after.namespace_().name();
  rates.match_hashes = Growth(before.match_hashes(), after.match_hashes());
  rates.match_hits = Growth(before.match_hits(), after.match_hits());
  rates.hashes_per_second = per.PerSecond(rates.match_hashes);
  rates.saved_tokens_per_second = per.PerSecond(before.saved_tokens(), after.saved_tokens());
  rates.blocks = after.blocks();
  rates.payload_bytes = after.payload_bytes();
  return rates;
}

void AddNamespaces(const NodeSample& before, const NodeSample& after, const Difference& per, NodeRates* rates) {
  using Key = std::pair<std::string, std::string>;
  const auto key_of = [](const v1::NamespaceUsage& usage) {
    return Key(usage.namespace_().tenant(), usage.namespace_().name());
  };
  std::map<Key, const v1::NamespaceUsage*> known;
  for (const v1::NamespaceUsage& usage : before.usage.namespaces()) known[key_of(usage)] = &usage;
  const v1::NamespaceUsage none;
  for (const v1::NamespaceUsage& usage : after.usage.namespaces()) {
    const auto found = known.find(key_of(usage));
    rates->namespaces.push_back(RatesOf(found == known.end() ? none : *found->second, usage, per));
    rates->saved_tokens_per_second += rates->namespaces.back().saved_tokens_per_second;
  }
  std::stable_sort(
      rates->namespaces.begin(), rates->namespaces.end(), [](const NamespaceRates& a, const NamespaceRates& b) {
        return std::tie(a.hashes_per_second, a.payload_bytes) > std::tie(b.hashes_per_second, b.payload_bytes);
      });
}

}  // namespace

NodeRates RatesBetween(const NodeSample& sample_before, const NodeSample& after) {
  NodeRates rates;
  rates.restarted = after.stats.uptime_ms() < sample_before.stats.uptime_ms();
  const NodeSample nothing;
  const NodeSample& before = rates.restarted ? nothing : sample_before;
  rates.seconds = static_cast<double>(after.stats.uptime_ms() - before.stats.uptime_ms()) / 1e3;
  const Difference per(rates.seconds);
  const v1::StatsResponse& was = before.stats;
  const v1::StatsResponse& is = after.stats;
  rates.match_hashes = Growth(was.match_hashes(), is.match_hashes());
  rates.match_hits = Growth(was.match_hits(), is.match_hits());
  rates.hashes_per_second = per.PerSecond(rates.match_hashes);
  rates.get_bytes_per_second = per.PerSecond(was.served_bytes(), is.served_bytes());
  rates.put_bytes_per_second = per.PerSecond(was.stored_bytes(), is.stored_bytes());
  rates.evicted_blocks_per_second = per.PerSecond(was.evicted_blocks(), is.evicted_blocks());
  for (const v1::RefusalCount& refusal : is.refusals()) {
    const auto reason = refusal.reason();
    const auto found = Find(was.refusals(), [=](const v1::RefusalCount& other) { return other.reason() == reason; });
    rates.refusals.push_back({reason, per.PerSecond(found.count(), refusal.count())});
  }
  for (const v1::OperationStats& operation : is.operations()) {
    const auto found = Find(
        was.operations(), [&](const v1::OperationStats& other) { return other.operation() == operation.operation(); });
    rates.operations.push_back(RatesOf(found, operation, per));
    if (operation.operation() == "match") rates.matches_per_second = rates.operations.back().requests_per_second;
  }
  AddNamespaces(before, after, per, &rates);
  return rates;
}

}  // namespace quarry::ctl
