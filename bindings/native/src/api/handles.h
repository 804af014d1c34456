// SPDX-License-Identifier: Apache-2.0
// What the handles of bespoke.h stand for, and how texts leave.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "api/arguments.h"
#include "api/errors.h"
#include "bespoke.h"
#include "model/session.h"
#include "platform/fork.h"

struct bespoke_model : bespoke::PersonalModel {
  using PersonalModel::PersonalModel;
  const bespoke::OwnProcess process;
  std::shared_ptr<bespoke_model> open;  // itself, until it is closed; sessions keep it too
};

struct bespoke_session {
  std::shared_ptr<bespoke_model> model;
  bespoke::Session session;
};

namespace bespoke {

inline void check_process(const bespoke_model& model) {
  if (model.process.is_this()) return;
  throw Error(Kind::State, "the model", "a handle of process " + std::to_string(model.process.number()) + " in its fork " + std::to_string(getpid()),
              "a handle that this process has opened", "Open the model after the fork, or start the process without one (in Python: spawn)");
}

inline bespoke_model& usable(bespoke_model* model) {
  need(model, "model", "one that bespoke_open gave");
  check_process(*model);
  return *model;
}

inline Session& usable(bespoke_session* session) {
  need(session, "session", "one that bespoke_session_open gave");
  check_process(*session->model);
  return session->session;
}

inline void give(char** place, const std::string& text) {  // freed with bespoke_free
  if (!place) return;
  *place = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*place) throw std::bad_alloc();
  std::memcpy(*place, text.c_str(), text.size() + 1);
}

TrainRequest request_of(const bespoke_training* given);
CallSettings call_of(const bespoke_call* given);

// A call that computes with a model: `body` gets the model and its settings, and gives a text.
template <class Body>
bespoke_status computed(bespoke_model* model, const bespoke_call* call, char** found, bespoke_error** error, Body body) {
  if (found) *found = nullptr;
  return guarded(error, [&] {
    give(found, body(usable(model), call_of(call)));
  });
}

}  // namespace bespoke
