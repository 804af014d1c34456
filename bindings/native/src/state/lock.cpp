// SPDX-License-Identifier: Apache-2.0
#include "state/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "state/errors.h"
#include "state/folder.h"
#include "state/store.h"
#include "state/text.h"

namespace bespoke {

const char* const kFilesLock = "files.lock";

namespace {

constexpr auto kWait = std::chrono::seconds(30);
constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr size_t kMostNoteBytes = 4096;

int open_lock(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  Descriptor opened(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (opened.number < 0) throw from_errno(errno, path);
  struct stat found {};
  if (fstat(opened.number, &found) != 0) throw from_errno(errno, path);
  if (!S_ISREG(found.st_mode)) throw Error(Kind::State, path, "something that is no file", "a lock file", "Remove " + name);
  return opened.release();
}

bool try_lock(int descriptor) {
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw from_errno(errno, "a lock of the state folder");
  }
  return true;
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

// When the host was started: a process number means nothing across that.
std::string host_started_at() {
  std::ifstream lines("/proc/stat");
  for (std::string line; std::getline(lines, line);)
    if (line.compare(0, 6, "btime ") == 0) {
      char* end = nullptr;
      long long seconds = std::strtoll(line.c_str() + 6, &end, 10);
      if (end != line.c_str() + 6) return "\"" + utc(seconds) + "\"";
    }
  return "null";
}

}  // namespace

Descriptor::~Descriptor() {
  if (number >= 0) close(number);
}

FilesLock::FilesLock(const std::string& folder) : descriptor_(-1) {
  Descriptor opened(open_lock(folder, kFilesLock));
  auto deadline = std::chrono::steady_clock::now() + kWait;
  while (!try_lock(opened.number)) {
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(Kind::State, folder + "/" + kFilesLock, "a lock that another process has held for more than 30 s",
                  "a commit of a few seconds at most", "End the process that holds it, or wait and try again");
    std::this_thread::sleep_for(kPoll);
  }
  descriptor_ = opened.release();
}

FilesLock::~FilesLock() { close(descriptor_); }

TrainerLock::TrainerLock(const std::string& folder, const std::string& purpose) : folder_(folder), descriptor_(-1) {
  const std::string name = "trainer.lock";
  Descriptor opened(open_lock(folder, name));
  if (!try_lock(opened.number))
    throw Error(Kind::StateLocked, folder + "/" + name, "a lock held by " + holder_of(opened.number), "no other trainer on this state",
                "Wait until it has finished, or end it: what it committed stays");
  note(opened.number, "{\"pid\": " + std::to_string(getpid()) + ", \"since\": \"" + now() + "\", \"host_started_at\": " +
                          host_started_at() + ", \"purpose\": " + json_text(purpose) + "}");
  remove_scratch(folder);
  descriptor_ = opened.release();
}

TrainerLock::~TrainerLock() {
  try {
    remove_scratch(folder_);
  } catch (const Error&) {
    // The next holder of the lock removes it, or says why it cannot.
  }
  note(descriptor_, "");
  close(descriptor_);
}

}  // namespace bespoke
