#include <iterator>

#include "rocksdb/comparator.h"
#include "server/ssd/catalog_impl.h"

namespace quarry::server {
namespace {

// A batch is filled without a catalog at hand. Of a family's handle RocksDB's WriteBatch asks
// only the number and the comparator; Open makes sure that the families have these numbers.
class FamilyNumber : public rocksdb::ColumnFamilyHandle {
 public:
  explicit FamilyNumber(CatalogFamily family)
      : number_(static_cast<uint32_t>(family)), name_(kCatalogFamilyNames[number_]) {}

  const std::string& GetName() const override { return name_; }
  uint32_t GetID() const override { return number_; }
  rocksdb::Status GetDescriptor(rocksdb::ColumnFamilyDescriptor*) override { return rocksdb::Status::NotSupported(); }
  const rocksdb::Comparator* GetComparator() const override { return rocksdb::BytewiseComparator(); }

 private:
  uint32_t number_;
  std::string name_;
};

rocksdb::ColumnFamilyHandle* Family(CatalogFamily family) {
  static FamilyNumber* const families[] = {
      new FamilyNumber(CatalogFamily::kDefault), new FamilyNumber(CatalogFamily::kNamespaces),
      new FamilyNumber(CatalogFamily::kExtents), new FamilyNumber(CatalogFamily::kBlocks),
      new FamilyNumber(CatalogFamily::kPayloads)};
  return families[static_cast<size_t>(family)];
}

rocksdb::Slice AsSlice(absl::string_view bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace

CatalogBatch::CatalogBatch() : impl_(std::make_unique<Impl>()) {}
CatalogBatch::~CatalogBatch() = default;
CatalogBatch::CatalogBatch(CatalogBatch&&) noexcept = default;
CatalogBatch& CatalogBatch::operator=(CatalogBatch&&) noexcept = default;

void CatalogBatch::Put(const CatalogRecord& record) {
  impl_->Note(
      impl_->writes.Put(Family(CatalogFamily::kBlocks), PlaceKey(record.extent, record.page), EncodeRecord(record)));
}

void CatalogBatch::PutPayload(uint32_t extent, uint32_t page, absl::string_view header, absl::string_view payload) {
  const std::string key = PlaceKey(extent, page);
  const rocksdb::Slice key_part(key);
  const rocksdb::Slice parts[] = {{&kPayloadVersion, 1}, AsSlice(header), AsSlice(payload)};
  impl_->Note(impl_->writes.Put(Family(CatalogFamily::kPayloads), rocksdb::SliceParts(&key_part, 1),
                                rocksdb::SliceParts(parts, static_cast<int>(std::size(parts)))));
}

void CatalogBatch::Remove(uint32_t extent, uint32_t page, bool inlined) {
  const std::string key = PlaceKey(extent, page);
  impl_->Note(impl_->writes.Delete(Family(CatalogFamily::kBlocks), key));
  if (inlined) impl_->Note(impl_->writes.Delete(Family(CatalogFamily::kPayloads), key));
}

void CatalogBatch::Put(const CatalogExtent& extent) {
  impl_->Note(impl_->writes.Put(Family(CatalogFamily::kExtents), NumberKey(extent.number), EncodeExtent(extent)));
}

void CatalogBatch::Empty(uint32_t extent) {
  for (const CatalogFamily family : {CatalogFamily::kBlocks, CatalogFamily::kPayloads}) {
    impl_->Note(impl_->writes.DeleteRange(Family(family), NumberKey(extent), KeyBehind(extent)));
  }
}

void CatalogBatch::Put(const CatalogNamespace& ns) {
  impl_->Note(impl_->writes.Put(Family(CatalogFamily::kNamespaces), NumberKey(ns.number), EncodeNamespace(ns)));
}

void CatalogBatch::RemoveNamespace(uint32_t number) {
  impl_->Note(impl_->writes.Delete(Family(CatalogFamily::kNamespaces), NumberKey(number)));
}

}  // namespace quarry::server
