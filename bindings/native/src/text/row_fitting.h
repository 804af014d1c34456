// SPDX-License-Identifier: Apache-2.0
// A row that is longer than the longest sequence (tests/support/row_fitting.py). What follows the last trained token goes first. An
// answer that fits stays whole, and of its prompt the end. Of an answer that does not fit by itself the beginning stays, without what would
// end it, behind half a row of prompt, or all of a shorter one: so a model learns how such an answer begins, and not to stop there. A token
// of bos stays in front. Older answers are trained on from their beginning or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "token_row.h"

namespace bespoke {

size_t trained_end(const std::vector<uint8_t>& mask);  // behind the last trained token

// How many tokens of a prompt find room before an answer, of `room` for both.
size_t prompt_room(size_t prompt, size_t answer, size_t room);

// At most `room` tokens of a row whose answer begins at `answer`: `prompt` tokens before it, and the answer as far as there is room.
TokenRow with_prompt_of(const TokenRow& row, size_t answer, size_t prompt, bool with_bos, size_t room);

// At most `room` tokens of a row whose answers are its trained stretches. `whole_answers`: one that begins before the row is left out.
TokenRow fitted(const TokenRow& row, bool with_bos, bool whole_answers, size_t room);

// Which tokens of a row with this mask `fitted` keeps: from the first of these to before the second, and bos where the first is not 0.
std::pair<size_t, size_t> fitted_range(const std::vector<uint8_t>& mask, bool with_bos, bool whole_answers, size_t room);

// Bos, where the row has it and loses more than that, then the tokens from `begin` to before `end`.
TokenRow kept_of(const TokenRow& row, size_t begin, size_t end, bool with_bos);

}  // namespace bespoke
