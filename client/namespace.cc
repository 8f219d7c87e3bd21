#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/namespace_state.h"

namespace quarry {
namespace {

const Namespace::State& StateOrEmpty(const std::shared_ptr<const Namespace::State>& state) {
  static const auto* empty = new Namespace::State(0, "", "", ModelSpec(), {}, 0);
  return state == nullptr ? *empty : *state;
}

}  // namespace

Namespace::State::State(uint64_t opened_by, std::string own_name, std::string own_id, ModelSpec own_spec,
                        std::vector<std::string> differing, uint64_t own_ttl_ms)
    : owner(opened_by),
      name(std::move(own_name)),
      id(std::move(own_id)),
      spec(std::move(own_spec)),
      differing_fields(std::move(differing)),
      ttl_ms(own_ttl_ms) {}

void Namespace::State::Bind(uint32_t session, uint32_t handle) {
  binding_.store(uint64_t{session} << 32 | handle, std::memory_order_release);
}

void Namespace::State::FailBinding(absl::Status why) {
  std::lock_guard lock(mutex_);
  failure_ = std::move(why);
}

absl::StatusOr<uint32_t> Namespace::State::HandleIn(uint32_t session) const {
  const uint64_t binding = binding_.load(std::memory_order_acquire);
  if (binding >> 32 == session) return static_cast<uint32_t>(binding);
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) {
    return absl::Status(
        failure_.code(),
        absl::StrCat("namespace '", name, "' could not be opened again: ", absl::string_view(failure_.message())));
  }
  return absl::UnavailableError(absl::StrCat("namespace '", name, "' is being opened again"));
}

absl::Status CheckPrefillRate(double tokens_per_second) {
  if (std::isfinite(tokens_per_second) && tokens_per_second >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prefill_tokens_per_second: ", tokens_per_second, " is no number from 0"));
}

Namespace NamespaceAccess::Make(std::shared_ptr<const Namespace::State> state) {
  Namespace ns;
  ns.state_ = std::move(state);
  return ns;
}

Namespace::Namespace() = default;
Namespace::~Namespace() = default;
Namespace::Namespace(const Namespace&) = default;
Namespace& Namespace::operator=(const Namespace&) = default;

const std::string& Namespace::name() const { return StateOrEmpty(state_).name; }
const std::string& Namespace::id() const { return StateOrEmpty(state_).id; }
const ModelSpec& Namespace::spec() const { return StateOrEmpty(state_).spec; }
const std::vector<std::string>& Namespace::differing_fields() const { return StateOrEmpty(state_).differing_fields; }

absl::Status Namespace::TellPrefillRate(double tokens_per_second) const {
  if (state_ == nullptr) return absl::InvalidArgumentError("namespace: not opened");
  if (absl::Status status = CheckPrefillRate(tokens_per_second); !status.ok()) return status;
  state_->prefill_tokens_per_second.store(tokens_per_second, std::memory_order_relaxed);
  return absl::OkStatus();
}

uint64_t Namespace::ttl_ms() const { return StateOrEmpty(state_).ttl_ms; }

}  // namespace quarry
