// SPDX-License-Identifier: Apache-2.0
// The errors of the core: the same kinds and four parts as in sdk/bespoke/errors.py. Thrown inside, never across the C API.
#pragma once

#include <exception>
#include <string>

#include "remedies.h"

namespace bespoke {

// `Internal` is a defect of the core: "BespokeError".
enum class Kind {
#define BESPOKE_ERROR(kind, name, status) kind,
#include "../../schema/error_kinds.inc"
#undef BESPOKE_ERROR
};

struct Error : std::exception {
  Error(Kind kind, Wording subject, Wording got, Wording expected, Wording next_step);
  const char* what() const noexcept override { return message.c_str(); }

  Kind kind;
  Wording subject, got, expected, next_step;  // text without a final dot, each printable and bounded whatever it was made of
  Wording message;                            // all of it in one line
};

// The parts that name verbs or settings, as JSON: {"next_step": ["...", {"do": "abandon_run"}, ...]}; empty where none does.
std::string references_of(const Error& error);

// Of a file that is there and that the system keeps closed (EPERM, EACCES): until a phone is unlocked for the first time, it does so
// with the files of apps, and nothing is wrong with them then. Unavailable.
bool is_withheld(int error_number);
Error withheld(int error_number, const std::string& subject);

const char* name_of(Kind kind);  // of the Python class
int status_of(Kind kind);        // of the C API

}  // namespace bespoke
