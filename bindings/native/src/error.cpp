// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <cerrno>
#include <system_error>

#include "format/untrusted_text.h"

namespace bespoke {

Error::Error(Kind kind, Wording subject, Wording got, Wording expected, Wording next_step)
    : kind(kind), subject(printable(std::move(subject))), got(printable(std::move(got))), expected(printable(std::move(expected))),
      next_step(printable(std::move(next_step))) {
  const std::string &about = this->subject, &was = this->got, &wanted = this->expected, &then = this->next_step;
  message = about + ": got " + was + "; expected " + wanted + ". " + then + ".";  // as texts: a verb that begins a part stays capitalized
}

std::string references_of(const Error& error) {
  const std::pair<const char*, const Wording*> parts[] = {
      {"subject", &error.subject}, {"got", &error.got}, {"expected", &error.expected}, {"next_step", &error.next_step}};
  std::string json;
  for (const auto& [name, words] : parts)
    if (const std::string part = json_of(*words); !part.empty()) json += std::string(json.empty() ? "{" : ",") + "\"" + name + "\":" + part;
  return json.empty() ? json : json + "}";
}

bool is_withheld(int error_number) { return error_number == EPERM || error_number == EACCES; }

Error withheld(int error_number, const std::string& subject) {
  return Error(Kind::Unavailable, subject, std::generic_category().message(error_number),
               "a file that the system lets this process use now",
               "If the device was not unlocked since it started, try again after that. Otherwise check who may read and write the file");
}

const char* name_of(Kind kind) {
  switch (kind) {
#define BESPOKE_ERROR(kind, name, status) \
  case Kind::kind:                        \
    return name;
#include "../../schema/error_kinds.inc"
#undef BESPOKE_ERROR
  }
  return "BespokeError";
}

int status_of(Kind kind) {
  switch (kind) {
#define BESPOKE_ERROR(kind, name, status) \
  case Kind::kind:                        \
    return status;
#include "../../schema/error_kinds.inc"
#undef BESPOKE_ERROR
  }
  return 1;
}

}  // namespace bespoke
