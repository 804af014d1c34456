// SPDX-License-Identifier: Apache-2.0
// What the handles of bespoke.h stand for, the calls that are made with them, and how texts leave. A handle is a number that is never
// given twice: what is done with one that was closed, or was never given, is an error and reads no memory.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "api/arguments.h"
#include "api/errors.h"
#include "api/open_model.h"
#include "bespoke.h"
#include "model/session.h"

namespace bespoke {

struct OpenSession {
  OpenSession(std::shared_ptr<OpenModel> of, PersonalModel& opened, const AnswerSettings& settings)
      : model(std::move(of)), session(opened, settings) {}

  std::shared_ptr<OpenModel> model;
  Session session;
  std::atomic<bool> closed{false};  // its call ends
  Mutex saying;
  AnswerPiece said GUARDED_BY(saying){};  // what its last call said, which `piece` points into
  bespoke_piece piece GUARDED_BY(saying){};
};

using CancelFlag = std::shared_ptr<std::atomic<bool>>;

bespoke_model* handle_of(std::shared_ptr<OpenModel> model);
bespoke_session* handle_of(std::shared_ptr<OpenSession> session);
std::shared_ptr<OpenModel> found(bespoke_model* model);        // ConfigError for null, StateError where it is not open
std::shared_ptr<OpenSession> found(bespoke_session* session);  // the same
std::shared_ptr<OpenModel> taken_out(bespoke_model* model);    // null where it is not open; later calls do not find it
std::shared_ptr<OpenSession> taken_out(bespoke_session* session);
// A model that is about to be released. Where such a model has `state` and still ends a call, check_none_ends throws Busy.
void note_released(const std::shared_ptr<OpenModel>& model);
void check_none_ends(const std::string& state);

struct CallOf {  // the settings of a call, with what they point to
  explicit CallOf(const bespoke_call* given, const std::atomic<bool>* interrupted = nullptr);
  CallSettings settings;
  CancelFlag cancel;
};

void give(char** place, const std::string& text);  // freed with bespoke_free; nothing where there is no place
TrainRequest request_of(const bespoke_training* given);

// A call that this thread serves and that does not compute. Throws Abandoned where its token is set before it begins.
struct OwnCall {
  explicit OwnCall(const bespoke_call* given, const std::atomic<bool>* interrupted = nullptr);
  CallOf call;
  ThisCall this_call;
};

// A verb of the store: `body` gets the model.
template <class Body>
bespoke_status stored(bespoke_model* model, const bespoke_call* given, bespoke_error** error, Body body) {
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    const OwnCall own(given, &call.interrupted());
    body(call.model());
  });
}

// The same for a verb that gives a text.
template <class Body>
bespoke_status giving(bespoke_model* model, const bespoke_call* given, char** text, bespoke_error** error, Body body) {
  if (text) *text = nullptr;
  return stored(model, given, error, [&](PersonalModel& model) { give(text, body(model)); });
}

// A call that computes with a model and gives a text: `body` gets the model and the settings of the call.
template <class Body>
bespoke_status computed(bespoke_model* model, const bespoke_call* given, char** text, bespoke_error** error, Body body) {
  if (text) *text = nullptr;
  return guarded(error, [&] {
    const OpenModel::Call call(found(model));
    CallOf settings(given, &call.interrupted());
    give(text, body(call.model(), std::move(settings.settings)));
  });
}

}  // namespace bespoke
