// SPDX-License-Identifier: Apache-2.0
// What is remembered of a file, and when it is not: by counting how often its hash was computed.
#include "format/known_hashes.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "format/hash.h"

using bespoke::KnownHashes;

namespace {

// Ten seconds ahead: files that were just written have been there for a while.
int64_t later() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() + int64_t{10000000000};
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Folder {
  Folder() {
    char name[] = "/tmp/known_hashes_XXXXXX";
    REQUIRE(mkdtemp(name));
    path = name;
    write("weights", "the weights");
  }
  ~Folder() {
    for (const char* name : {"weights", "memory", "other"}) std::remove((path + "/" + name).c_str());
    chmod(path.c_str(), 0700);
    rmdir(path.c_str());
  }
  std::string at(const std::string& name) const { return path + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name), std::ios::binary) << text; }
  std::string path;
};

struct Asked {
  std::string sha256;
  int computed;  // times
};

Asked ask(KnownHashes& known, const std::string& path, uint64_t offset = 0, uint64_t size = 11) {
  const int descriptor = open(path.c_str(), O_RDONLY);
  REQUIRE(descriptor >= 0);
  Asked asked{"", 0};
  asked.sha256 = known.of(descriptor, offset, size, [&] {
    asked.computed++;
    const std::string part = content(path).substr(offset, size);
    return bespoke::sha256_hex({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
  });
  close(descriptor);
  return asked;
}

int64_t changed_ns(const std::string& path) {
  struct stat found{};
  REQUIRE(stat(path.c_str(), &found) == 0);
#ifdef __APPLE__
  return int64_t{found.st_ctimespec.tv_sec} * 1000000000 + found.st_ctimespec.tv_nsec;
#else
  return int64_t{found.st_ctim.tv_sec} * 1000000000 + found.st_ctim.tv_nsec;
#endif
}

// Other bytes of the same length, and the time of the last write as it was.
void forge(const std::string& path, const std::string& text) {
  struct stat before{};
  REQUIRE(stat(path.c_str(), &before) == 0);
#ifdef __APPLE__
  const timespec times[2] = {before.st_atimespec, before.st_mtimespec};
#else
  const timespec times[2] = {before.st_atim, before.st_mtim};
#endif
  const int64_t since = changed_ns(path);
  while (changed_ns(path) == since) {  // the clock of files ticks every few milliseconds
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << text;
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
}

}  // namespace

TEST_CASE("A hash is computed once, and once for all processes where it is saved") {
  const Folder folder;
  KnownHashes first(folder.at("memory"), later);
  const Asked computed = ask(first, folder.at("weights"));
  CHECK(computed.computed == 1);
  CHECK(computed.sha256 == "f38329d231164082b94f28edf29bff349b44403e09fc4057d65b31051f4ae6b5");
  CHECK(ask(first, folder.at("weights")).computed == 0);
  CHECK(first.save());
  KnownHashes second(folder.at("memory"), later);
  const Asked remembered = ask(second, folder.at("weights"));
  CHECK(remembered.computed == 0);
  CHECK(remembered.sha256 == computed.sha256);
  KnownHashes alone("", later);
  CHECK(ask(alone, folder.at("weights")).computed == 1);
  CHECK(ask(alone, folder.at("weights")).computed == 0);
}

TEST_CASE("A file that was written to is hashed again, also where its time was put back") {
  const Folder folder;
  KnownHashes known(folder.at("memory"), later);
  const std::string old = ask(known, folder.at("weights")).sha256;
  REQUIRE(known.save());
  forge(folder.at("weights"), "THE WEIGHTS");
  KnownHashes next(folder.at("memory"), later);
  for (KnownHashes* process : {&known, &next}) {
    const Asked asked = ask(*process, folder.at("weights"));
    CHECK(asked.computed == 1);
    CHECK(asked.sha256 != old);
  }
}

TEST_CASE("A file that another user may write to is hashed every time: a writable mapping changes it without a sign") {
  const Folder folder;
  KnownHashes known(folder.at("memory"), later);
  const auto times = [&] { return ask(known, folder.at("weights")).computed + ask(known, folder.at("weights")).computed; };
  for (const mode_t mode : {0666, 0620, 0602}) {
    REQUIRE(chmod(folder.at("weights").c_str(), mode) == 0);
    CHECK(times() == 2);
  }
  REQUIRE(chmod(folder.at("weights").c_str(), 0644) == 0);
  CHECK(times() == 1);
  if (geteuid() != 0) return;  // only root may give a file away
  REQUIRE(chown(folder.at("weights").c_str(), 12345, getegid()) == 0);
  CHECK(times() == 2);
}

TEST_CASE("Another file in its place is hashed") {
  const Folder folder;
  KnownHashes known("", later);
  ask(known, folder.at("weights"));
  folder.write("other", "the weights");
  REQUIRE(rename(folder.at("other").c_str(), folder.at("weights").c_str()) == 0);
  CHECK(ask(known, folder.at("weights")).computed == 1);
}

TEST_CASE("Parts of one file are known apart") {
  const Folder folder;
  KnownHashes known("", later);
  const std::string whole = ask(known, folder.at("weights")).sha256;
  const Asked part = ask(known, folder.at("weights"), 4, 7);
  CHECK(part.computed == 1);
  CHECK(part.sha256 != whole);
  CHECK(ask(known, folder.at("weights"), 4, 7).sha256 == part.sha256);
  CHECK(ask(known, folder.at("weights"), 4, 6).computed == 1);
}

TEST_CASE("A file that has just changed is not remembered") {
  const Folder folder;
  KnownHashes known("");  // by the true clock
  CHECK(ask(known, folder.at("weights")).computed == 1);
  CHECK(ask(known, folder.at("weights")).computed == 1);
}

TEST_CASE("A file that changes while it is hashed is not remembered") {
  const Folder folder;
  KnownHashes known("", later);
  const int descriptor = open(folder.at("weights").c_str(), O_RDONLY);
  known.of(descriptor, 0, 11, [&] {
    forge(folder.at("weights"), "THE WEIGHTS");
    return std::string(64, '0');
  });
  close(descriptor);
  CHECK(ask(known, folder.at("weights")).computed == 1);
}

TEST_CASE("A memory that is torn, damaged, of another version or no file is none") {
  const Folder folder;
  KnownHashes first(folder.at("memory"), later);
  ask(first, folder.at("weights"));
  REQUIRE(first.save());
  const std::string sound = content(folder.at("memory"));
  std::string other_digit = sound, version = sound;
  other_digit[sound.size() - 2] = sound[sound.size() - 2] == '0' ? '1' : '0';
  version[sound.find(" 1 ") + 1] = '2';
  for (const std::string& text : {std::string(), sound.substr(0, 40), sound.substr(0, sound.size() - 1), sound + "1", other_digit, version,
                                  std::string(sound.size(), '\0'), std::string(2 << 20, ' ')}) {
    CAPTURE(text.size());
    folder.write("memory", text);
    KnownHashes next(folder.at("memory"), later);
    CHECK(ask(next, folder.at("weights")).computed == 1);
  }
  KnownHashes of_a_folder(folder.path, later);
  CHECK(ask(of_a_folder, folder.at("weights")).computed == 1);
  CHECK_FALSE(of_a_folder.save());
  folder.write("memory", sound);
  KnownHashes again(folder.at("memory"), later);
  CHECK(ask(again, folder.at("weights")).computed == 0);
}

TEST_CASE("Nothing is written where nothing is new, and nothing is left behind where it cannot be") {
  const Folder folder;
  KnownHashes known(folder.at("memory"), later);
  CHECK(known.save());
  CHECK(access(folder.at("memory").c_str(), F_OK) != 0);
  ask(known, folder.at("weights"));
  KnownHashes nowhere(folder.at("none/memory"), later);
  ask(nowhere, folder.at("weights"));
  CHECK_FALSE(nowhere.save());
}
