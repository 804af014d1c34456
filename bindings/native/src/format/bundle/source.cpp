// SPDX-License-Identifier: Apache-2.0
// A folder is walked with descriptors, component by component and never through a link, so that nothing outside it can be named:
// neither by a name (those are checked as well) nor by a link that appears while it is being read.
#include "format/bundle/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "format/untrusted_text.h"
#include "platform/files.h"

namespace bespoke {

namespace {

constexpr int kMaxFolders = 8;
constexpr int kOpen = O_RDONLY | O_CLOEXEC;
constexpr uint64_t kAlignment = 64;  // of a bundle within a file: no tensor asks for more

std::string reason() { return std::strerror(errno); }

// Of a call that failed with errno.
[[noreturn]] void refuse_unread(const std::string& subject, const std::string& expected) {
  if (is_withheld(errno)) throw withheld(errno, subject);
  refuse_bundle(subject, reason(), expected);
}

bool exists(const std::string& path, bool regular) {
  struct stat status{};
  return regular ? stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) : lstat(path.c_str(), &status) == 0;
}

class Folder : public ByteSource {
 public:
  // With a shared lock, so that who replaces the folder leaves the old one to us. One that was replaced before it was locked may be
  // gone already, so it has to have its name still.
  explicit Folder(const std::string& path) {
    subject_ = path;
    struct stat own{}, named{};
    do {
      root_ = Descriptor(open(path.c_str(), kOpen | O_DIRECTORY));
      if (root_.get() < 0) refuse_unread(subject_, "a bundle");
      try_lock(root_.get(), Lock::shared);  // a file system without locks has none
    } while (fstat(root_.get(), &own) == 0 && stat(path.c_str(), &named) == 0 &&
             (own.st_ino != named.st_ino || own.st_dev != named.st_dev));
  }

  std::set<std::string> names() override {
    std::set<std::string> found;
    walk(Descriptor(openat(root_.get(), ".", kOpen | O_DIRECTORY)), "", found, 0);
    return found;
  }

  Extent extent(const std::string& name) override {
    const std::string subject = subject_ + ": " + name;
    Descriptor at;
    size_t begin = 0;
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', begin)) {
      at = inner(at, name.substr(begin, slash - begin), O_DIRECTORY, subject);
      begin = slash + 1;
    }
    Descriptor file = inner(at, name.substr(begin), O_NONBLOCK, subject);  // a named pipe must not wait for its other end
    struct stat status{};
    if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse_bundle(subject, "a folder or device", "a regular file");
    return {std::move(file), 0, static_cast<uint64_t>(status.st_size)};
  }

  std::string path(const std::string& name) const override { return subject_ + "/" + name; }

 private:
  Descriptor inner(const Descriptor& at, const std::string& component, int flags, const std::string& subject) {
    Descriptor opened(openat(at.get() < 0 ? root_.get() : at.get(), component.c_str(), kOpen | O_NOFOLLOW | flags));
    if (opened.get() < 0) refuse_unread(subject, "a regular file of the bundle, not a link");
    return opened;
  }

  void walk(Descriptor at, const std::string& prefix, std::set<std::string>& found, int depth) {
    const int copy = at.get() < 0 ? -1 : fcntl(at.get(), F_DUPFD_CLOEXEC, 0);  // the stream closes its own
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(copy < 0 ? nullptr : fdopendir(copy), closedir);
    if (!stream) {
      const int failed = errno;
      if (copy >= 0) close(copy);
      errno = failed;
      refuse_unread(subject_, "a folder that can be listed");
    }
    while (const dirent* entry = readdir(stream.get())) {
      const std::string component = entry->d_name, name = prefix + component;
      if (component == "." || component == "..") continue;
      struct stat status{};
      if (fstatat(at.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        refuse_unread(subject_, "a folder that can be listed");
      }
      if (S_ISREG(status.st_mode)) {
        found.insert(name);
        if (found.size() > kMaxFiles + 2) refuse_bundle(subject_, "more than " + std::to_string(kMaxFiles) + " files", "fewer");
      } else if (S_ISDIR(status.st_mode)) {
        if (depth + 1 >= kMaxFolders) {
          refuse_bundle(subject_ + ": " + in_quotes(name, 255), "folders nested too deep",
                        "fewer than " + std::to_string(kMaxFolders) + " levels");
        }
        walk(Descriptor(openat(at.get(), entry->d_name, kOpen | O_DIRECTORY | O_NOFOLLOW)), name + "/", found, depth + 1);
      } else {
        refuse_bundle(subject_ + ": " + in_quotes(name, 255), "a link or a device", "regular files and folders");
      }
    }
  }

  Descriptor root_;
};

// A file that is given by its descriptor is opened once more, so that the app may close its own.
Descriptor duplicate(int descriptor, const std::string& subject) {
  Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) refuse_bundle(subject, reason(), "a file that can be read");
  return copy;
}

class Zips : public ByteSource {
 public:
  explicit Zips(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) subject_ += (subject_.empty() ? "" : ", ") + path;
    for (const std::string& path : paths) {
      Descriptor file(open(path.c_str(), kOpen | O_NONBLOCK));
      if (file.get() < 0) refuse_unread(path, "a zip");
      const uint64_t size = size_of(file, path);
      add({std::move(file), 0, size}, path);
    }
  }

  explicit Zips(const BundlePlace& place) {
    subject_ = "the bundle at byte " + std::to_string(place.offset) + " of a file";
    Descriptor file = duplicate(place.descriptor, subject_);
    const uint64_t size = size_of(file, subject_);
    if (place.size > size || place.offset > size - place.size)
      refuse_bundle(subject_, std::to_string(place.size) + " bytes in a file of " + std::to_string(size), "a range within the file");
    if (place.offset % kAlignment)
      throw Error(Kind::Bundle, subject_, "an offset that is no multiple of " + std::to_string(kAlignment),
                  "tensors that can be read in place",
                  "Align the stored asset (zipalign " + std::to_string(kAlignment) + "), or copy the bundle out of the archive");
    add({std::move(file), place.offset, place.size}, subject_);
  }

  std::set<std::string> names() override {
    std::set<std::string> found;
    for (const auto& [name, _] : entries_) found.insert(name);
    return found;
  }

  Extent extent(const std::string& name) override {
    const auto found = entries_.find(name);
    if (found == entries_.end()) refuse_bundle(subject_ + ": " + name, "no such entry", "every file of the bundle; are both zips there?");
    const auto& [archive, entry] = found->second;
    return {duplicate(archives_[archive].descriptor.get(), subject_ + ": " + name), entry.offset, entry.size};
  }

 private:
  static uint64_t size_of(const Descriptor& file, const std::string& subject) {
    struct stat status{};
    if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse_bundle(subject, "no regular file", "a zip");
    return static_cast<uint64_t>(status.st_size);
  }

  void add(Extent archive, const std::string& subject) {
    archives_.push_back(std::move(archive));
    for (const auto& [name, entry] : read_entries(archives_.back(), subject)) {
      if (!entries_.emplace(name, std::make_pair(archives_.size() - 1, entry)).second) {
        refuse_bundle(subject + ": " + name, "an entry that another archive has as well", "each file once");
      }
    }
  }

  std::vector<Extent> archives_;
  std::map<std::string, std::pair<size_t, Entry>> entries_;
};

}  // namespace

std::unique_ptr<ByteSource> open_source(const BundlePlace& place) {
  const std::string& path = place.path;
  if (path.empty()) return std::make_unique<Zips>(place);
  if (path.find('\0') != std::string::npos) refuse_bundle(in_quotes(path), "a path with NUL", "a bundle");
  if (exists(path, true)) return std::make_unique<Zips>(std::vector<std::string>{path});
  const std::string method = path + "/method.zip", weights = path + "/weights.zip";
  if (!exists(method, true) || exists(path + "/manifest.json", false)) return std::make_unique<Folder>(path);
  return std::make_unique<Zips>(exists(weights, true) ? std::vector<std::string>{method, weights} : std::vector<std::string>{method});
}

std::unique_ptr<ByteSource> open_archives(const std::vector<std::string>& paths) { return std::make_unique<Zips>(paths); }

size_t read_at(int descriptor, void* out, size_t size, uint64_t offset, const std::string& subject) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(descriptor, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_unread(subject, "a file that can be read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void refuse_bundle(const std::string& subject, const std::string& got, const std::string& expected) {
  throw Error(Kind::Bundle, subject, got, expected, "Get the bundle again from where it was built");
}

}  // namespace bespoke
