// SPDX-License-Identifier: Apache-2.0
#include "state/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "platform/descriptor.h"
#include "state/errors.h"
#include "state/lock.h"
#include "state/store.h"
#include "state/tensor_files.h"

namespace bespoke {

const char* const kDatabaseFile = "state.sqlite";
const char* const kScratchFile = "scratch";

namespace {

bool is_folder(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

int make_folders(const std::string& path) {  // an errno
  if (is_folder(path)) return 0;
  size_t slash = path.find_last_of('/');
  if (slash != std::string::npos && slash > 0)
    if (int failed = make_folders(path.substr(0, slash))) return failed;
  return mkdir(path.c_str(), 0755) == 0 || (errno == EEXIST && is_folder(path)) ? 0 : errno;
}

// What is not there yet is not withheld: a place where nothing may be made is a wrong one.
Error not_made(int failed, const std::string& folder) {
  return is_withheld(failed) ? not_a_place(failed, folder) : from_errno(failed, folder);
}

std::string mode_of(const struct stat& found) {
  char mode[16];
  snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(found.st_mode & 07777));
  return mode;
}

std::string in_a_shell(const std::string& path) {
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Null, or who else may write: with an access control list the group's bits are the most that any entry of it may.
const char* other_writers(const struct stat& found) {
  return found.st_mode & S_IWOTH ? "every user" : found.st_mode & S_IWGRP ? "its group" : nullptr;
}

// StateError for a folder in which others may exchange files. That they may list it does no harm: its files are 0600.
void check_private(const std::string& folder) {
  struct stat found{};
  if (stat(folder.c_str(), &found) != 0) throw from_errno(errno, folder);
  if (found.st_uid != geteuid())
    throw Error(Kind::State, folder, "a folder of user " + std::to_string(found.st_uid),
                "one of user " + std::to_string(geteuid()) + ", who opens it",
                "Choose a folder that this user made, or let the path be made");
  if (const char* others = other_writers(found))
    throw Error(Kind::State, folder, "a folder of mode " + mode_of(found) + ", into which " + others + " may write",
                "a folder that is private to this user", "Close it to others: chmod 700 " + in_a_shell(folder));
}

// StateError where others may put another folder in the place of this one. With the sticky bit, as /tmp has it, they may not. A group
// is trusted here: where every user has a group of its own, folders that it may write are the rule.
void check_folder_above(const std::string& folder) {
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  const std::string above = parent.empty() ? "." : parent.string();
  struct stat found{};
  if (stat(above.c_str(), &found) != 0) throw from_errno(errno, above);
  if ((found.st_mode & S_IWOTH) && !(found.st_mode & S_ISVTX))
    throw Error(Kind::State, folder, "a folder above it, " + above + " of mode " + mode_of(found) + ", in which every user may exchange it",
                "a folder that only this user may exchange",
                "Close it to others: chmod o-w " + in_a_shell(above) + ", or choose another place");
}

// StateError for files that others may change, as those of a copy may be.
void check_private_files(const std::string& folder) {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    struct stat found{};
    if (lstat(at->path().c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    if (const char* others = other_writers(found))
      throw Error(Kind::State, at->path().string(), "a file of mode " + mode_of(found) + ", which " + others + " may change",
                  "a file that is private to this user", "Close it to others: chmod 600 " + in_a_shell(at->path().string()));
  }
  if (failed) throw from_errno(failed.value(), folder);
}

bool has_content(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) throw from_errno(errno, path);
  return found.st_size > 0;
}

}  // namespace

std::string prepare_folder(const std::string& folder) {
  size_t slash = folder.find_last_of('/');
  if (slash != std::string::npos && slash > 0)
    if (int failed = make_folders(folder.substr(0, slash))) throw not_made(failed, folder);
  check_folder_above(folder);  // before anything is made there; and below again, where the path is a link
  if (mkdir(folder.c_str(), 0700) != 0) {
    int failed = errno;
    if (failed != EEXIST || !is_folder(folder)) throw not_made(failed, folder);
  }
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    throw Error(Kind::State, folder, "a folder that this process may not write", "a writable folder",
                "Choose a folder that is private to the app");
  check_private(folder);
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(folder.c_str(), nullptr), std::free);
  if (!resolved) throw from_errno(errno, folder);
  check_folder_above(resolved.get());
  check_private_files(resolved.get());
  return resolved.get();
}

void check_apart(const std::string& state, const std::string& bundle) {
  std::error_code ignored;
  const auto resolved = [&](const std::string& path) {  // of what need not be there, with a slash at the end
    std::string text = std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored).string();
    while (!text.empty() && text.back() == '/') text.pop_back();
    return text + "/";
  };
  const std::string one = resolved(state), other = resolved(bundle);
  const auto starts_with = [](const std::string& text, const std::string& start) { return text.compare(0, start.size(), start) == 0; };
  const char* got = one == other              ? "which is the bundle"
                    : starts_with(one, other) ? "which lies within the bundle"
                    : starts_with(other, one) ? "which holds the bundle"
                                              : nullptr;
  if (got)
    throw Error(Kind::Config, "state", state + ", " + got, "a folder of its own, apart from the bundle",
                "Choose another folder for the state; nothing was written");
}

bool made_before(const std::string& folder) {
  std::string path = folder + "/" + kDatabaseFile, journal = path + "-journal";
  bool made = has_content(folder + "/" + kFilesLock) || !tensor_files_in(folder).empty();
  struct stat found{};
  if (made && (stat(path.c_str(), &found) != 0 || found.st_size == 0)) throw damaged(path, "no database", "the database of this state");
  if (lstat(journal.c_str(), &found) == 0) {
    // A database in WAL mode has none; SQLite would play it back, and it may name another file to read.
    if (made) throw damaged(journal, "a rollback journal", "a write-ahead log only");
    for (const char* suffix : {"", "-wal", "-shm", "-journal"})  // killed while the database was being made
      if (unlink((path + suffix).c_str()) != 0 && errno != ENOENT) throw from_errno(errno, path);
  }
  return made;
}

void mark_created(const std::string& folder) {
  std::string path = folder + "/" + kFilesLock;
  if (has_content(path)) return;
  Descriptor opened(open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW));
  constexpr std::string_view created = "created";
  if (opened.get() < 0 || write(opened.get(), created.data(), created.size()) != static_cast<ssize_t>(created.size()))
    throw from_errno(errno, path);
}

void remove_scratch(const std::string& folder, bool overwrite) {
  std::string path = folder + "/" + kScratchFile;
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0 || !(S_ISLNK(found.st_mode) || S_ISREG(found.st_mode))) return;
  const int failed = erase(path, overwrite);
  if (failed && failed != ENOENT) throw from_errno(failed, path);
}

void erase_scratch(const std::string& folder) {
  struct stat found{};
  if (lstat((folder + "/" + kScratchFile).c_str(), &found) != 0) return;
  try {
    TrainerLock lock(folder, "erasing the scratch file", true);
  } catch (const Error& error) {
    if (error.kind != Kind::StateLocked) throw;
  }
}

}  // namespace bespoke
