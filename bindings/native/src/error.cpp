// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include "format/untrusted_text.h"

namespace bespoke {

Error::Error(Kind kind, std::string subject, std::string got, std::string expected, std::string next_step)
    : kind(kind),
      subject(printable(std::move(subject))),
      got(printable(std::move(got))),
      expected(printable(std::move(expected))),
      next_step(printable(std::move(next_step))) {
  message = this->subject + ": got " + this->got + "; expected " + this->expected + ". " + this->next_step + ".";
}

const char* name_of(Kind kind) {
  switch (kind) {
#define BESPOKE_ERROR(kind, name, status) \
  case Kind::kind: return name;
#include "../../schema/error_kinds.inc"
#undef BESPOKE_ERROR
  }
  return "BespokeError";
}

int status_of(Kind kind) {
  switch (kind) {
#define BESPOKE_ERROR(kind, name, status) \
  case Kind::kind: return status;
#include "../../schema/error_kinds.inc"
#undef BESPOKE_ERROR
  }
  return 1;
}

}  // namespace bespoke
