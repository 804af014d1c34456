// SPDX-License-Identifier: Apache-2.0
// Rows of a conversation that is longer than the longest sequence (tests/support/conversation_rows.py, which says the rule). Each row is a
// conversation of its own: the system message, then neighbouring turns of the whole. Every trained message is trained in one row, and is
// context where another row has it again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "text/turn_tokens.h"
#include "text/turns.h"
#include "token_row.h"

namespace bespoke {

// `truncated`: tokens of messages that are in no row, or only as context where they were to be trained on; `truncated_trained`: those that
// were to be trained on.
struct ConversationRows {
  std::vector<TokenRow> rows;
  uint64_t truncated = 0, truncated_trained = 0;
};

using EncodeMessages = std::function<TurnTokens(const std::vector<Message>&)>;

// Rows of at most `room` tokens; none where no content is trained. `trains`: for each message whether it is trained on. `whole_answers`:
// what is trained on and begins before a row that was cut is left out of it.
ConversationRows conversation_rows(const std::vector<Message>& messages, const std::vector<bool>& trains, const EncodeMessages& encode,
                                   const Turns& turns, std::optional<int32_t> bos, bool whole_answers, size_t room);

}  // namespace bespoke
