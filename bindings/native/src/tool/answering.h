// SPDX-License-Identifier: Apache-2.0
// The verb `answer`: sessions with an open model, as long as standard input is. It says {"event": "ready"}; then each of these lines, which
// have an "order" of their own, is answered in their sequence by {"event": "done"}, {"event": "found", "found": ...} or {"event": "error",
// ...}, with the same "order"; after an error it goes on. {"do": "cancel"} ends the order that was given last.
//
//   {"do": "open", "session": NUMBER, "max_tokens": ..., "temperature": ..., "top_p": ..., "top_k": ..., "seed": ..., "stop_texts": [...],
//    "notes": true or false}
//   {"do": "feed", "session": NUMBER, "prompt": messages, a text or token ids}
//   {"do": "next", "session": NUMBER}: finds a piece
//   {"do": "close", "session": NUMBER}
//   {"do": "score", "prompt": as above, "answers": [...]}, or "classify"
#pragma once

#include "bespoke.h"
#include "tool/inbox.h"

namespace bespoke {

void answer(bespoke_model* model, Inbox& inbox);

}  // namespace bespoke
