// SPDX-License-Identifier: Apache-2.0
// What a manifest's parts must say of each other, and the pieces that plan and settings share with it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "format/bundle/bundle.h"
#include "format/bundle/manifest.h"

namespace bespoke {

// BundleError if parts contradict each other: names twice, references that lead nowhere. `named`: files that fields name of which
// the manifest keeps nothing.
void check_manifest(const Manifest& manifest, const std::vector<std::string>& named, const std::string& subject);

// BundleError unless a bundle's adapter has the pieces of `lora` and no others, at its rank.
void check_adapter(const Manifest& manifest, const Tensors& pieces);

[[noreturn]] void refuse_manifest(const std::string& subject, const std::string& path, const std::string& got, const std::string& expected);

// Of records that the schema has passed.
Estimate estimate_of(const nlohmann::json& record);
Training training_of(const nlohmann::json& record);

}  // namespace bespoke
