#include "server/metrics/exporter.h"

#include <prometheus/text_serializer.h>

#include <chrono>
#include <sstream>

#include "server/metrics/sections.h"

namespace quarry::server {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void AddNode(Families& out, const ExporterSources& sources) {
  out.Gauge("quarry_build_info", "Always 1; the labels say what is running.");
  out.Add(1, {{"version", sources.version}, {"node", sources.node_name}});
  out.Gauge("quarry_draining", "1 while the node refuses new work.");
  out.Add(sources.draining() ? 1 : 0);
}

}  // namespace

Exporter::Exporter(ExporterSources sources) : sources_(std::move(sources)), start_time_seconds_(NowSeconds()) {}

std::string Exporter::Text() const {
  Families families;
  AddNode(families, sources_);
  AddProcess(families, start_time_seconds_);
  AddService(families, *sources_.service);
  const StoreStats store = sources_.store();
  AddStore(families, store);
  AddSsd(families, store, sources_.disks());
  AddTenants(families, sources_.tenant_bytes());
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families.all());
  return text.str();
}

}  // namespace quarry::server
