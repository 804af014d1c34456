// SPDX-License-Identifier: Apache-2.0
// The bundle's tokenizer on this device, against the golden texts: tokens that the package `tokenizers` made when it was built.
#pragma once

#include <vector>

#include "format/bundle/bundle.h"
#include "verify/golden_document.h"

namespace bespoke {

// Each text must become its tokens, and these, decoded one by one, the text again, or another that becomes the same tokens: what is not
// normalized comes back normalized, and some tokenizers take the space at the beginning. A text with characters for which there are no
// tokens need not come back. How many were held; none in a bundle of before
// tokenizer.bin. GoldenMismatch naming the text.
size_t hold_texts(Bundle& bundle, const std::vector<GoldenText>& texts);

}  // namespace bespoke
