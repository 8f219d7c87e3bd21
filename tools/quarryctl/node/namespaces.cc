// quarryctl namespaces [ttl NAMESPACE TIME | flush|retire NAMESPACE --yes]
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/units.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

// A verb that empties a namespace.
struct Verb {
  CLI::App* app = nullptr;
  std::string ns;
  bool yes = false;

  void AddTo(CLI::App* parent, const std::string& name, const std::string& help) {
    app = parent->add_subcommand(name, help);
    app->fallthrough();
    AddNamespace(app, &ns);
    // Not from a variable or a file: it is meant each time.
    app->add_flag("--yes", yes, "Really")->configurable(false);
  }
};

// How long blocks of a namespace are found.
struct TtlVerb {
  static constexpr char kNone[] = "none";

  CLI::App* app = nullptr;
  std::string ns;
  std::string time;

  void AddTo(CLI::App* parent) {
    app = parent->add_subcommand("ttl", "Sets how long blocks of a namespace are found after they were stored");
    app->fallthrough();
    AddNamespace(app, &ns);
    app->add_option("TIME", time, "1s to ten years, or none")->required()->configurable(false);
  }

  // InvalidArgument names the argument; the server knows the bounds.
  absl::StatusOr<uint64_t> Milliseconds() const {
    if (time == kNone) return 0;
    const absl::StatusOr<int64_t> ns_of_time = ParseDuration(time);
    if (!ns_of_time.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("TIME: ", absl::string_view(ns_of_time.status().message())));
    }
    if (*ns_of_time < kNsPerMs) return absl::InvalidArgumentError("TIME: less than 1ms; none is written as \"none\"");
    return static_cast<uint64_t>(*ns_of_time / kNsPerMs);
  }
};

class NamespacesCommand : public NodeCommand {
 public:
  std::string name() const override { return "namespaces"; }
  std::string help() const override {
    return "Lists namespaces with what they hold and saved; limits and empties them";
  }
  void AddFlags(CLI::App* app) override {
    app->require_subcommand(0, 1);
    ttl_.AddTo(app);
    flush_.AddTo(app, "flush", "Empties a namespace");
    retire_.AddTo(app, "retire", "Empties a namespace and frees its name");
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    if (ttl_.app->parsed()) return SetTtl(connection, context);
    if (flush_.app->parsed()) {
      return Empty(&v1::Admin::Stub::FlushNamespace, flush_, connection, context);
    }
    if (retire_.app->parsed()) {
      return Empty(&v1::Admin::Stub::RetireNamespace, retire_, connection, context);
    }
    return List(connection, context);
  }

 private:
  absl::StatusOr<ExitCode> SetTtl(Connection* connection, const Context& context) {
    const absl::StatusOr<uint64_t> ttl_ms = ttl_.Milliseconds();
    if (!ttl_ms.ok()) return ttl_ms.status();
    auto request = connection->About<v1::SetNamespaceTtlRequest>(ttl_.ns);
    request.set_ttl_ms(*ttl_ms);
    const auto done = connection->Call(&v1::Admin::Stub::SetNamespaceTtl, request);
    if (!done.ok()) return done.status();
    Report report;
    report.Add("namespace", "namespace", Value::Text(ttl_.ns));
    report.Add("ttl_seconds", "time to live", Ttl(*ttl_ms));
    context.Print(report);
    return ExitCode::kOk;
  }

  static Value Ttl(uint64_t ms) {
    constexpr double kMsPerSecond = 1'000;
    return ms == 0 ? Value::None(TtlVerb::kNone) : Value::Seconds(static_cast<double>(ms) / kMsPerSecond);
  }

  template <typename Request, typename Response>
  static absl::StatusOr<ExitCode> Empty(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                                Response*),
                                        const Verb& verb, Connection* connection, const Context& context) {
    if (!verb.yes) {
      return absl::InvalidArgumentError(
          absl::StrCat(verb.app->get_name(), ": this drops every block of \"", verb.ns, "\"; say --yes"));
    }
    const auto done = connection->Call(method, connection->About<Request>(verb.ns));
    if (!done.ok()) return done.status();
    Report report;
    report.Add("namespace", "namespace", Value::Text(verb.ns));
    report.Add("dropped_blocks", "dropped blocks", Value::Count(done->blocks()));
    context.Print(report);
    return ExitCode::kOk;
  }

  static absl::StatusOr<ExitCode> List(Connection* connection, const Context& context) {
    v1::ListNamespacesRequest request;
    request.set_tenant(connection->tenant());
    const auto list = connection->Call(&v1::Admin::Stub::ListNamespaces, request);
    if (!list.ok()) return list.status();
    Table table({{"tenant", "TENANT"},
                 {"name", "NAMESPACE"},
                 {"engine", "ENGINE"},
                 {"model", "MODEL"},
                 {"kv_dtype", "DTYPE"},
                 {"hash_bytes", "HASH"},
                 {"blocks", "BLOCKS"},
                 {"payload_bytes", "PAYLOAD"},
                 {"ttl_seconds", "TTL"},
                 {"hit_ratio", "HITS"},
                 {"saved_tokens", "SAVED TOKENS"},
                 {"groups", "groups: ", /*below=*/true}});
    for (const v1::NamespaceUsage& usage : list->namespaces()) {
      const v1::NamespaceInfo& ns = usage.namespace_();
      const std::string groups = absl::StrJoin(
          ns.spec().groups(), "; ", [](std::string* out, const v1::GroupSpec& group) { out->append(Describe(group)); });
      table.AddRow({Value::Text(ns.tenant()), Value::Text(ns.name()), Value::Text(ns.spec().engine()),
                    Value::Text(ns.spec().model()), Value::Text(ns.spec().kv_dtype()),
                    Value::Bytes(ns.spec().hash_bytes()), Value::Count(usage.blocks()),
                    Value::Bytes(usage.payload_bytes()), Ttl(ns.ttl_ms()),
                    Value::Ratio(usage.match_hits(), usage.match_hashes()), Value::Count(usage.saved_tokens()),
                    Value::Text(groups)});
    }
    Report report;
    report.Add("namespaces", std::move(table));
    context.Print(report);
    return ExitCode::kOk;
  }

  TtlVerb ttl_;
  Verb flush_;
  Verb retire_;
};

}  // namespace

std::unique_ptr<Command> NewNamespacesCommand() { return std::make_unique<NamespacesCommand>(); }

}  // namespace quarry::ctl
