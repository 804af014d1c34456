// SPDX-License-Identifier: Apache-2.0
// Reads back what tensor_files.cpp and its Python counterpart write, and nothing else: the file is hashed before its header is
// believed, and its tensors stay in the mapping.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "format/hash.h"
#include "platform/files.h"
#include "state/errors.h"
#include "state/tensor_files.h"

namespace bespoke {

const StateTensor* MappedTensors::find(std::string_view name) const {
  auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                             [](const StateTensor& tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

namespace {

constexpr uint64_t kMostHeaderBytes = uint64_t{8} << 20;
constexpr int32_t kMostRank = 8;

// With a shared lock, which goes with the mapping: see `zero` in tensor_files.cpp.
LockedFile map(const std::string& path, int64_t size) {
  LockedFile file{Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)), {}};
  const int descriptor = file.descriptor.get();
  if (descriptor < 0) throw from_read_errno(errno, path);
  struct stat found{};
  if (fstat(descriptor, &found) != 0) throw from_errno(errno, path);
  if (!S_ISREG(found.st_mode)) throw damaged(path, "something that is no file", "a plain file");
  if (found.st_size != size || size < 8)
    throw damaged(path, std::to_string(found.st_size) + " bytes", std::to_string(size) + " bytes, as committed");
  if (const int failed = try_lock(descriptor, Lock::shared)) throw from_errno(failed, path);
  if (const int failed = file.mapped.map(descriptor, 0, static_cast<size_t>(size))) throw from_errno(failed, path);
  return file;
}

constexpr const char* kNone = "no such tensor";

// Of an adapter only damage makes another. What a slot must hold is for the bundle to say, and that may have been replaced.
Error other_tensor(const std::string& path, const TensorFile& record, std::string_view name, const std::string& got,
                   const std::string& expected) {
  const std::string subject = path + ", tensor '" + std::string(name.substr(0, 200)) + "'";
  if (record.file.compare(0, strlen(kSlotKind), kSlotKind) != 0) return damaged(subject, got, expected);
  return Error(Kind::State, subject, got, expected + ", as the run's method keeps it in this bundle",
               "Open the bundle that the run was started with, or " + to_call(Verb::abandon_run) + " and train again");
}

}  // namespace

// The header as it is written: no spaces, keys in one order, tensors in the order of names and of places.
struct TensorFileReader {
  const std::string& subject;
  std::string_view left;
  MappedTensors found;

  Error bad(const std::string& what) const {
    return damaged(subject, "a header that is none of ours (" + what.substr(0, 150) + ")", "a safetensors header");
  }

  bool take(std::string_view expected) {
    if (left.substr(0, expected.size()) != expected) return false;
    left.remove_prefix(expected.size());
    return true;
  }

  void need(std::string_view expected) {
    if (!take(expected)) throw bad("no " + std::string(expected));
  }

  int64_t integer() {
    int64_t number = 0;
    auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), number);
    if (error != std::errc() || number < 0) throw bad("no integer of at least 0");
    left.remove_prefix(static_cast<size_t>(end - left.data()));
    return number;
  }

  std::string_view name() {
    need("\"");
    size_t end = 0;
    bool escaped = false;
    for (; end < left.size() && left[end] != '"'; end++)
      if (left[end] == '\\') escaped = true, end++;
    if (end >= left.size()) throw bad("a name without an end");
    std::string_view spelled = left.substr(0, end);
    left.remove_prefix(end + 1);
    if (!escaped) return spelled;
    auto decoded = nlohmann::json::parse("\"" + std::string(spelled) + "\"", nullptr, false);
    if (!decoded.is_string()) throw bad("a name that is no text");
    found.spelled_.push_back(std::make_unique<std::string>(decoded.get<std::string>()));
    return *found.spelled_.back();
  }

  void read(const uint8_t* data, size_t data_size) {
    int64_t at = 0;
    need("{");
    while (!left.empty() && left.front() != '}') {
      if (!found.tensors_.empty()) need(",");
      StateTensor tensor;
      tensor.name = name();
      if (!found.tensors_.empty() && tensor.name <= found.tensors_.back().name) throw bad("a key twice, or out of order");
      need(":{\"dtype\":\"F32\",\"shape\":[");
      int64_t count = 4;
      bool too_much = false;
      while (!take("]")) {
        if (tensor.rank) need(",");
        found.extents_.push_back(integer());
        too_much |= ++tensor.rank > kMostRank || __builtin_mul_overflow(count, found.extents_.back(), &count);
      }
      need(",\"data_offsets\":[");
      int64_t start = integer();
      need(",");
      int64_t end = integer();
      need("]}");
      if (too_much || start != at || end < start || end - start != count || static_cast<uint64_t>(end) > data_size)
        throw bad("the place of tensor '" + std::string(tensor.name.substr(0, 100)) + "'");
      tensor.data = reinterpret_cast<const float*>(data + start);
      found.tensors_.push_back(tensor);
      at = end;
    }
    need("}");
    if (left.find_first_not_of(' ') != std::string_view::npos) throw bad("text after its end");
    if (static_cast<uint64_t>(at) != data_size)
      throw bad(std::to_string(data_size - static_cast<uint64_t>(at)) + " bytes after the last tensor");
    const int64_t* shape = found.extents_.data();
    for (StateTensor& tensor : found.tensors_) tensor.shape = shape, shape += tensor.rank;
  }

  MappedTensors finish(LockedFile file) {
    found.file_ = std::move(file);
    return std::move(found);
  }
};

MappedTensors read_tensor_file(const std::string& folder, const TensorFile& record, const TensorShapes& expected) {
  std::string path = folder + "/" + record.file;
  if (record.file.find('/') != std::string::npos || !is_tensor_file_name(record.file))
    throw damaged(folder, "a tensor file named '" + record.file.substr(0, 100) + "' in the database", "a name of ours");
  LockedFile file = map(path, record.bytes);
  const Bytes bytes = file.mapped.bytes();
  const std::string sha256 = sha256_hex(bytes);
  if (sha256 != record.sha256)
    throw damaged(path, "content with sha256 " + sha256.substr(0, 16), record.sha256.substr(0, 16) + ", as committed");
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes.data[i];
  uint64_t most = std::min<uint64_t>(bytes.size - 8, kMostHeaderBytes);
  if (length > most) throw damaged(path, "a header of " + std::to_string(length) + " bytes", "at most " + std::to_string(most));
  if (length % 4) throw damaged(path, "data that is not aligned", "floats at multiples of 4");
  TensorFileReader reader{path, {reinterpret_cast<const char*>(bytes.data) + 8, length}, {}};
  reader.read(bytes.data + 8 + length, bytes.size - 8 - length);
  MappedTensors tensors = reader.finish(std::move(file));
  for (const StateTensor& tensor : tensors.all()) {
    const int64_t known = expected.find(tensor.name);
    if (known < 0) throw other_tensor(path, record, tensor.name, typed(tensor), kNone);
    if (!expected.has_shape_of(static_cast<size_t>(known), tensor))
      throw other_tensor(path, record, tensor.name, typed(tensor), typed(expected.piece(static_cast<size_t>(known))));
  }
  for (size_t i = 0; i < expected.size(); i++)
    if (!tensors.find(expected.piece(i).name)) throw other_tensor(path, record, expected.piece(i).name, kNone, typed(expected.piece(i)));
  return tensors;
}

}  // namespace bespoke
