// SPDX-License-Identifier: Apache-2.0
// What the handles of bespoke.h stand for, and how texts leave.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "api/arguments.h"
#include "bespoke.h"
#include "model/personal_model.h"

struct bespoke_model : bespoke::PersonalModel {
  using PersonalModel::PersonalModel;
};

namespace bespoke {

inline void give(char** place, const std::string& text) {  // freed with bespoke_free
  if (!place) return;
  *place = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*place) throw std::bad_alloc();
  std::memcpy(*place, text.c_str(), text.size() + 1);
}

TrainRequest request_of(const bespoke_training* given);

}  // namespace bespoke
