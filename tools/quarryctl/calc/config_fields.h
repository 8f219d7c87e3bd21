// Typed access to the fields of a Hugging Face config.json.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_CONFIG_FIELDS_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_CONFIG_FIELDS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quarry::ctl {

// Looks a field up in `text_config` where there is one (multimodal models), else at the top,
// else among the defaults of the model's class in transformers that published files rely on.
// null counts as absent. Errors are InvalidArgument and name the field and its bound.
class ConfigFields {
 public:
  // InvalidArgument: not JSON, or not an object.
  static absl::StatusOr<ConfigFields> Parse(const std::string& json);
  // From flags; `flags` gives the flag that stands for a field, for messages.
  ConfigFields(nlohmann::json config, std::map<std::string, std::string> flags);

  // "" when absent.
  const std::string& model_type() const { return model_type_; }

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  absl::StatusOr<uint64_t> Number(const std::string& name, uint64_t least, uint64_t most) const;
  // `absent` where there is none.
  absl::StatusOr<uint64_t> NumberOr(const std::string& name, uint64_t absent, uint64_t least, uint64_t most) const;
  absl::StatusOr<bool> BoolOr(const std::string& name, bool absent) const;
  absl::StatusOr<std::string> Text(const std::string& name) const;
  bool IsText(const std::string& name) const;
  absl::StatusOr<std::vector<std::string>> Texts(const std::string& name) const;
  absl::StatusOr<std::vector<uint64_t>> Numbers(const std::string& name) const;

  // What a message calls the field.
  std::string Shown(const std::string& name) const;
  absl::Status Missing(const std::string& name) const;

 private:
  const nlohmann::json* Find(const std::string& name) const;
  absl::Status Wrong(const std::string& name, const std::string& what) const;

  nlohmann::json top_;
  nlohmann::json text_;      // an object, maybe empty
  nlohmann::json defaults_;  // an object, maybe empty
  std::map<std::string, std::string> flags_;
  std::string model_type_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_CONFIG_FIELDS_H_
