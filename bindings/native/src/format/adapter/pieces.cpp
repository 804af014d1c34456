// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/pieces.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace bespoke {

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t extent : shape) out += (out.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + out + "]";
}

std::string AdapterPiece::part() const {
  const bool is_attention = linear == "q_proj" || linear == "k_proj" || linear == "v_proj" || linear == "o_proj";
  return is_attention ? "self_attn" : "mlp";
}

AdapterPiece piece_named(const std::string& name) {
  const size_t first = name.find('.'), second = name.find('.', first + 1);
  const std::string group = name.substr(0, first), prefix = "block_";
  const bool is_block = group.size() > prefix.size() && group.compare(0, prefix.size(), prefix) == 0 && group.size() < prefix.size() + 10 &&
                        group.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
  if (first == std::string::npos || second == std::string::npos || !is_block) {
    throw Error(Kind::Adapter, "piece " + name.substr(0, 100), "a name of another form", "one like block_00.q_proj.lora_A",
                "Build the bundle again with bespoke");
  }
  return {std::stoi(group.substr(prefix.size())), name.substr(first + 1, second - first - 1), name.substr(second + 1)};
}

void check_names(const std::string& subject, const std::set<std::string>& got, const std::set<std::string>& expected,
                 const Manifest& manifest) {
  std::vector<std::string> missing, extra, parts;
  std::set_difference(expected.begin(), expected.end(), got.begin(), got.end(), std::back_inserter(missing));
  std::set_difference(got.begin(), got.end(), expected.begin(), expected.end(), std::back_inserter(extra));
  const auto more = [](const std::vector<std::string>& names, const char* end) {
    return names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" + end : "";
  };
  if (!missing.empty()) parts.push_back("no " + missing[0] + more(missing, " missing"));
  if (!extra.empty()) parts.push_back("an unknown " + extra[0] + more(extra, ""));
  if (parts.empty()) return;
  throw Error(Kind::Adapter, subject, joined(parts, "; "),
              std::to_string(expected.size()) + " tensors: lora_A and lora_B of " + joined(manifest.lora_linears, ", ") + " of every block",
              "Give an adapter of this model, on these linears");
}

std::vector<AdapterPiece> pieces_of(const Tensors& adapter, const Tensors& initial, const Manifest& manifest) {
  std::set<std::string> got, expected;
  for (const auto& [name, _] : adapter) got.insert(name);
  for (const auto& [name, _] : initial) expected.insert(name);
  check_names("the adapter to export", got, expected, manifest);
  std::vector<AdapterPiece> pieces;
  for (const auto& [name, tensor] : adapter) {
    const Tensor& wanted = initial.at(name);
    if (tensor.dtype != DType::float32 || tensor.shape != wanted.shape)
      throw Error(Kind::Adapter, "piece " + name, kDTypeNames[static_cast<size_t>(tensor.dtype)] + (" " + shape_text(tensor.shape)),
                  "float32 " + shape_text(wanted.shape), "Give the pieces of this model at this rank");
    pieces.push_back(piece_named(name));
    pieces.back().tensor = &tensor;
  }
  return pieces;
}

std::function<void(const std::string&)> replaces_only(std::vector<std::string> files) {
  return [files = std::move(files)](const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (std::find(files.begin(), files.end(), name) != files.end()) continue;
      throw Error(Kind::Adapter, folder, "a path that holds other files", "a new folder, or one with only " + joined(files, " and "),
                  "Choose another folder");
    }
  };
}

}  // namespace bespoke
