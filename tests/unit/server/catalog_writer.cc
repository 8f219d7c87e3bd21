// Commits synced batches to the catalog in argv[1] for ever, and prints the number of each once
// it is committed: for the tests, which kill it. Batch n has record n and its payload, in
// extent n / 16, and empties extent n / 16 - 4 when it is the first of its extent.
#include <cstdint>
#include <cstdio>
#include <string>

#include "server/ssd/catalog.h"

int main(int argc, char** argv) {
  using quarry::server::Catalog;
  if (argc != 2) return 2;
  auto catalog = Catalog::Open(argv[1], {});
  if (!catalog.ok()) {
    std::fprintf(stderr, "%s\n", catalog.status().ToString().c_str());
    return 1;
  }
  quarry::server::CatalogBatch batch;
  for (uint32_t n = 0;; ++n) {
    const std::string text = std::to_string(n);
    quarry::server::CatalogRecord record;
    record.extent = n / 16;
    record.page = n % 16;
    record.inlined = true;
    record.root = n;
    record.hash = text;
    if (record.page == 0 && record.extent >= 4) batch.Empty(record.extent - 4);
    batch.Put(record);
    batch.PutPayload(record.extent, record.page, "header ", text);
    if (const absl::Status status = (*catalog)->Commit(&batch, true); !status.ok()) return 1;
    std::printf("%u\n", n);
    std::fflush(stdout);
  }
}
