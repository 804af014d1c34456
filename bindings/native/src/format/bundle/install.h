// SPDX-License-Identifier: Apache-2.0
// Archives of a bundle become the folder that an app opens, in the place of an older bundle or of nothing.
#pragma once

#include <string>
#include <vector>

#include "format/bundle/bundle.h"

namespace bespoke {

// Joins stored zips (sdk/bespoke/bundle/archive.py) into the bundle `folder`. What they lack is taken from the bundle that is there,
// where its hash fits. Every hash is checked, and manifest.json by `trust`. Killed anywhere it leaves the old bundle whole, or the new
// one; what it left is removed by the next. BundleError and its kinds: nothing was changed.
void install_bundle(const std::vector<std::string>& archives, const std::string& folder, const Trust& trust);

}  // namespace bespoke
