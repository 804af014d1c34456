// SPDX-License-Identifier: Apache-2.0
#include "federated/received_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "format/hash.h"
#include "platform/descriptor.h"
#include "platform/files.h"
#include "platform/mapping.h"
#include "state/errors.h"

namespace bespoke {

namespace {

constexpr const char* kFolder = "received";
constexpr useconds_t kLookMicroseconds = 2000;  // between two looks for a file that is on its way
constexpr int kLooks = 250;                     // for it, between two looks whether it is still wanted

std::string subject_of(const ReceivedFile& file) { return "file " + file.sha256.substr(0, 16) + " of the server"; }

int64_t size_of(const std::string& path) {  // -1: no such file
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : -1;
}

std::string hash_of(int descriptor, const std::string& path) {
  constexpr size_t chunk = size_t{1} << 16;
  std::vector<uint8_t> bytes(chunk);
  RunningSha256 hash;
  for (off_t at = 0;;) {
    const ssize_t done = pread(descriptor, bytes.data(), bytes.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw from_errno(errno, path);
    if (done == 0) return hash.finish();
    hash.add({bytes.data(), static_cast<size_t>(done)});
    at += done;
  }
}

}  // namespace

ReceivedFiles::ReceivedFiles(const std::string& state_folder) : folder_(state_folder + "/" + kFolder) {}

std::string ReceivedFiles::path_of(const ReceivedFile& file) const { return folder_ + "/" + file.sha256; }

bool ReceivedFiles::has(const ReceivedFile& file) const { return size_of(path_of(file)) == file.size; }

void ReceivedFiles::wait_for(const ReceivedFile& file, const Control& control, const std::function<bool()>& is_wanted) const {
  for (int looks = 1; !has(file); looks++) {
    control.check();
    if (looks % kLooks == 0 && !is_wanted() && !has(file))
      throw Error(Kind::Data, subject_of(file), "no such file any more", "those that its document names", "Ask the server again");
    usleep(kLookMicroseconds);
  }
}

std::optional<std::pair<ReceivedFile, int64_t>> ReceivedFiles::wanted(const std::vector<ReceivedFile>& files) const {
  for (const ReceivedFile& file : files)
    if (!has(file)) return std::make_pair(file, std::min(file.size, std::max<int64_t>(0, size_of(partial_of(file)))));
  return std::nullopt;
}

void ReceivedFiles::add(const ReceivedFile& file, int64_t offset, Bytes bytes) const {
  if (has(file)) return;
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) throw from_errno(errno, folder_);
  const std::string partial = partial_of(file);
  const Descriptor opened(open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (opened.get() < 0) throw from_errno(errno, partial);
  if (const int failed = wait_for_lock(opened.get(), Lock::exclusive)) throw from_errno(failed, partial);
  struct stat found{};
  if (fstat(opened.get(), &found) != 0) throw from_errno(errno, partial);
  if (offset != static_cast<int64_t>(found.st_size)) return;
  if (static_cast<uint64_t>(file.size - offset) < bytes.size)
    throw Error(Kind::Data, subject_of(file), std::to_string(bytes.size) + " bytes from " + std::to_string(offset),
                "at most " + std::to_string(file.size - offset) + ": it has " + std::to_string(file.size),
                "Get the range that was asked for");
  for (size_t done = 0; done < bytes.size;) {
    const ssize_t written =
        pwrite(opened.get(), bytes.data + done, bytes.size - done, static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw from_errno(errno, partial);
    done += static_cast<size_t>(written);
  }
  if (offset + static_cast<int64_t>(bytes.size) < file.size) return;
  if (hash_of(opened.get(), partial) != file.sha256) {
    if (ftruncate(opened.get(), 0) != 0) throw from_errno(errno, partial);
    throw Error(Kind::Data, subject_of(file), "other bytes than it signed", "those of this sha256", "Get it again from the start");
  }
  if (const int failed = sync_file(opened.get())) throw from_errno(failed, partial);
  if (rename(partial.c_str(), path_of(file).c_str()) != 0) throw from_errno(errno, partial);
}

void ReceivedFiles::remove_all_but(const std::vector<ReceivedFile>& files) const {
  std::set<std::string> kept;
  for (const ReceivedFile& file : files) kept.insert(file.sha256), kept.insert(file.sha256 + ".partial");
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored))
    if (!kept.count(entry.path().filename().string())) std::filesystem::remove_all(entry.path(), ignored);
}

}  // namespace bespoke
