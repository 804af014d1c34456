// SPDX-License-Identifier: Apache-2.0
// What SQLite and the system say, turned into the core's errors: a full disk is not damage, damage is not a lock. Only
// what stays when it is tried again is called damage, since the way out of damage is to delete the folder.
#pragma once

#include <string>

#include "error.h"

struct sqlite3;

namespace bespoke {

Error disk_full(const std::string& subject, const std::string& got);
// Something in the state folder that no crash of ours can leave behind.
Error damaged(const std::string& subject, const std::string& got, const std::string& expected = "what this version of bespoke writes");
Error no_memory(const std::string& subject);
Error passing(const std::string& subject, const std::string& got);  // a failure of the system that says nothing about what is stored
Error from_read_errno(int number, const std::string& subject);      // of a file that the database names: damage where it is gone
std::string system_text(int number);                                // of an errno
Error from_errno(int number, const std::string& subject);           // DiskFull or Unavailable where that is the cause, else StateError
Error not_a_place(int number, const std::string& subject);          // where no state folder can be made
// By the extended result code; `system_number`: the errno behind it, or 0.
Error from_sqlite(int code, const std::string& message, const std::string& subject, int system_number = 0);

}  // namespace bespoke
