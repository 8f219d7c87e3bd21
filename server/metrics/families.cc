#include "server/metrics/families.h"

namespace quarry::server {

void Families::Begin(std::string name, std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  families_.push_back(std::move(family));
}

void Families::Counter(std::string name, std::string help) {
  Begin(std::move(name), std::move(help), prometheus::MetricType::Counter);
}

void Families::Gauge(std::string name, std::string help) {
  Begin(std::move(name), std::move(help), prometheus::MetricType::Gauge);
}

void Families::Histogram(std::string name, std::string help) {
  Begin(std::move(name), std::move(help), prometheus::MetricType::Histogram);
}

void Families::Add(double value, Labels labels) {
  prometheus::MetricFamily& family = families_.back();
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

void Families::Add(const HistogramSnapshot& snapshot, Labels labels) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    cumulative += snapshot.counts[i];
    metric.histogram.bucket.push_back({cumulative, snapshot.upper_bounds[i]});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = snapshot.sum;
  families_.back().metric.push_back(std::move(metric));
}

}  // namespace quarry::server
