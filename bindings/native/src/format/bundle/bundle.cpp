// SPDX-License-Identifier: Apache-2.0
// Opening reads the manifest, checks pin, sum and signature on its exact bytes, and holds names and sizes on the disk against it. A
// file's hash is computed when it is first asked for, on the descriptor that is then mapped.
#include "format/bundle/bundle.h"

#include <sodium/crypto_sign_ed25519.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "format/hash.h"
#include "format/json.h"
#include "format/untrusted_text.h"
#include "locks.h"
#include "platform/mapping.h"
#include "this_call.h"

namespace bespoke {

namespace {

constexpr const char* kSum = "manifest.sha256";
constexpr const char* kSignature = "signature";
constexpr size_t kMaxBeside = 256, kHashChunk = 64 << 10;

class OpenBundle : public Bundle {
 public:
  OpenBundle(std::unique_ptr<ByteSource> source, const Trust& trust) : source_(std::move(source)) {
    const std::set<std::string> present = source_->names();
    const std::string document = small(kManifest, kMaxManifest);
    const std::string sha256 = sha256_hex(bytes_of(document));
    authenticate(document, sha256, present.count(kSignature) != 0, trust);
    if (small(kSum, kMaxBeside) != sha256 + "  " + kManifest + "\n") {
      refuse(kSum, "another sum than " + sha256, "the sha256 of manifest.json, as sha256sum writes it");
    }
    manifest_ = read_manifest(bytes_of(document), kManifest);
    check_presence(present);
  }

  const Manifest& manifest() const override { return manifest_; }

  // Hashing a large file keeps nobody else waiting: what two threads read at once is read twice.
  void remember(KnownHashes& known) override { hashes_ = &known; }

  void hash_again(const std::string& name) override { check_hash(name, extent(name), nullptr); }

  Bytes file(const std::string& name) override {
    if (const std::optional<Bytes> known = known_file(name)) return *known;
    const Extent extent = this->extent(name);
    check_hash(name, extent, is_program(name) ? nullptr : hashes_);
    if (extent.size == 0) return {};
    MappedFile mapped;
    if (const int failed = mapped.map(extent.descriptor.get(), extent.offset, extent.size)) {
      if (is_withheld(failed)) throw withheld(failed, at(name));
      refuse(name, std::strerror(failed), "a file that can be mapped");
    }
    const MutexLock alone(reading_);
    return files_.emplace(name, std::move(mapped)).first->second.bytes();
  }

  const Tensors& tensors(const std::string& name) override {
    {
      const MutexLock alone(reading_);
      const auto known = tensors_.find(name);
      if (known != tensors_.end()) return known->second;
    }
    const Bytes bytes = file(name);
    if (!bytes.size) refuse(name, "an empty file", "a safetensors file");
    Tensors tensors = read_tensors(bytes, at(name), Kind::Bundle);
    const auto is_group = [&](const auto& group) { return group.second == name; };
    const bool weights = std::any_of(manifest_.weights.begin(), manifest_.weights.end(), is_group);
    const uint8_t* first = bytes.data + bytes.size;
    for (const auto& [_, tensor] : tensors) first = std::min(first, tensor.data);
    const size_t start = static_cast<size_t>(first - bytes.data);
    if (weights && start % kPage) {
      refuse(name, "data at byte " + std::to_string(start), "data at a multiple of " + std::to_string(kPage));
    }
    const MutexLock alone(reading_);
    return tensors_.emplace(name, std::move(tensors)).first->second;
  }

  Located locate(const std::string& name) override { return {source_->path(name), extent(name)}; }

  void drop(const std::string& name) override {
    if (const std::optional<Bytes> known = known_file(name)) drop_pages(*known);
  }

 private:
  std::optional<Bytes> known_file(const std::string& name) {
    const MutexLock alone(reading_);
    const auto known = files_.find(name);
    return known == files_.end() ? std::nullopt : std::optional(known->second.bytes());
  }

  bool is_program(const std::string& name) const {
    const auto is_of = [&](const Artifact& artifact) { return artifact.file == name; };
    return std::any_of(manifest_.targets.begin(), manifest_.targets.end(),
                       [&](const Target& target) { return std::any_of(target.artifacts.begin(), target.artifacts.end(), is_of); });
  }

  std::string at(const std::string& name) const { return source_->subject() + ": " + name; }
  [[noreturn]] void refuse(const std::string& name, const std::string& got, const std::string& expected) const {
    refuse_bundle(at(name), got, expected);
  }

  // A file that the manifest does not list.
  std::string small(const std::string& name, size_t limit) {
    const Extent extent = source_->extent(name);
    if (extent.size > limit) refuse(name, std::to_string(extent.size) + " bytes", "at most " + std::to_string(limit));
    std::string out(extent.size, '\0');
    out.resize(read_at(extent.descriptor.get(), &out[0], out.size(), extent.offset, at(name)));
    return out;
  }

  void authenticate(const std::string& document, const std::string& sha256, bool is_signed, const Trust& trust) {
    if (trust.require && !trust.pin_sha256 && !trust.public_key) {
      throw Error(Kind::Signature, at(kManifest), "neither a pinned sha256 nor a public key to hold it against",
                  "a bundle that is pinned or signed: authentication is required",
                  "Give the sha256 of its manifest.json, or the public key of the one who signs it");
    }
    if (trust.pin_sha256 && lower_case(*trust.pin_sha256) != sha256) {
      throw Error(Kind::Signature, at(kManifest), "sha256 " + sha256, "the pinned " + trust.pin_sha256->substr(0, 80),
                  "Get the bundle that the app was built with");
    }
    const std::string signature = is_signed ? small(kSignature, kMaxBeside) : "";
    if (is_signed && signature.size() != crypto_sign_ed25519_BYTES) {
      refuse(kSignature, std::to_string(signature.size()) + " bytes", std::to_string(crypto_sign_ed25519_BYTES));
    }
    if (!trust.public_key) return;
    const char* got = nullptr;
    if (!is_signed) {
      got = "no signature";
    } else if (crypto_sign_ed25519_verify_detached(bytes_of(signature).data, bytes_of(document).data, document.size(),
                                                   trust.public_key->data()) != 0) {
      got = "a signature of other bytes or by another key";
    }
    if (!got) return;
    throw Error(Kind::Signature, at(kSignature), got, is_signed ? "one by the app's key" : "a signature: the app asks for one",
                "Get the bundle and its key from the one who built it");
  }

  void check_presence(const std::set<std::string>& present) {
    for (const std::string& name : present) {
      if (!is_reserved(name) && !manifest_.files.count(name)) {
        refuse(in_quotes(name, 255), "a file that the manifest does not list", "listed files only");
      }
    }
    for (const auto& [name, _] : manifest_.files) extent(name);
  }

  const FileRecord& record(const std::string& name) const {
    const auto found = manifest_.files.find(name);
    if (found == manifest_.files.end()) refuse(in_quotes(name, 255), "a name that the manifest does not list", "a listed one");
    return found->second;
  }

  Extent extent(const std::string& name) {
    const FileRecord& expected = record(name);
    Extent found = source_->extent(name);
    if (found.size != expected.size) refuse(name, std::to_string(found.size) + " bytes", std::to_string(expected.size));
    return found;
  }

  void check_hash(const std::string& name, const Extent& found, KnownHashes* known) const {
    const auto compute = [&] { return hash_of(found, at(name)); };
    const std::string sha256 = known ? known->of(found.descriptor.get(), found.offset, found.size, compute) : compute();
    if (record(name).sha256 != sha256) refuse(name, "sha256 " + sha256, record(name).sha256);
  }

  static std::string hash_of(const Extent& found, const std::string& subject) {
    RunningSha256 hash;
    const auto chunk = std::make_unique<unsigned char[]>(std::min<uint64_t>(kHashChunk, std::max<uint64_t>(found.size, 1)));
    for (uint64_t done = 0; done < found.size;) {
      ThisCall::check();
      const size_t wanted = static_cast<size_t>(std::min<uint64_t>(kHashChunk, found.size - done));
      const size_t got = read_at(found.descriptor.get(), chunk.get(), wanted, found.offset + done, subject);
      hash.add({chunk.get(), got});
      if (got < wanted) break;  // the file shrank meanwhile, which the hash shows
      done += got;
    }
    return hash.finish();
  }

  const std::unique_ptr<ByteSource> source_;
  Manifest manifest_;
  Mutex reading_;  // of the maps; what is in them stays where it is
  std::map<std::string, MappedFile> files_ GUARDED_BY(reading_);
  std::map<std::string, Tensors> tensors_ GUARDED_BY(reading_);
  KnownHashes* hashes_ = nullptr;  // none: each is computed
};

}  // namespace

std::unique_ptr<Bundle> Bundle::open(const BundlePlace& place, const Trust& trust) { return open(open_source(place), trust); }

std::unique_ptr<Bundle> Bundle::open(std::unique_ptr<ByteSource> source, const Trust& trust) {
  return std::make_unique<OpenBundle>(std::move(source), trust);
}

}  // namespace bespoke
