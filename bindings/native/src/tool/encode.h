// SPDX-License-Identifier: Apache-2.0
// The verb `encode`: examples become rows of tokens, for a build that has no bundle yet. The request names tokenizer_bin and turns
// (files, or null), train_on, max_length and vocabulary. The answer is {"event": "ready"}; then each line of standard input,
// {"example": ..., "subject": ...}, is answered at once:
//
//   {"event": "rows", "rows": [[tokens, mask], ...], and the counts of EncodedExample}; of a preference
//   [tokens, mask, rejected tokens, rejected mask]
//   {"event": "untrained", "kind": ..., and the parts of the error that says why nothing of it would be trained}
//   {"event": "error", "kind": ..., and its parts}: the example cannot be used
#pragma once

#include <nlohmann/json.hpp>

#include "tool/lines.h"

namespace bespoke {

int encode_examples(const nlohmann::json& request, Lines& lines);  // the exit status

}  // namespace bespoke
