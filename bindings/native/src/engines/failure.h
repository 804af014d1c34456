// SPDX-License-Identifier: Apache-2.0
// How an engine fails: inside by exceptions, through its table by a code and a message.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "bespoke.h"

namespace bespoke {

constexpr int kOther = 1;  // than those of bespoke.h: the artifact is to blame

struct Failure {
  std::string text;
  int code = kOther;
};

// Runs `body`; 0, or the code of what it threw, with the reason in `message`.
template <class F>
int guarded(char* message, size_t size, F body) {
  try {
    body();
    return 0;
  } catch (const Failure& failure) {
    std::snprintf(message, size, "%s", failure.text.c_str());
    return failure.code;
  } catch (const std::bad_alloc&) {
    std::snprintf(message, size, "no room for an allocation");
    return BESPOKE_ENGINE_NO_MEMORY;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
  }
  return kOther;
}

}  // namespace bespoke
