// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: everything it says is held against the file's size before any of it is used.
#include "format/safetensors.h"

#include <algorithm>

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

class Header : public PieceTaker {
 public:
  Header(const std::string& subject, Kind kind, const std::vector<SafetensorsType>& known, bool is_mapped = false)
      : subject_(subject), kind_(kind), known_(known), is_mapped_(is_mapped) {}

  size_t bytes(Bytes start, uint64_t file_size) const {
    uint64_t length = 0;
    for (size_t i = 0; i < std::min(kSafetensorsStart, start.size); i++) length |= uint64_t{start.data[i]} << (8 * i);
    if (file_size < kSafetensorsStart || length > std::min<uint64_t>(kMaxHeader, file_size - kSafetensorsStart)) {
      refuse(subject_, "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file_size),
             "at most " + std::to_string(kMaxHeader) + " and within the file");
    }
    return static_cast<size_t>(length);
  }

  SafetensorsHeader read(Bytes header, uint64_t file_size) {
    if (header.size == 0 || header.data[0] != '{') {
      refuse(subject_, "a header that begins with " + in_quotes({reinterpret_cast<const char*>(header.data), header.size ? 1u : 0u}),
             "'{'");
    }
    const size_t items = kMaxTensors * (kMaxDimensions + 8);
    const JsonRules rules{subject_ + ", header", kind_, "Get the file again from where it was built", kMaxHeader, 3, items};
    check_json(header, rules);
    Faults faults;
    read_pieces(header, rules, nullptr, {""}, faults, *this);
    place(file_size, kSafetensorsStart + header.size);
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& got, const std::string& expected) const {
    throw Error(kind_, where, got, expected, "Get the file again from where it was built");
  }
  std::string at(const std::string& name) const { return subject_ + ", tensor " + in_quotes(name, 100); }

  void take(const std::string&, const std::string& name, Json& entry) override {
    if (name == "__metadata__") return take_metadata(entry);
    if (found_.entries.size() == kMaxTensors) refuse(subject_, "more than " + std::to_string(kMaxTensors) + " tensors", "fewer");
    found_.entries.push_back(checked(name, entry));
  }

  void take_metadata(const Json& texts) {
    if (texts.is_null()) return;  // as MLX writes that there is none
    const bool sound = texts.is_object() && std::all_of(texts.begin(), texts.end(), [](const Json& text) { return text.is_string(); });
    if (!sound) refuse(subject_ + ", __metadata__", "other than texts by name", "texts by name");
    found_.metadata = texts.get<std::map<std::string, std::string>>();
  }

  std::string known_names() const {
    std::string names;
    for (const SafetensorsType& type : known_) names += (names.empty() ? "" : ", ") + std::string(type.name);
    return names;
  }

  const SafetensorsType* known_type(std::string_view name) const {
    for (const SafetensorsType& type : known_) {
      if (name == type.name) return &type;
    }
    return nullptr;
  }

  SafetensorsEntry checked(const std::string& name, const Json& entry) const {
    const size_t characters = count_characters(name);
    if (name.empty() || characters > kMaxName || !is_printable(name)) {
      refuse(at(name), "a name of " + std::to_string(characters) + " characters, or not printable", "a short plain name");
    }
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      refuse(at(name), "other fields", "exactly dtype, shape and data_offsets");
    }
    const Json& dtype = entry["dtype"];
    const SafetensorsType* type = dtype.is_string() ? known_type(dtype.get_ref<const std::string&>()) : nullptr;
    if (!type) refuse(at(name), "dtype " + shown(dtype), "one of " + known_names());
    const Json &shape = entry["shape"], &offsets = entry["data_offsets"];
    if (!are_sizes(shape) || shape.size() > kMaxDimensions) refuse(at(name), "shape " + shown(shape), "at most 8 sizes");
    if (!are_sizes(offsets) || offsets.size() != 2) refuse(at(name), "data_offsets " + shown(offsets), "[begin, end]");
    SafetensorsEntry out{name, type->name, shape.get<std::vector<int64_t>>(), offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
    unsigned __int128 bytes = type->bytes;
    for (const int64_t extent : out.shape) bytes = std::min<unsigned __int128>(bytes, kTooMany) * static_cast<uint64_t>(extent);
    // A zero after a product that was cut is a zero all the same.
    if (out.end < out.begin || bytes != out.end - out.begin) {
      refuse(at(name), std::to_string(static_cast<int64_t>(out.end) - static_cast<int64_t>(out.begin)) + " bytes for shape " + shown(shape),
             "as many as dtype and shape");
    }
    out.shape.shrink_to_fit();
    return out;
  }

  static bool are_sizes(const Json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& size) {
             return size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(kMaxBytes);
           });
  }

  // Puts the entries in the order of their data, which begins at `start`; from now on they say where it lies in the file.
  void place(uint64_t file_size, uint64_t start) {
    auto& entries = found_.entries;
    std::sort(entries.begin(), entries.end(),
              [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
    uint64_t offset = 0;
    for (SafetensorsEntry& entry : entries) {
      if (entry.begin != offset) {
        refuse(at(entry.name), std::string(entry.begin > offset ? "a hole" : "an overlap") + " before byte " + std::to_string(entry.begin),
               "a tensor that begins at " + std::to_string(offset));
      }
      if (is_mapped_ && (start + entry.begin) % known_type(entry.dtype)->bytes) {
        refuse(at(entry.name), "data at byte " + std::to_string(start + entry.begin), "data aligned to its type");
      }
      if (entry.end > file_size - start) {
        refuse(subject_, std::to_string(file_size) + " bytes",
               std::to_string(start + entry.end) + " or more, where " + entry.name + " ends");
      }
      offset = entry.end;
      entry.begin += start, entry.end += start;
    }
    if (start + offset != file_size) {
      refuse(subject_, std::to_string(file_size) + " bytes", std::to_string(start + offset) + ", where the last tensor ends");
    }
  }

  static constexpr unsigned __int128 kTooMany = static_cast<unsigned __int128>(1) << 64;
  const std::string& subject_;
  const Kind kind_;
  const std::vector<SafetensorsType>& known_;
  const bool is_mapped_;
  SafetensorsHeader found_;
};

std::vector<SafetensorsType> types_of_bundles() {
  std::vector<SafetensorsType> types;
  for (const Code& code : kCodes) types.push_back({code.name, bytes_of(code.dtype)});
  return types;
}

DType dtype_named(const std::string& name) {
  return std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& code) { return name == code.name; })->dtype;
}

}  // namespace

size_t safetensors_header_bytes(Bytes start, uint64_t file_size, const std::string& subject, Kind kind) {
  return Header(subject, kind, {}).bytes(start, file_size);
}

SafetensorsHeader read_safetensors_header(Bytes header, uint64_t file_size, const std::string& subject, Kind kind,
                                          const std::vector<SafetensorsType>& known, bool is_mapped) {
  return Header(subject, kind, known, is_mapped).read(header, file_size);
}

Tensors read_tensors(Bytes file, const std::string& subject, Kind kind) {
  const size_t header_bytes = safetensors_header_bytes(file, file.size, subject, kind);
  const Bytes header{file.data + kSafetensorsStart, header_bytes};
  Tensors tensors;
  for (SafetensorsEntry& entry : read_safetensors_header(header, file.size, subject, kind, types_of_bundles(), true).entries) {
    const uint8_t* data = file.data + entry.begin;
    tensors.emplace(entry.name,
                    Tensor{dtype_named(entry.dtype), std::move(entry.shape), data, static_cast<size_t>(entry.end - entry.begin)});
  }
  return tensors;
}

}  // namespace bespoke
