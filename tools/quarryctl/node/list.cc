// quarryctl ls: every block of a namespace, printed page by page.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/quarryctl/node/block_rows.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

constexpr uint32_t kPage = 1'000;
constexpr char kHeadings[] = "GROUP       STATE   DEPTH      BYTES  SHARDS  LEASES  HASH\n";

// Columns of fixed width, the longest last: no row waits for another.
std::string TextRow(const v1::BlockInfo& block) {
  return absl::StrFormat("%5u  %10s  %6u  %9u  %6u  %6u  %s\n", block.group(), Name(block.state()), block.depth(),
                         block.bytes(), block.shards_there(), block.leases(), ToHex(block.hash()));
}

std::string JsonRow(const v1::BlockInfo& block) {
  const std::vector<Column> columns = BlockColumns();
  const std::vector<Value> row = BlockRow(block);
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "{" : ", ", "\"", columns[i].key, "\": ", row[i].ToJson());
  }
  return text + "}";
}

class ListCommand : public NodeCommand {
 public:
  std::string name() const override { return "ls"; }
  std::string help() const override { return "Lists every block of a namespace"; }
  void AddFlags(CLI::App* app) override { AddNamespace(app, &ns_); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    auto request = connection->About<v1::ListRequest>(ns_);
    request.set_page_size(kPage);
    bool first_page = true;
    bool first_block = true;
    do {
      const auto page = connection->Call(&v1::Cache::Stub::List, request);
      if (!page.ok()) return page.status();
      if (std::exchange(first_page, false)) context.out << (context.globals.json ? "{\"blocks\": [" : kHeadings);
      for (const v1::BlockInfo& block : page->blocks()) {
        if (context.globals.json) {
          context.out << (std::exchange(first_block, false) ? "\n  " : ",\n  ") << JsonRow(block);
        } else {
          context.out << TextRow(block);
        }
      }
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    if (context.globals.json) context.out << "]}\n";
    return ExitCode::kOk;
  }

 private:
  std::string ns_;
};

}  // namespace

std::unique_ptr<Command> NewListCommand() { return std::make_unique<ListCommand>(); }

}  // namespace quarry::ctl
