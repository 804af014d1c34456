// SPDX-License-Identifier: Apache-2.0
#include "model/session.h"

#include <algorithm>

#include "exec/fitting_plans.h"
#include "model/answering.h"
#include "model/noted_prompt.h"

namespace bespoke {

namespace {

constexpr size_t kMostNotes = 3;   // to a question
constexpr size_t kNotesShare = 4;  // they take at most one part in so many of the context; an answer of any length is left as much

std::string tokens_of(size_t count) { return std::to_string(count) + " tokens"; }

class BESPOKE_LOCKS(scoped_lockable) InUse {  // by one call: Busy for another one
 public:
  explicit InUse(Mutex& mutex) ACQUIRE(mutex) UNCHECKED_LOCKS : mutex_(mutex) {
    if (!mutex.try_lock())
      throw Error(Kind::Busy, "the session", "a call while another one runs", "one call at a time",
                  "Wait until it has ended, or cancel it");
  }
  ~InUse() RELEASE() UNCHECKED_LOCKS { mutex_.unlock(); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace

Session::Session(PersonalModel& model, const AnswerSettings& settings)
    : model_(model), settings_(settings), conversation_(model.text().encoder()) {
  plan_for_answers(model.manifest(), Limits());
  check(settings_);
}

void Session::feed(const std::string& json) {
  const InUse held(in_use_);
  const Prompt more = model_.text().read_prompt(json);
  const Conversation before = answer_ ? conversation_.with_answer(answer_->text(), answer_->tokens()) : conversation_;
  Conversation longer = before.with(more);
  const auto context = static_cast<size_t>(model_.manifest().context_length);
  const size_t tokens = longer.tokens().size();
  const bool first = conversation_.tokens().empty();
  if (tokens == 0 || (first && tokens >= context))
    throw Error(Kind::Generation, "prompt", tokens_of(tokens),
                "1 to " + tokens_of(context - 1) + ", so that an answer fits into the context of " + std::to_string(context),
                tokens ? "Shorten the prompt, or build the bundle with a larger context" : "Give at least one token");
  full_ = tokens >= context;
  if (full_) return;
  if (settings_.notes) longer = with_notes(before, more, std::move(longer));
  conversation_ = std::move(longer);
  version_.reset();
  AnswerSettings settings = settings_;
  const std::string stop_text = model_.text().encoder().stop_text(more);
  if (!stop_text.empty()) settings.stop_texts.push_back(stop_text);
  answer_.emplace(conversation_.tokens(), settings, AnswerLimits{model_.manifest().text.stop_ids, context}, model_.text().tokenizer());
}

Conversation Session::with_notes(const Conversation& before, const Prompt& more, Conversation longer) {
  const std::string question = question_of(more);
  if (question.empty()) return longer;
  const auto context = static_cast<size_t>(model_.manifest().context_length);
  const size_t share = context / kNotesShare, answer = settings_.max_tokens ? static_cast<size_t>(settings_.max_tokens) : share;
  const size_t most = std::min(longer.tokens().size() + share, context - std::min(answer, context));
  std::vector<std::string> words;
  for (const Note& note : model_.nearest_notes(question, kMostNotes + shown_.size())) {
    if (words.size() == kMostNotes) break;
    if (shown_.count(note.id)) continue;
    words.push_back(note.words);
    Conversation noted = before.with(bespoke::with_notes(more, words));
    if (noted.tokens().size() > most) {
      words.pop_back();
      continue;
    }
    longer = std::move(noted);
    shown_.insert(note.id);
  }
  return longer;
}

AnswerPiece Session::next(CallSettings settings) {
  const InUse held(in_use_);
  if (full_) return {"", std::nullopt, 0, AnswerEnd::context_full};
  if (!answer_ || answer_->ended())
    throw Error(Kind::Generation, "the session", answer_ ? "an answer that has ended" : "nothing to answer", "something to answer",
                "Feed it messages, a text or token ids first");
  AnswerPiece piece;
  model_.answer(std::move(settings), [&](Answering& answering) REQUIRES(in_use_) {
    const Draft draft = [&](size_t most) REQUIRES(in_use_) { return answer_->draft(most); };
    piece = answer_->next(answering.next_logits(answer_->seen(), version_, draft));
    if (piece.stopped_because) answering.end_answer();
  });
  return piece;
}

}  // namespace bespoke
