// SPDX-License-Identifier: Apache-2.0
// What is thrown inside becomes a status and a record.
#pragma once

#include "bespoke.h"

#include <exception>

#include "error.h"
#include "exec/control.h"

namespace bespoke {

bespoke_status tell(bespoke_error* record, bespoke_error** error);  // to the caller, or freed where it does not want it
bespoke_error* record_of(const Error& error);                       // the static one where there is no memory for another
bespoke_error* no_memory();

// Nothing leaves it: an exception that telling of another one throws is the lack of memory.
template <class Body>
bespoke_status guarded(bespoke_error** error, Body body) noexcept {
  if (error) *error = nullptr;
  try {
    try {
      body();
      return BESPOKE_OK;
    } catch (const Error& problem) {
      return tell(record_of(problem), error);
    } catch (const Abandoned&) {
      return tell(record_of({Kind::Cancelled, "the call", "its end before there was anything to report", "to run to its end",
                             "Call it again, with more time where it has a deadline"}),
                  error);
    } catch (const std::bad_alloc&) {
      return tell(no_memory(), error);
    } catch (const std::exception& problem) {
      return tell(record_of({Kind::Internal, "the device core", problem.what(), "no such failure", "Report this together with the bundle"}),
                  error);
    } catch (...) {
      return tell(
          record_of({Kind::Internal, "the device core", "an unknown failure", "no such failure", "Report this together with the bundle"}),
          error);
    }
  } catch (...) {
    return tell(no_memory(), error);
  }
}

}  // namespace bespoke
