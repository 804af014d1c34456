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

struct bespoke_model : bespoke::PersonalModel {
  using PersonalModel::PersonalModel;
  std::shared_ptr<bespoke_model> open;  // itself, until it is closed; sessions keep it too
};

struct bespoke_session {
  std::shared_ptr<bespoke_model> model;
  bespoke::Session session;
};

namespace bespoke {

inline void give(char** place, const std::string& text) {  // freed with bespoke_free
  if (!place) return;
  *place = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*place) throw std::bad_alloc();
  std::memcpy(*place, text.c_str(), text.size() + 1);
}

TrainRequest request_of(const bespoke_training* given);
CallSettings call_of(const bespoke_call* given);

// A call that computes with a model: `body` gets its settings and gives a text.
template <class Body>
bespoke_status computed(bespoke_model* model, const bespoke_call* call, char** found, bespoke_error** error, Body body) {
  if (found) *found = nullptr;
  return guarded(error, [&] {
    need(model, "model", "one that bespoke_open gave");
    give(found, body(call_of(call)));
  });
}

}  // namespace bespoke
