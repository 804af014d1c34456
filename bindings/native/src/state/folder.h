// SPDX-License-Identifier: Apache-2.0
// The state folder itself: created private to its owner, and telling a new state from one that lost its database.
#pragma once

#include <string>

namespace bespoke {

extern const char* const kDatabaseFile;  // "state.sqlite"
extern const char* const kScratchFile;   // "scratch"

// Creates the folder (0700) or checks that it is one that can be written: its path without links.
std::string prepare_folder(const std::string& folder);
// ConfigError where one lies in the other: a bundle with a file that it does not list is damaged. Writes nothing.
void check_apart(const std::string& state, const std::string& bundle);
// Whether a state was made here. StateError where it was and its database is gone: a truncated one would pass for a new one, and
// the sweep would take the adapters. Under the lock on files.
bool made_before(const std::string& folder);
void mark_created(const std::string& folder);  // notes, in the lock file on files, that the database was made
// Removes the scratch file, zeroed first where asked. StateError where it cannot be.
void remove_scratch(const std::string& folder, bool overwrite);
// Erases what a trainer left in its scratch file; a living one holds its lock and removes its own when it ends.
void erase_scratch(const std::string& folder);

}  // namespace bespoke
