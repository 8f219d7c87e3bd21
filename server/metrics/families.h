// Builds the metric families of a scrape. Private to server/metrics.
#ifndef QUARRY_SERVER_METRICS_FAMILIES_H_
#define QUARRY_SERVER_METRICS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "server/metrics/histogram.h"

namespace quarry::server {

using Labels = std::vector<prometheus::ClientMetric::Label>;

class Families {
 public:
  // The next additions go to a family of this name and type.
  void Counter(std::string name, std::string help);
  void Gauge(std::string name, std::string help);
  void Histogram(std::string name, std::string help);

  void Add(double value, Labels labels = {});
  void Add(const HistogramSnapshot& snapshot, Labels labels);

  const std::vector<prometheus::MetricFamily>& all() const { return families_; }

 private:
  void Begin(std::string name, std::string help, prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_FAMILIES_H_
