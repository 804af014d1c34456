// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: everything it says is held against the file's size before any of it is used.
#include <algorithm>
#include <cstring>

#include "format/bundle/bundle.h"
#include "format/json.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr size_t kMaxHeader = 4u << 20, kMaxTensors = 65'536, kMaxDimensions = 8, kMaxName = 256;
constexpr int64_t kMaxBytes = int64_t{1} << 40;

struct Code {
  const char* name;
  DType dtype;
};
constexpr Code kCodes[] = {
    {"I64", DType::int64}, {"F32", DType::float32}, {"I32", DType::int32}, {"F16", DType::float16}, {"U8", DType::uint8}};

struct Slot {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

class Header : public PieceTaker {
 public:
  Header(const std::string& subject, Kind kind) : subject_(subject), kind_(kind) {}

  Tensors read(Bytes file) {
    uint64_t length = 0;
    for (size_t i = 0; i < std::min<size_t>(8, file.size); i++) length |= uint64_t{file.data[i]} << (8 * i);
    if (file.size < 8 || length > std::min<uint64_t>(kMaxHeader, file.size - 8)) {
      refuse(subject_, "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file.size),
             "at most " + std::to_string(kMaxHeader) + " and within the file");
    }
    const Bytes header{file.data + 8, static_cast<size_t>(length)};
    if (length == 0 || header.data[0] != '{') {
      refuse(subject_, "a header that begins with " + in_quotes({reinterpret_cast<const char*>(header.data), length ? 1u : 0u}), "'{'");
    }
    read_slots(header);
    return placed(file, 8 + length);
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& got, const std::string& expected) const {
    throw Error(kind_, where, got, expected, "Get the file again from where it was built");
  }
  std::string at(const std::string& name) const { return subject_ + ", tensor " + in_quotes(name, 100); }

  void read_slots(Bytes header) {
    const size_t items = kMaxTensors * (kMaxDimensions + 8);
    const JsonRules rules{subject_ + ", header", kind_, "Get the file again from where it was built", kMaxHeader, 3, items};
    check_json(header, rules);
    Faults faults;
    read_pieces(header, rules, nullptr, {""}, faults, *this);
  }

  void take(const std::string&, const std::string& name, Json& entry) override {
    if (name == "__metadata__") return check_metadata(entry);
    if (slots_.size() == kMaxTensors) refuse(subject_, "more than " + std::to_string(kMaxTensors) + " tensors", "fewer");
    slots_.push_back(slot(name, entry));
  }

  void check_metadata(const Json& texts) const {
    const bool sound = texts.is_object() && std::all_of(texts.begin(), texts.end(), [](const Json& text) { return text.is_string(); });
    if (!sound) refuse(subject_ + ", __metadata__", "other than texts by name", "texts by name");
  }

  Slot slot(const std::string& name, const Json& entry) const {
    const size_t characters = count_characters(name);
    if (name.empty() || characters > kMaxName || !is_printable(name)) {
      refuse(at(name), "a name of " + std::to_string(characters) + " characters, or not printable", "a short plain name");
    }
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
      refuse(at(name), "other fields", "exactly dtype, shape and data_offsets");
    }
    const Code* code = nullptr;
    for (const Code& known : kCodes) {
      if (entry["dtype"] == known.name) code = &known;
    }
    if (!code) refuse(at(name), "dtype " + shown(entry["dtype"]), "one of I64, F32, I32, F16, U8");
    const Json &shape = entry["shape"], &offsets = entry["data_offsets"];
    if (!are_sizes(shape) || shape.size() > kMaxDimensions) refuse(at(name), "shape " + shown(shape), "at most 8 sizes");
    if (!are_sizes(offsets) || offsets.size() != 2) refuse(at(name), "data_offsets " + shown(offsets), "[begin, end]");
    Slot out{name, code->dtype, shape.get<std::vector<int64_t>>(), offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
    unsigned __int128 bytes = bytes_of(out.dtype);
    for (const int64_t extent : out.shape) bytes = std::min<unsigned __int128>(bytes, kTooMany) * static_cast<uint64_t>(extent);
    // A zero after a product that was cut is a zero all the same.
    if (out.end < out.begin || bytes != out.end - out.begin) {
      refuse(at(name), std::to_string(static_cast<int64_t>(out.end) - static_cast<int64_t>(out.begin)) + " bytes for shape " + shown(shape),
             "as many as dtype and shape");
    }
    return out;
  }

  static bool are_sizes(const Json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& size) {
             return size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(kMaxBytes);
           });
  }

  Tensors placed(Bytes file, uint64_t start) {
    std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    Tensors tensors;
    uint64_t offset = 0;
    for (Slot& slot : slots_) {
      if (slot.begin != offset) {
        refuse(at(slot.name), std::string(slot.begin > offset ? "a hole" : "an overlap") + " before byte " + std::to_string(slot.begin),
               "a tensor that begins at " + std::to_string(offset));
      }
      if ((start + slot.begin) % bytes_of(slot.dtype)) {
        refuse(at(slot.name), "data at byte " + std::to_string(start + slot.begin), "data aligned to its type");
      }
      if (slot.end > file.size - start) {
        refuse(subject_, std::to_string(file.size) + " bytes", std::to_string(start + slot.end) + " or more, where " + slot.name + " ends");
      }
      offset = slot.end;
      slot.shape.shrink_to_fit();
      tensors.emplace(slot.name, Tensor{slot.dtype, std::move(slot.shape), file.data + start + slot.begin, slot.end - slot.begin});
    }
    if (start + offset != file.size) {
      refuse(subject_, std::to_string(file.size) + " bytes", std::to_string(start + offset) + ", where the last tensor ends");
    }
    return tensors;
  }

  static constexpr unsigned __int128 kTooMany = static_cast<unsigned __int128>(1) << 64;
  const std::string& subject_;
  const Kind kind_;
  std::vector<Slot> slots_;
};

}  // namespace

Tensors read_tensors(Bytes file, const std::string& subject, Kind kind) { return Header(subject, kind).read(file); }

}  // namespace bespoke
