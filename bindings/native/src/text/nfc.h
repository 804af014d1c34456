// SPDX-License-Identifier: Apache-2.0
// Unicode's canonical composition (NFC, UAX 15), by the tables of a tokenizer.bin.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer_file.h"

namespace bespoke {

// `text` in NFC: `text` itself where nothing changes, else what is put into `kept`.
std::string_view to_nfc(const TokenizerFile& file, std::string_view text, std::string& kept);

}  // namespace bespoke
