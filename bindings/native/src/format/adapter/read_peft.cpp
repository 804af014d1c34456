// SPDX-License-Identifier: Apache-2.0
// What the adapter_config.json of PEFT says of each linear. Rules of matching are those of peft.tuners.tuners_utils and peft.utils.other.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "format/adapter/adapter_file.h"
#include "format/adapter/peft.h"
#include "format/adapter/read_adapter.h"

namespace bespoke {

namespace {

// Settings of PEFT that change what an adapter computes or where it sits; we have none of them, so each must be off.
const std::set<std::string> kMustBeOff = {"alora_invocation_tokens", "fan_in_fan_out",    "layer_replication",      "lora_bias",
                                          "modules_to_save",         "target_parameters", "trainable_token_indices"};
// Settings of an initialization, which `init_lora_weights` names, or of the way of running.
const std::set<std::string> kHarmlessConfigs = {"corda_config", "eva_config", "loftq_config", "lora_ga_config", "runtime_config"};
// Ways of drawing A and B that leave the base's weights as they are. The others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) subtract from the
// weights what the adapter begins with, or quantize them, so such an adapter belongs to weights that no folder holds.
const std::set<std::string> kKeepTheBase = {"eva", "gaussian", "mica", "orthogonal"};
const char* const kConvert =
    "In peft, save it with save_pretrained(..., path_initial_model_for_weight_conversion=FOLDER), where FOLDER holds the adapter as it was "
    "before training: that writes one for the original weights";

bool is_off(const Json& value) {  // what Python takes for false
  if (value.is_number()) return value == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

std::string plain(const Json& value) {  // as `shown`, a text without its quotes
  const std::string text = shown(value);
  return value.is_string() ? text.substr(1, text.rfind('\'') - 1) : text;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void check_kind(const Json& settings, const std::string& path) {
  const Json &kind = member(settings, "peft_type"), &bias = member(settings, "bias"), &drawn = member(settings, "init_lora_weights");
  if (!is_text(kind, "LORA")) refuse(path, "peft_type " + shown(kind), "LORA");
  if (!bias.is_null() && !is_text(bias, "none")) refuse(path, "bias " + shown(bias), "none");
  for (const auto& [field, value] : settings.items()) {
    const bool is_use = field.compare(0, 4, "use_") == 0;
    const bool is_variant = is_use ? field != "use_rslora" : ends_with(field, "_config") && !kHarmlessConfigs.count(field);
    if ((kMustBeOff.count(field) || is_variant) && !is_off(value))
      refuse(path, field.substr(0, 80) + " " + plain(value), "it off: plain LoRA on linears of the blocks");
  }
  if (drawn.is_null() || drawn.is_boolean()) return;
  std::string name = drawn.is_string() ? drawn.get<std::string>() : "";
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (kKeepTheBase.count(name)) return;
  refuse(path, "init_lora_weights " + plain(drawn),
         "true, false, " + joined({kKeepTheBase.begin(), kKeepTheBase.end()}, ", ") +
             ": with others the adapter belongs to other weights than the model's",
         kConvert);
}

// In lists `target_modules` and `exclude_modules`: a module's whole name, or what it ends with behind a dot.
bool is_name_of(const Json& name, const std::string& module) {
  const std::string& text = name.get_ref<const std::string&>();
  return text == module || ends_with(module, "." + text);
}

bool is_in(const Json& names, const std::string& module) {
  return std::any_of(names.begin(), names.end(), [&](const Json& name) { return is_name_of(name, module); });
}

// A key of `rank_pattern` is a regular expression: (.*\.)?(key)$ from the start of a module's name. Taken are names: letters, digits,
// _ and -, with dots, each of which stands for any character. None where it is more than a name.
std::optional<bool> names_module(std::string key, const std::string& module) {
  const bool from_start = !key.empty() && key[0] == '^';
  if (from_start) key.erase(0, 1);
  if (ends_with(key, "$")) key.pop_back();
  std::string literal;
  std::vector<bool> is_any;
  for (size_t i = 0; i < key.size(); i++) {
    const bool is_escaped = key[i] == '\\' && i + 1 < key.size() && key[i + 1] == '.';
    if (is_escaped)
      i++;
    else if (!std::isalnum(static_cast<unsigned char>(key[i])) && key[i] != '_' && key[i] != '-' && key[i] != '.')
      return std::nullopt;
    literal += key[i];
    is_any.push_back(key[i] == '.' && !is_escaped);
  }
  if (literal.size() > module.size()) return false;
  const size_t start = module.size() - literal.size();
  if (start > 0 && (from_start || module[start - 1] != '.')) return false;
  for (size_t i = 0; i < literal.size(); i++)
    if (!is_any[i] && literal[i] != module[start + i]) return false;
  return true;
}

class Numbers {  // `r` and `rank_pattern`, or `lora_alpha` and `alpha_pattern`
 public:
  Numbers(const Json& settings, const char* field, const char* pattern_field, const std::string& path)
      : field_(field), pattern_field_(pattern_field), path_(path), all_(member(settings, field)),
        pattern_(member(settings, pattern_field)) {
    check(all_, field_ + " " + shown(all_));
    if (!is_off(pattern_) && !pattern_.is_object()) refuse(path, pattern_field_ + " " + shown(pattern_), "an object");
  }

  const Json& of(const std::string& module, std::string& setting) const {
    const Json* found = &all_;
    setting = field_ + " " + shown(all_);
    if (is_off(pattern_)) return *found;
    for (const auto& [key, value] : pattern_.items()) {
      const std::string said = pattern_field_ + " " + key.substr(0, 80) + ": " + shown(value);
      const std::optional<bool> is_named = names_module(key, module);
      if (!is_named) refuse(path_, said, "names of modules, no patterns of names", "Write each module's name into " + pattern_field_);
      if (!*is_named) continue;
      check(value, said);
      if (found != &all_ && *found != value) refuse(path_, said + ", and another number for " + module, "one number for a module");
      found = &value;
      setting = said;
    }
    return *found;
  }

 private:
  void check(const Json& value, const std::string& said) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(path_, said, "a number");
  }

  const std::string field_, pattern_field_, path_;
  const Json &all_, &pattern_;
};

class Places {  // which modules the settings say that there are
 public:
  Places(const Json& settings, const std::string& path, const Manifest& manifest)
      : targets_(member(settings, "target_modules")), excluded_(member(settings, "exclude_modules")),
        layers_(member(settings, "layers_to_transform")), path_(path), linears_(manifest.lora_linears) {
    std::sort(linears_.begin(), linears_.end());
    // A pattern, or "all-linear": the names of the tensors, which are checked one by one, say what it meant.
    if (!targets_.is_string() && (!are_texts(targets_) || targets_.empty())) refuse_targets(plain(targets_));
    if (!is_off(excluded_) && !are_texts(excluded_)) refuse(path, "exclude_modules " + plain(excluded_), "a list of names");
    if (!is_off(layers_) && !layers_.is_array() && !layers_.is_number_integer())
      refuse(path, "layers_to_transform " + plain(layers_), "a number or a list of numbers");
    const Json& pattern = member(settings, "layers_pattern");
    const Json& first = pattern.is_array() && pattern.size() == 1 ? pattern[0] : pattern;
    const bool is_usual = is_off(pattern) || is_text(first, "layers");
    if (!has_all_layers() && !is_usual) refuse(path, "layers_pattern " + plain(pattern), "layers, which is where the model has its blocks");
  }

  // Every name in `target_modules` stands for one of these modules, the bundle's.
  void check_targets(const std::vector<std::string>& modules) const {
    if (targets_.is_string()) return;
    for (const Json& target : targets_)
      if (std::none_of(modules.begin(), modules.end(), [&](const std::string& module) { return is_name_of(target, module); }))
        refuse_targets("with " + shown(target));
  }

  void place(ForeignLinear& linear, const std::string& module, int64_t block) const {
    if (!targets_.is_string() && !is_in(targets_, module))
      linear.left_out = "target_modules " + plain(targets_);
    else if (!is_off(excluded_) && is_in(excluded_, module))
      linear.left_out = "exclude_modules " + plain(excluded_);
    else if (!has_layer(block))
      linear.left_out = "layers_to_transform " + plain(layers_);
    linear.is_due = !targets_.is_string() && linear.left_out.empty();
  }

 private:
  bool has_all_layers() const { return layers_.is_null() || (layers_.is_array() && layers_.empty()); }
  bool has_layer(int64_t block) const {
    if (has_all_layers()) return true;
    if (!layers_.is_array()) return layers_ == block;
    return std::any_of(layers_.begin(), layers_.end(), [&](const Json& layer) { return layer == block; });
  }
  [[noreturn]] void refuse_targets(const std::string& what) const {
    refuse(path_, "target_modules " + what, joined(linears_, ", ") + ", as the bundle has");
  }

  const Json &targets_, &excluded_, &layers_;
  const std::string path_;
  std::vector<std::string> linears_;
};

}  // namespace

ForeignAdapter peft_adapter(const Json& settings, const std::string& path, const Manifest& manifest, const std::set<std::string>& linears) {
  check_kind(settings, path);
  const Numbers ranks(settings, "r", "rank_pattern", path), alphas(settings, "lora_alpha", "alpha_pattern", path);
  const Places places(settings, path, manifest);
  const bool is_root = !is_off(member(settings, "use_rslora"));  // rank-stabilized: alpha / sqrt(r)
  ForeignAdapter adapter{kPeftWeights, false, {}};
  std::vector<std::string> modules;
  for (const std::string& name : linears) {
    const AdapterPiece piece = piece_named(name + ".lora_A");
    const std::string module = peft_module(piece, manifest);
    modules.push_back(module);
    std::string rank_setting, alpha_setting;
    const Json& rank = ranks.of(module, rank_setting);
    const double alpha = alphas.of(module, alpha_setting).get<double>();
    if (!rank.is_number_integer() || rank < 1 || rank > INT32_MAX) refuse(path, rank_setting, "a whole number, at least 1");
    const auto r = rank.get<int64_t>();
    const double divisor = is_root ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r);
    const std::string key = "base_model.model." + module;
    ForeignLinear linear{key + ".lora_A.weight", key + ".lora_B.weight", r, rank_setting, alpha / divisor, false, ""};
    places.place(linear, module, piece.block);
    adapter.linears.emplace(name, std::move(linear));
  }
  places.check_targets(modules);
  return adapter;
}

}  // namespace bespoke
