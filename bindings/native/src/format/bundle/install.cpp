// SPDX-License-Identifier: Apache-2.0
// The new bundle is written next to its place, under a name that no one opens (format/whole_folder.h), out of two sources: the archives,
// and the bundle that is there. A file of the old one gets a second name, where the file system can do that, and is read once to hash it.
// The folder is opened as a bundle before it takes its place, so what is checked last is what will be read.
#include "format/bundle/install.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "format/hash.h"
#include "format/json.h"
#include "format/untrusted_text.h"
#include "format/whole_folder.h"
#include "platform/files.h"
#include "this_call.h"

namespace bespoke {

namespace {

constexpr size_t kChunk = 256 << 10;

[[noreturn]] void refuse_file(const std::string& subject, const std::string& got, const std::string& expected) {
  throw Error(Kind::Bundle, subject, got, expected,
              "Install all archives of one bundle together, or a delta over the bundle that it was packed against");
}

// The files of the archives, and for all others those of the old bundle. What vouches for the files comes out of the archives alone.
class Joined : public ByteSource {
 public:
  Joined(const std::vector<std::string>& archives, const std::string& old) : archives_(open_archives(archives)), own_(archives_->names()) {
    subject_ = archives_->subject();
    if (!old.empty()) old_ = open_source(old);
  }

  std::set<std::string> names() override { return own_; }

  bool is_archived(const std::string& name) const { return own_.count(name) != 0; }

  Extent extent(const std::string& name) override {
    if (is_archived(name) || is_reserved(name)) return archives_->extent(name);
    if (!old_) refuse_file(subject_ + ": " + name, "no such entry, and no bundle to update", "every file of the bundle");
    return old_->extent(name);
  }

 private:
  std::unique_ptr<ByteSource> archives_, old_;
  const std::set<std::string> own_;
};

// Passes on the bytes of a file piece by piece; their sha256.
template <typename Take>
std::string hash_through(const Extent& extent, const std::string& subject, Take take) {
  RunningSha256 hash;
  std::vector<uint8_t> chunk(static_cast<size_t>(std::min<uint64_t>(kChunk, std::max<uint64_t>(extent.size, 1))));
  for (uint64_t done = 0; done < extent.size;) {
    ThisCall::check();
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(chunk.size(), extent.size - done));
    const size_t got = read_at(extent.descriptor.get(), chunk.data(), wanted, extent.offset + done, subject);
    hash.add({chunk.data(), got});
    take(Bytes{chunk.data(), got});
    if (got < wanted) break;  // the file shrank meanwhile, which the hash shows
    done += got;
  }
  return hash.finish();
}

std::string copy(const Extent& extent, WholeFolder& whole, const std::string& name) {
  WholeFolder::File file = whole.create(name);
  const std::string sha256 = hash_through(extent, name, [&](Bytes bytes) { file.write(bytes); });
  file.finish();
  return sha256;
}

// The file under its second name: what is hashed is what the new bundle has, whatever becomes of the old one meanwhile.
std::string hash_linked(const WholeFolder& whole, const std::string& name) {
  const Extent extent = open_source(whole.work())->extent(name);
  const std::string sha256 = hash_through(extent, name, [](Bytes) {});
  if (const int failed = sync_file(extent.descriptor.get()))
    refuse_file(name, std::string("errno ") + std::to_string(failed), "a file that can be flushed");
  return sha256;
}

class OwnFiles : public PieceTaker {  // of a bundle of any version, as its manifest lists them
 public:
  void take(const std::string& container, const std::string& key, Json& value) override {
    if (container == "files")
      names.insert(key);
    else if (key == "format")
      is_bundle = value == "bespoke-bundle";
  }
  std::set<std::string> names = {kManifest, "manifest.sha256", "signature"};
  bool is_bundle = false;
};

// A folder that is replaced is deleted with all that is in it: only a bundle and nothing else is.
void check_replaceable(const std::string& folder) {
  OwnFiles own;
  try {
    const Extent manifest = open_source(folder)->extent(kManifest);
    std::string text(static_cast<size_t>(std::min<uint64_t>(manifest.size, kMaxManifest + 1)), '\0');
    text.resize(read_at(manifest.descriptor.get(), &text[0], text.size(), 0, folder));
    const Bytes document = bytes_of(text);
    const JsonRules rules{folder, Kind::Bundle, "Choose another folder", kMaxManifest, kMaxManifestDepth, kMaxManifestItems};
    check_json(document, rules);
    Faults faults;
    read_pieces(document, rules, nullptr, {"", "files"}, faults, own);
  } catch (const Error&) {
    own.is_bundle = false;
  }
  if (!own.is_bundle) {
    throw Error(Kind::Bundle, folder, "a folder that is no bundle", "a free name, an empty folder or a bundle to replace",
                "Choose another name, or remove the folder yourself");
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (own.names.count(name) || (entry.is_directory() && !entry.is_symlink())) continue;
    throw Error(Kind::Bundle, folder, "a bundle with a foreign file in it (" + in_quotes(name) + ")",
                "a bundle and nothing else, since it is replaced whole", "Move that file away first");
  }
}

bool is_there(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0;
}

// Both sources are closed when it returns: while the old folder is open, it is one that somebody reads.
void write_bundle(const std::vector<std::string>& archives, WholeFolder& whole, const Trust& trust) {
  const std::string old = is_there(whole.target() + "/" + kManifest) ? whole.target() : "";
  const std::unique_ptr<Bundle> given = Bundle::open(std::make_unique<Joined>(archives, old), trust);
  Joined joined(archives, old);
  copy(joined.extent(kManifest), whole, kManifest);  // first: with it the folder is one to those who open it
  for (const std::string& name : joined.names()) {
    if (is_reserved(name) && name != kManifest) copy(joined.extent(name), whole, name);
  }
  int64_t done = 0, all = 0;
  for (const auto& [name, record] : given->manifest().files) all += static_cast<int64_t>(record.size);
  for (const auto& [name, record] : given->manifest().files) {
    ThisCall::tell(done, all);
    done += static_cast<int64_t>(record.size);
    const bool is_linked = !joined.is_archived(name) && whole.link(old + "/" + name, name);
    const std::string sha256 = is_linked ? hash_linked(whole, name) : copy(joined.extent(name), whole, name);
    if (sha256 == record.sha256) continue;
    refuse_file((joined.is_archived(name) ? joined.subject() : old) + ": " + name, "sha256 " + sha256, record.sha256);
  }
}

}  // namespace

void install_bundle(const std::vector<std::string>& archives, const std::string& folder, const Trust& trust) {
  if (archives.empty()) throw Error(Kind::Config, "archives", "none", "the zips of a bundle", "Name them");
  WholeFolder whole(folder, Kind::Bundle, WholeFolder::Readers::everyone, check_replaceable);
  write_bundle(archives, whole, trust);
  Bundle::open(whole.work(), trust);
  whole.finish();
}

}  // namespace bespoke
