// SPDX-License-Identifier: Apache-2.0
#include "state/lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "format/number_text.h"
#include "platform/descriptor.h"
#include "platform/files.h"
#include "state/errors.h"
#include "state/folder.h"
#include "state/store.h"
#include "state/stored_text.h"
#include "this_call.h"

namespace bespoke {

const char* const kFilesLock = "files.lock";

namespace {

constexpr size_t kMostNoteBytes = 4096;

int open_lock(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  Descriptor opened(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (opened.get() < 0) throw from_errno(errno, path);
  struct stat found{};
  if (fstat(opened.get(), &found) != 0) throw from_errno(errno, path);
  if (!S_ISREG(found.st_mode)) throw Error(Kind::State, path, "something that is no file", "a lock file", "Remove " + name);
  return opened.release();
}

// The note only informs: where the disk is full, training may still go on.
void note(int descriptor, const std::string& text) {
  if (ftruncate(descriptor, 0) != 0) return;
  ssize_t ignored = pwrite(descriptor, text.data(), std::min(text.size(), kMostNoteBytes), 0);
  (void)ignored;
}

std::string holder_of(int descriptor) {
  const char* unknown = "a process that has not said who it is";
  std::string text(kMostNoteBytes, '\0');
  ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  if (size < 0) return unknown;
  text.resize(static_cast<size_t>(size));
  auto said = nlohmann::json::parse(text, nullptr, false);
  if (!said.is_object() || !said.contains("pid") || !said["pid"].is_number_integer()) return unknown;
  for (const char* field : {"since", "purpose"})
    if (!said.contains(field) || !said[field].is_string()) return unknown;
  return "process " + std::to_string(said["pid"].get<int64_t>()) + " since " + said["since"].get<std::string>() + " (" +
         said["purpose"].get<std::string>() + ")";
}

std::string host_started_at() {
  const int64_t seconds = system_started_at();
  return seconds ? "\"" + utc(seconds) + "\"" : "null";
}

}  // namespace

LockFile::LockFile(const std::string& folder, const std::string& name)
    : opened_(open_lock(folder, name)), closed_in_forks_(opened_.get()) {}

LockFile::~LockFile() { unlock(opened_.get()); }

bool LockFile::take() {
  const int failed = try_lock(opened_.get(), Lock::exclusive);
  if (failed && failed != EWOULDBLOCK) throw from_errno(failed, "a lock of the state folder");
  return !failed;
}

FilesLock::FilesLock(const std::string& folder) : file_(folder, kFilesLock) {
  if (wait_for_others([this] { return file_.take(); })) return;
  throw Error(Kind::Unavailable, folder + "/" + kFilesLock,
              "a lock that another process has held for more than " + repr_of(ThisCall::busy_seconds()) + " s",
              "a commit of a few seconds at most", "End the process that holds it, or wait and try again");
}

TrainerLock::TrainerLock(const std::string& folder, const std::string& purpose, bool overwrite_scratch) : folder_(folder) {
  const std::string name = "trainer.lock";
  auto file = std::make_unique<LockFile>(folder, name);
  if (!file->take())
    throw Error(Kind::StateLocked, folder + "/" + name, "a lock held by " + holder_of(file->descriptor()), "no other trainer on this state",
                "Wait until it has finished, or end it: what it committed stays");
  note(file->descriptor(), "{\"pid\": " + std::to_string(getpid()) + ", \"since\": \"" + now() +
                               "\", \"host_started_at\": " + host_started_at() + ", \"purpose\": " + json_text(purpose) + "}");
  remove_scratch(folder, overwrite_scratch);
  file_ = std::move(file);
}

TrainerLock::~TrainerLock() {
  try {
    remove_scratch(folder_, false);
  } catch (const Error&) {
    // The next holder of the lock removes it, or says why it cannot.
  }
  note(file_->descriptor(), "");
}

}  // namespace bespoke
