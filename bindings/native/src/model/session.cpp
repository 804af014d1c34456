// SPDX-License-Identifier: Apache-2.0
#include "model/session.h"

#include "exec/fitting_plans.h"
#include "model/answering.h"
#include "model/records_json.h"

namespace bespoke {

namespace {

std::string tokens_of(size_t count) { return std::to_string(count) + " tokens"; }

}  // namespace

Session::Session(PersonalModel& model, const AnswerSettings& settings)
    : model_(model), settings_(settings), conversation_(model.text().encoder()) {
  plan_for_answers(model.manifest(), Limits());
  check(settings_);
}

void Session::feed(const std::string& json) {
  const auto held = alone();
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
  conversation_ = std::move(longer);
  version_.reset();
  AnswerSettings settings = settings_;
  const std::string stop_text = model_.text().encoder().stop_text(more);
  if (!stop_text.empty()) settings.stop_texts.push_back(stop_text);
  answer_.emplace(conversation_.tokens(), settings, AnswerLimits{model_.manifest().text.stop_ids, context}, model_.text().tokenizer());
}

std::string Session::next(CallSettings settings) {
  const auto held = alone();
  if (full_) return record_json(AnswerPiece{"", std::nullopt, 0, AnswerEnd::context_full});
  if (!answer_ || answer_->ended())
    throw Error(Kind::Generation, "the session", answer_ ? "an answer that has ended" : "nothing to answer", "something to answer",
                "Feed it messages, a text or token ids first");
  return model_.answer(std::move(settings), [&](Answering& answering) {
    const AnswerPiece piece = answer_->next(answering.next_logits(answer_->seen(), version_));
    if (piece.stopped_because) answering.end_answer();
    return record_json(piece);
  });
}

std::unique_lock<std::mutex> Session::alone() {
  std::unique_lock<std::mutex> held(in_use_, std::try_to_lock);
  if (held) return held;
  throw Error(Kind::Busy, "the session", "a call while another one runs", "one call at a time", "Wait until it has ended, or cancel it");
}

}  // namespace bespoke
