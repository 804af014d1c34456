// SPDX-License-Identifier: Apache-2.0
#include "format/whole_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "format/untrusted_text.h"
#include "platform/files.h"
#include "this_call.h"

namespace bespoke {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPartial = ".partial", kOld = ".old";
constexpr std::string_view kRandom = "abcdefghijklmnopqrstuvwxyz0123456789_";
constexpr size_t kRandomLength = 8;
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

bool is_there(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0;
}

bool is_plain_folder(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string random_letters() {
  std::random_device source;
  std::string letters;
  while (letters.size() < kRandomLength) letters += kRandom[source() % kRandom.size()];
  return letters;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Whether a writer of the folder `name` made this one: `.name.abcdefgh.partial`, or `.old`.
bool is_leftover(std::string_view found, std::string_view name) {
  const std::string begin = "." + std::string(name) + ".";
  if (found.substr(0, begin.size()) != begin) return false;
  found.remove_prefix(begin.size());
  for (const std::string_view end : {kPartial, kOld}) {
    if (found.size() != kRandomLength + end.size() || !ends_with(found, end)) continue;
    return found.substr(0, kRandomLength).find_first_not_of(kRandom) == std::string_view::npos;
  }
  return false;
}

// Holds a folder until it is closed; none where another process has it. A file system without locks lets everyone have it.
Descriptor hold(const std::string& folder) {
  Descriptor opened(open(folder.c_str(), kFolder | O_NOFOLLOW));
  if (opened.get() >= 0 && try_lock(opened.get(), Lock::exclusive) == EWOULDBLOCK) return Descriptor();
  return opened;
}

void remove_tree(const std::string& folder) {
  std::error_code ignored;  // the next writer finds what is left
  fs::remove_all(folder, ignored);
}

void remove_unread(const std::string& folder) {
  const Descriptor held = hold(folder);
  if (held.get() >= 0) remove_tree(folder);
}

int sync_folders(const std::string& folder) {
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (!at->is_directory(failed) || failed) continue;
    if (const int number = sync_folder(at->path().string())) return number;
  }
  return failed ? failed.value() : sync_folder(folder);
}

// Keeps other writers below the same folder out for a moment.
class Alone {
 public:
  explicit Alone(const std::string& folder) : opened_(open(folder.c_str(), kFolder)), failed_(opened_.get() < 0 ? errno : 0) {
    is_locked_ = !failed_ && wait_for_lock(opened_.get(), Lock::exclusive) == 0;
  }
  int failed() const { return failed_; }
  bool is_locked() const { return is_locked_; }  // no: the file system has no locks

 private:
  Descriptor opened_;
  int failed_;
  bool is_locked_;
};

}  // namespace

WholeFolder::WholeFolder(const std::string& target, Kind kind, Readers readers, Check replaceable)
    : kind_(kind), readers_(readers), replaceable_(std::move(replaceable)) {
  if (target.empty() || target.find('\0') != std::string::npos)
    throw Error(kind, "the folder " + in_quotes(target), "no name that a folder can have", "a path", "Name a folder to write to");
  std::error_code failed;
  fs::path absolute = fs::absolute(target, failed).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  target_ = absolute.string(), above_ = absolute.parent_path().string(), name_ = absolute.filename().string();
  if (failed) fail(failed.value());
  check_existing();
  fs::create_directories(above_, failed);
  if (failed) fail(failed.value());
  const Alone alone(above_);
  if (alone.failed()) fail(alone.failed());
  if (alone.is_locked()) remove_leftovers();
  do {
    work_ = above_ + "/." + name_ + "." + random_letters() + std::string(kPartial);
  } while (mkdir(work_.c_str(), 0700) != 0 && errno == EEXIST);
  if (!is_plain_folder(work_)) fail(errno);
  lock_ = hold(work_);
}

WholeFolder::~WholeFolder() {
  if (!work_.empty()) remove_tree(work_);
}

WholeFolder::File WholeFolder::create(const std::string& name) {
  make_above(name);
  const mode_t mode = readers_ == Readers::owner ? 0600 : 0666;
  Descriptor opened(open((work_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (opened.get() < 0) fail(errno);
  return File(*this, std::move(opened));
}

bool WholeFolder::link(const std::string& path, const std::string& name) {
  make_above(name);
  return ::link(path.c_str(), (work_ + "/" + name).c_str()) == 0;
}

void WholeFolder::finish() {
  if (readers_ == Readers::everyone && chmod(work_.c_str(), 0755) != 0) fail(errno);  // it was made with 0700
  if (const int failed = sync_folders(work_)) fail(failed);
  if (lock_.get() >= 0) try_lock(lock_.get(), Lock::shared);  // from its first moment in place on it can be read
  const Alone alone(above_);
  if (alone.failed()) fail(alone.failed());
  check_existing();  // again: it may have come meanwhile
  std::string old;
  if (!is_there(target_)) {
    if (rename(work_.c_str(), target_.c_str()) != 0) fail(errno);
  } else if (exchange_names(work_, target_) == 0) {
    old = work_;
  } else {
    old = work_.substr(0, work_.size() - kPartial.size()) + std::string(kOld);
    if (rename(target_.c_str(), old.c_str()) != 0) fail(errno);
    if (rename(work_.c_str(), target_.c_str()) != 0) {
      const int failed = errno;
      rename(old.c_str(), target_.c_str());
      fail(failed);
    }
  }
  work_.clear();
  const int failed = sync_folder(above_);
  lock_ = Descriptor();
  if (!old.empty()) remove_unread(old);
  if (failed) fail(failed);
}

void WholeFolder::check_existing() const {
  struct stat found{};
  if (lstat(target_.c_str(), &found) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail(errno);
    return;
  }
  if (!S_ISDIR(found.st_mode)) {
    throw Error(kind_, target_, S_ISLNK(found.st_mode) ? "a link" : "a file", "a free name or a folder to replace",
                "Choose another name, or remove it");
  }
  std::error_code none, failed;
  const fs::path here = fs::current_path(none), itself = fs::canonical(target_, failed);
  if (!none && !failed && std::mismatch(itself.begin(), itself.end(), here.begin(), here.end()).first == itself.end()) {
    throw Error(kind_, target_, "the folder that this process works in", "another folder, or one below it", "Name a new folder");
  }
  const bool is_empty = fs::is_empty(target_, failed);
  if (failed) fail(failed.value());
  try {
    if (!is_empty) replaceable_(target_);
  } catch (const fs::filesystem_error& problem) {
    fail(problem.code().value());
  }
}

void WholeFolder::remove_leftovers() const {
  std::vector<std::string> left;
  std::error_code failed;
  for (fs::directory_iterator at(above_, failed), end; !failed && at != end; at.increment(failed)) {
    if (is_leftover(at->path().filename().string(), name_) && is_plain_folder(at->path().string())) left.push_back(at->path().string());
  }
  if (failed) fail(failed.value());
  std::sort(left.begin(), left.end());
  for (const std::string& path : left) {
    if (!ends_with(path, kOld) || is_there(target_))
      remove_unread(path);
    else if (rename(path.c_str(), target_.c_str()) != 0)
      fail(errno);
  }
}

void WholeFolder::make_above(const std::string& name) const {
  std::error_code failed;
  fs::create_directories(fs::path(work_ + "/" + name).parent_path(), failed);
  if (failed) fail(failed.value());
}

void WholeFolder::fail(int number) const {
  throw Error(kind_, target_, std::strerror(number), "a place where a folder can be written",
              "Choose another place, or make its folder writable");
}

void WholeFolder::File::write(Bytes bytes) {
  ThisCall::check();
  for (size_t done = 0; done < bytes.size;) {
    const ssize_t put = ::write(descriptor_.get(), bytes.data + done, bytes.size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) folder_.fail(errno);
    done += static_cast<size_t>(put);
  }
}

void WholeFolder::File::finish() {
  if (const int failed = sync_file(descriptor_.get())) folder_.fail(failed);
  descriptor_ = Descriptor();
}

}  // namespace bespoke
