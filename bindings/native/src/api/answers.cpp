// SPDX-License-Identifier: Apache-2.0
// Answers in the C API: sessions, and answers that are given.
#include <nlohmann/json.hpp>

#include "api/errors.h"
#include "api/handles.h"
#include "format/json.h"
#include "model/scoring.h"

using namespace bespoke;

namespace {

std::vector<std::string> texts_of(const std::string& json) {
  if (json.empty()) return {};
  const JsonRules rules = {"stop_texts", Kind::Generation, "Give them as a JSON array of texts", 1 << 20, 2, 1000};
  const OwnedJson listed = parse_json(bytes_of(json), rules);
  std::vector<std::string> texts;
  for (const Json& text : *listed) {
    if (!listed->is_array() || !text.is_string())
      throw Error(Kind::Generation, setting("stop_texts"), kind_of(text), "an array of texts", rules.next_step);
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

AnswerSettings settings_of(const bespoke_generation* given) {
  const auto generation = taken(given, BESPOKE_FIRST(bespoke_generation, reserved), "bespoke_generation");
  AnswerSettings settings;
  settings.max_tokens = generation.max_tokens;
  settings.sampling = {generation.temperature, generation.top_p == 0 ? 1 : generation.top_p, generation.top_k, generation.seed};
  settings.stop_texts = texts_of(text_of(generation.stop_texts, "bespoke_generation.stop_texts"));
  settings.notes = generation.notes != 0;
  return settings;
}

bespoke_answer_end end_of(std::optional<AnswerEnd> end) {
  static_assert(BESPOKE_END_STOP_TOKEN == static_cast<int>(AnswerEnd::stop_token) + 1 &&
                BESPOKE_END_STOP_TEXT == static_cast<int>(AnswerEnd::stop_text) + 1 &&
                BESPOKE_END_MAX_TOKENS == static_cast<int>(AnswerEnd::max_tokens) + 1 &&
                BESPOKE_END_CONTEXT_FULL == static_cast<int>(AnswerEnd::context_full) + 1);
  return end ? static_cast<bespoke_answer_end>(static_cast<int32_t>(*end) + 1) : BESPOKE_GOES_ON;
}

bespoke_piece piece_of(const AnswerPiece& said) {
  return {sizeof(bespoke_piece), {said.text.c_str(), said.text.size()}, said.token.value_or(-1),
          said.tokens,           end_of(said.stopped_because),          0};
}

}  // namespace

bespoke_status bespoke_session_open(bespoke_model* model, const bespoke_generation* generation, bespoke_session** session,
                                    bespoke_error** error) {
  if (session) *session = nullptr;
  return guarded(error, [&] {
    need(session, "session", "a place for the session");
    const std::shared_ptr<OpenModel> opened = found(model);
    const OpenModel::Call call(opened);
    *session = handle_of(std::make_shared<OpenSession>(opened, call.model(), settings_of(generation)));
  });
}

void bespoke_session_close(bespoke_session* session) {
  guarded(nullptr, [&] {
    const std::shared_ptr<OpenSession> opened = found(session);
    opened->model->check_process();  // a fork leaves alone what is its parent's
    taken_out(session);
    opened->closed = true;  // its call keeps it until it has ended
  });
}

bespoke_status bespoke_session_feed(bespoke_session* session, bespoke_text prompt, bespoke_error** error) {
  return guarded(error, [&] {
    const std::shared_ptr<OpenSession> opened = found(session);
    const OpenModel::Call call(opened->model);
    opened->session.feed(text_of(prompt, "prompt"));
  });
}

bespoke_status bespoke_session_next(bespoke_session* session, const bespoke_call* call, const bespoke_piece** piece,
                                    bespoke_error** error) {
  if (piece) *piece = nullptr;
  return guarded(error, [&] {
    const std::shared_ptr<OpenSession> opened = found(session);
    const OpenModel::Call running(opened->model);
    CallOf settings(call, &running.interrupted());
    settings.settings.cancels.push_back(&opened->closed);
    AnswerPiece said = opened->session.next(std::move(settings.settings));
    const MutexLock held(opened->saying);
    opened->said = std::move(said);
    opened->piece = piece_of(opened->said);
    if (piece) *piece = &opened->piece;
  });
}

bespoke_status bespoke_score(bespoke_model* model, bespoke_text prompt, bespoke_text answers, const bespoke_call* call, char** scores,
                             bespoke_error** error) {
  return computed(model, call, scores, error, [&](PersonalModel& model, CallSettings settings) {
    return score(model, text_of(prompt, "prompt"), text_of(answers, "answers"), std::move(settings));
  });
}

bespoke_status bespoke_classify(bespoke_model* model, bespoke_text prompt, bespoke_text labels, const bespoke_call* call,
                                char** classification, bespoke_error** error) {
  return computed(model, call, classification, error, [&](PersonalModel& model, CallSettings settings) {
    return classify(model, text_of(prompt, "prompt"), text_of(labels, "answers"), std::move(settings));
  });
}
