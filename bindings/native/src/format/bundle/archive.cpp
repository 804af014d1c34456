// SPDX-License-Identifier: Apache-2.0
// Stored zips as sdk/bespoke/bundle/archive.py writes them, read by writing them again in mind and comparing: what a zip may say
// twice must agree in every byte, entries follow each other without gaps and begin on 16 KB.
#include <cstring>

#include "format/bundle/source.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr size_t kLocal = 30, kCentral = 46, kEnd = 22;
constexpr uint32_t kVersion = 10, kMadeBy = 3 << 8 | 10, kDate = 0x21, kMode = 0100644u << 16, kPadding = 0xd935;

uint32_t number(const uint8_t* at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= uint32_t{at[i]} << (8 * i);
  return value;
}

class Writer {
 public:
  Writer& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) out += static_cast<char>(value >> (8 * i));
    return *this;
  }
  Writer& text(const std::string& value) {
    out += value;
    return *this;
  }
  std::string out;
};

// An extra field that ends on a page; it needs 4 bytes for its own header.
std::string padding(uint64_t begin) {
  uint64_t length = (kPage - begin % kPage) % kPage;
  if (length < 4) length += kPage;
  std::string out = Writer().put(kPadding, 2).put(length - 4, 2).out;
  out.resize(length, '\0');
  return out;
}

std::string end_record(uint32_t count, uint32_t length, uint32_t begin) {
  return Writer().text("PK\x05\x06").put(0, 4).put(count, 2).put(count, 2).put(length, 4).put(begin, 4).put(0, 2).out;
}

std::string local_header(const std::string& name, uint32_t crc, uint32_t size, size_t extra) {
  return Writer()
      .text("PK\x03\x04")
      .put(kVersion, 2)
      .put(0, 6)
      .put(kDate, 2)
      .put(crc, 4)
      .put(size, 4)
      .put(size, 4)
      .put(name.size(), 2)
      .put(extra, 2)
      .text(name)
      .out;
}

std::string central_header(const std::string& name, uint32_t crc, uint32_t size, uint32_t header) {
  return Writer()
      .text("PK\x01\x02")
      .put(kMadeBy, 2)
      .put(kVersion, 2)
      .put(0, 6)
      .put(kDate, 2)
      .put(crc, 4)
      .put(size, 4)
      .put(size, 4)
      .put(name.size(), 2)
      .put(0, 8)
      .put(kMode, 4)
      .put(header, 4)
      .text(name)
      .out;
}

class Zip {
 public:
  Zip(const Extent& archive, const std::string& subject) : archive_(archive), subject_(subject) {}

  std::map<std::string, Entry> entries() {
    const uint64_t size = archive_.size;
    if (size < kEnd) refuse("", std::to_string(size) + " bytes", "a zip");
    const std::string tail = bytes(size - kEnd, kEnd);
    const auto* at = reinterpret_cast<const uint8_t*>(tail.data());
    const uint32_t count = number(at + 10, 2), length = number(at + 12, 4), begin = number(at + 16, 4);
    if (tail != end_record(count, length, begin)) refuse("", "an end of central directory of another form", "a stored zip without comment");
    if (count > kMaxFiles || uint64_t{begin} + length != size - kEnd || length > count * (kCentral + 255)) {
      refuse("", "a central directory of " + std::to_string(length) + " bytes for " + std::to_string(count) + " files", "one that fits");
    }
    const std::string directory = bytes(begin, length);
    std::map<std::string, Entry> found;
    size_t position = 0;
    uint64_t expected = 0;
    for (uint32_t i = 0; i < count; i++) {
      const Central entry = central(directory, position);
      if (found.count(entry.name)) refuse(entry.name, "an entry twice", "each name once");
      if (entry.header != expected) {
        refuse(entry.name, "an entry at " + std::to_string(entry.header),
               "one at " + std::to_string(expected) + ", where the one before ends");
      }
      const uint64_t data = local(entry, begin);
      found.emplace(entry.name, Entry{archive_.offset + data, entry.size});
      expected = data + entry.size;
    }
    if (position != length || expected != begin) refuse("", "bytes that belong to no entry", "entries without gaps");
    return found;
  }

 private:
  struct Central {
    std::string name;
    uint32_t crc, size, header;
  };

  [[noreturn]] void refuse(const std::string& name, const std::string& got, const std::string& expected) const {
    throw Error(Kind::Bundle, name.empty() ? subject_ : subject_ + ": " + name, got, expected, "Pack the bundle again with bespoke");
  }

  std::string bytes(uint64_t offset, size_t size) const {
    std::string out(size, '\0');
    out.resize(read_at(archive_.descriptor.get(), &out[0], size, archive_.offset + offset, subject_));
    return out;
  }

  Central central(const std::string& directory, size_t& position) const {
    if (position + kCentral > directory.size()) refuse("", "a central directory that ends too soon", "an entry for each file");
    const auto* at = reinterpret_cast<const uint8_t*>(directory.data()) + position;
    Central entry{"", number(at + 16, 4), number(at + 20, 4), number(at + 42, 4)};
    const size_t length = number(at + 28, 2);
    entry.name = directory.substr(position + kCentral, length);
    const char* problem = is_reserved(entry.name) ? nullptr : file_name_problem(entry.name);
    if (problem) refuse(in_quotes(entry.name, 100), std::string("a name that is ") + problem, "a plain relative name");
    if (directory.compare(position, kCentral + length, central_header(entry.name, entry.crc, entry.size, entry.header)) != 0) {
      refuse(entry.name, "an entry of another form", "a stored regular file without extra fields");
    }
    position += kCentral + length;
    return entry;
  }

  // Where the data of an entry begins, once its local header says what the central directory says.
  uint64_t local(const Central& entry, uint64_t limit) const {
    const std::string extra = padding(entry.header + kLocal + entry.name.size());
    const std::string expected = local_header(entry.name, entry.crc, entry.size, extra.size()) + extra;
    if (entry.header + expected.size() + entry.size > limit) {
      refuse(entry.name, std::to_string(entry.size) + " bytes at " + std::to_string(entry.header), "an entry within the archive");
    }
    if (bytes(entry.header, expected.size()) != expected) {
      refuse(entry.name, "a local header that differs from the central directory", "the same");
    }
    return entry.header + expected.size();
  }

  const Extent& archive_;
  const std::string& subject_;
};

}  // namespace

std::map<std::string, Entry> read_entries(const Extent& archive, const std::string& subject) { return Zip(archive, subject).entries(); }

}  // namespace bespoke
