// SPDX-License-Identifier: Apache-2.0
// A conversation with a personal model. It holds words alone; its model computes, when it is asked to.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "generate/answer.h"
#include "generate/conversation.h"
#include "locks.h"
#include "model/personal_model.h"

namespace bespoke {

class Session {
 public:
  Session(PersonalModel& model, const AnswerSettings& settings);  // GenerationError for a setting out of its range

  // More of the conversation, as JSON: messages, a text or token ids. An answer that has not ended ends here. Where the context has no
  // room for it and an answer, the first time is a GenerationError, later the answer ends before it begins ("context_full"). Where it
  // throws, nothing was taken.
  void feed(const std::string& json);
  // Another token of the answer. GenerationError where nothing was fed since the last one ended. Where it throws,
  // nothing was said, and it may be asked again. Throws Busy while the model computes.
  AnswerPiece next(CallSettings settings);

 private:
  // `longer`, which is `before` with a prompt, or the same with notes before the prompt's question, as many as there is room for.
  Conversation with_notes(const Conversation& before, const Prompt& more, Conversation longer) REQUIRES(in_use_);

  PersonalModel& model_;
  const AnswerSettings settings_;
  Mutex in_use_;
  Conversation conversation_ GUARDED_BY(in_use_);       // without the answer that is being given
  std::optional<Answer> answer_ GUARDED_BY(in_use_);    // to it
  std::optional<int64_t> version_ GUARDED_BY(in_use_);  // of the adapter that gives it
  std::set<int64_t> shown_ GUARDED_BY(in_use_);         // ids of the notes that the conversation has
  bool full_ GUARDED_BY(in_use_) = false;               // what was fed last had no room
};

}  // namespace bespoke
