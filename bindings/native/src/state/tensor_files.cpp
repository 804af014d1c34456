// SPDX-License-Identifier: Apache-2.0
#include "state/tensor_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>

#include "format/hash.h"
#include "platform/descriptor.h"
#include "platform/files.h"
#include "state/errors.h"
#include "state/stored_text.h"
#include "this_call.h"

namespace bespoke {

const char* const kSlotKind = "slot";
const char* const kBestKind = "best";
const char* const kAcceptedKind = "accepted";
const char* const kSharedKind = "shared";

namespace {

constexpr size_t kAlignment = 64;  // of the data, so that a mapped tensor starts on a cache line
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kHeaderPiece = size_t{16} << 10;  // what is kept of a header while it is written
constexpr size_t kZeros = size_t{64} << 10;
constexpr std::string_view kSuffix = ".safetensors";

Error misfit(std::string_view name, const std::string& got, const std::string& expected) {
  return Error(Kind::Adapter, ("adapter tensor '" + std::string(name) + "'").substr(0, 200), got, expected,
               "Use an adapter made with this bundle's base model and LoRA settings");
}

std::vector<const StateTensor*> by_name(const std::vector<StateTensor>& tensors) {
  std::vector<const StateTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const StateTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  return sorted;
}

bool all_finite(const float* data, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!std::isfinite(data[i])) return false;
  return true;
}

// Bytes on their way to a file, hashed and counted; an errno where they did not arrive.
class Writer {
 public:
  explicit Writer(int descriptor) : descriptor_(descriptor) {}

  int write_all(const void* data, size_t size) {
    auto* at = static_cast<const uint8_t*>(data);
    while (size > 0) {
      size_t chunk = std::min(size, kChunkBytes);
      hash_.add({at, chunk});
      for (size_t left = chunk; left > 0;) {
        ssize_t done = write(descriptor_, at + chunk - left, left);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        left -= static_cast<size_t>(done);
      }
      at += chunk, size -= chunk, bytes_ += static_cast<int64_t>(chunk);
    }
    return 0;
  }

  int64_t bytes() const { return bytes_; }
  std::string sha256() { return hash_.finish(); }

 private:
  int descriptor_;
  int64_t bytes_ = 0;
  RunningSha256 hash_;
};

// The header's text, handed out entry by entry: it is never whole in memory.
template <class Emit>
void emit_header(const std::vector<const StateTensor*>& tensors, Emit emit) {
  int64_t offset = 0;
  emit("{");
  for (size_t i = 0; i < tensors.size(); i++) {
    const StateTensor& tensor = *tensors[i];
    int64_t end = offset + 4 * tensor.elements();
    std::string entry = (i ? "," : "") + json_text(tensor.name) + ":{\"dtype\":\"F32\",\"shape\":[";
    for (int32_t j = 0; j < tensor.rank; j++) entry += (j ? "," : "") + std::to_string(tensor.shape[j]);
    entry += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    emit(entry);
    offset = end;
  }
  emit("}");
}

struct HeaderSize {
  uint64_t length, padding;  // bytes after the first eight, padding included
};

HeaderSize header_size(const std::vector<const StateTensor*>& tensors) {
  uint64_t length = 0;
  emit_header(tensors, [&](std::string_view text) { length += text.size(); });
  const uint64_t padding = (kAlignment - (8 + length) % kAlignment) % kAlignment;
  return {length + padding, padding};
}

int write_content(Writer& writer, const std::vector<const StateTensor*>& tensors) {
  const auto [length, padding] = header_size(tensors);
  std::string pending;
  for (int i = 0; i < 8; i++) pending += static_cast<char>(length >> 8 * i);
  int failed = 0;
  auto push = [&](std::string_view text) {
    pending += text;
    if (pending.size() < kHeaderPiece || failed) return;
    failed = writer.write_all(pending.data(), pending.size());
    pending.clear();
  };
  emit_header(tensors, push);
  push(std::string(padding, ' '));
  if (!failed) failed = writer.write_all(pending.data(), pending.size());
  for (size_t i = 0; i < tensors.size() && !failed; i++)
    failed = writer.write_all(tensors[i]->data, 4 * static_cast<size_t>(tensors[i]->elements()));
  return failed;
}

// One of ours, finished or (where `leftover`) whatever a killed process left.
bool is_tensor_file(std::string_view name, bool leftover) {
  constexpr std::string_view partial = ".partial";
  auto ends_with = [&](std::string_view end) { return name.size() >= end.size() && name.substr(name.size() - end.size()) == end; };
  size_t kind = 0;
  for (const std::string_view begin : {kSlotKind, kBestKind, kAcceptedKind, kSharedKind})
    if (name.substr(0, begin.size()) == begin && name.substr(begin.size(), 1) == "_") kind = begin.size() + 1;
  if (!kind) return false;
  if (leftover && ends_with(partial)) name.remove_suffix(partial.size());
  if (!ends_with(kSuffix) || name.size() < kind + kSuffix.size()) return false;
  if (leftover) return name.find('\n') == std::string_view::npos;
  name = name.substr(kind, name.size() - kind - kSuffix.size());
  size_t digits = name.find_first_not_of("0123456789");
  return digits >= 8 && digits <= 19 && name.size() == digits + 9 && name[digits] == '_' &&
         name.find_first_not_of("0123456789abcdef", digits + 1) == std::string_view::npos;
}

std::vector<std::string> names_in(const std::string& folder, bool leftover) {
  DIR* listing = opendir(folder.c_str());
  if (!listing) throw from_errno(errno, folder);
  std::vector<std::string> found;
  while (const dirent* entry = readdir(listing))
    if (is_tensor_file(entry->d_name, leftover)) found.emplace_back(entry->d_name);
  closedir(listing);
  return found;
}

// Overwrites a file that is about to be unlinked, unless somebody reads it: a reader holds a shared lock on it for as long as it is
// mapped, and zeros would be what it answers with. No name leads to such a file any more, and the system frees it when the last reader
// lets go. New readers cannot come: they take the lock on files first, which the caller holds.
int zero(const std::string& path) {
  Descriptor opened(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat found{};
  if (opened.get() < 0 || fstat(opened.get(), &found) != 0) return errno;
  if (const int failed = try_lock(opened.get(), Lock::exclusive)) return failed == EWOULDBLOCK ? 0 : failed;
  const std::vector<char> zeros(kZeros);
  for (off_t left = found.st_size; left > 0;) {
    ssize_t done = write(opened.get(), zeros.data(), std::min<size_t>(static_cast<size_t>(left), zeros.size()));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    left -= done;
  }
  return sync_file(opened.get());
}

}  // namespace

void check_tensors(const std::vector<StateTensor>& tensors, const TensorShapes& adapter, bool with_state) {
  auto sorted = by_name(tensors);
  size_t at = 0;
  for (size_t i = 0; i < adapter.size(); i++) {  // both are in the order of names
    while (at < sorted.size() && sorted[at]->name < adapter.piece(i).name) at++;
    if (at == sorted.size() || sorted[at]->name != adapter.piece(i).name)
      throw misfit(adapter.piece(i).name, "no such tensor", typed(adapter.piece(i)));
  }
  for (size_t i = 0; i < sorted.size(); i++) {
    const StateTensor& tensor = *sorted[i];
    const int64_t piece = adapter.find(tensor.name);
    if (piece < 0 && !(with_state && adapter.owns(tensor.name)))
      throw misfit(tensor.name, "a tensor that the adapter does not have", "names of the bundle's adapter only");
    if (i && sorted[i - 1]->name == tensor.name) throw misfit(tensor.name, "two tensors of this name", "one");
    if (piece >= 0 && !adapter.has_shape_of(static_cast<size_t>(piece), tensor))
      throw misfit(tensor.name, typed(tensor), typed(adapter.piece(static_cast<size_t>(piece))));
    if (!with_state && !all_finite(tensor.data, tensor.elements())) throw misfit(tensor.name, "NaN or infinity", "finite numbers");
  }
}

TensorFile write_tensors(const std::string& folder, const std::string& kind, int64_t number, const std::vector<StateTensor>& tensors) {
  char ending[48];
  snprintf(ending, sizeof ending, "_%08lld_%08x", static_cast<long long>(number), std::random_device{}());
  std::string name = kind + ending + std::string(kSuffix), path = folder + "/" + name, partial = path + ".partial";
  TensorFile record{name, "", 0};
  int failed = 0;
  {
    Descriptor opened(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (opened.get() < 0) {
      failed = errno;
    } else {
      Writer writer(opened.get());
      failed = write_content(writer, by_name(tensors));
      if (!failed) failed = sync_file(opened.get());
      record.sha256 = writer.sha256();
      record.bytes = writer.bytes();
    }
  }
  if (!failed && rename(partial.c_str(), path.c_str()) != 0) failed = errno;
  if (!failed) failed = sync_folder(folder);
  if (failed) {
    discard(partial), discard(path);
    throw from_errno(failed, path);
  }
  return record;
}

int64_t tensor_file_bytes(const std::vector<StateTensor>& tensors) {
  auto bytes = static_cast<int64_t>(8 + header_size(by_name(tensors)).length);
  for (const StateTensor& tensor : tensors) bytes += 4 * tensor.elements();
  return bytes;
}

void sweep_tensor_files(const std::string& folder, const std::vector<std::string>& named, bool overwrite) {
  for (const std::string& name : names_in(folder, true)) {
    if (std::find(named.begin(), named.end(), name) != named.end()) continue;
    ThisCall::check();
    std::string path = folder + "/" + name;
    struct stat found{};
    if (lstat(path.c_str(), &found) != 0) throw from_errno(errno, folder);
    if (S_ISDIR(found.st_mode)) continue;
    if (int failed = erase(path, overwrite)) throw from_errno(failed, folder);
  }
  if (!overwrite) return;
  if (int failed = sync_folder(folder)) throw from_errno(failed, folder);
}

int erase(const std::string& path, bool overwrite) {
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) return errno;
  int failed = overwrite && S_ISREG(found.st_mode) ? zero(path) : 0;
  if (!failed && unlink(path.c_str()) != 0 && errno != ENOENT) failed = errno;
  return failed;
}

void discard(const std::string& path) { unlink(path.c_str()); }

std::string typed(const StateTensor& tensor) {
  std::string text = "float32 [";
  for (int32_t i = 0; i < tensor.rank; i++) text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

bool is_tensor_file_name(std::string_view name) { return is_tensor_file(name, false); }

std::vector<std::string> tensor_files_in(const std::string& folder) { return names_in(folder, false); }

}  // namespace bespoke
