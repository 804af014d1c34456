// SPDX-License-Identifier: Apache-2.0
// How a binary for the NPU reaches its driver; no NPU is needed for that.
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/npu.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "platform/mapping.h"
#include "platform/memory.h"

using bespoke::kNpu;
using executorch::runtime::DataLoader;

namespace {

constexpr size_t kStart = 5000, kBinary = 16 << 20;  // of the program within an archive; of the binary that is all of it
constexpr size_t kSignature = 4, kSignatureEnd = 12;

}  // namespace

TEST_CASE("each time a binary for the NPU is opened it has another signature, and takes a page and not its size") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  const std::string binary(kBinary, 'b');
  REQUIRE(std::fseek(file, kStart, SEEK_SET) == 0);
  REQUIRE(std::fwrite(binary.data(), 1, kBinary, file) == kBinary);
  REQUIRE(std::fflush(file) == 0);
  bespoke::MappedFile mapped;
  REQUIRE(mapped.map(fileno(file), kStart, kBinary) == 0);
  bespoke_artifact artifact{};
  artifact.struct_size = sizeof artifact;
  artifact.descriptor = fileno(file);
  artifact.offset = kStart, artifact.size = kBinary;
  artifact.bytes = mapped.bytes().data;
  const bespoke::ProgramBytes program(artifact);
  const DataLoader::SegmentInfo segment(DataLoader::SegmentInfo::Type::Backend, 0, kNpu);
  const bespoke::MemoryColumns columns;
  const auto before = columns.read().total();
  auto one = program.load(0, kBinary, segment), other = program.load(0, kBinary, segment);
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  CHECK(columns.read().total() - before < static_cast<int64_t>(kBinary / 16));
  const auto* bytes = static_cast<const char*>(one->data());
  CHECK(std::memcmp(bytes + kSignature, static_cast<const char*>(other->data()) + kSignature, kSignatureEnd - kSignature) != 0);
  CHECK(std::memcmp(bytes, binary.data(), kSignature) == 0);
  CHECK(std::memcmp(bytes + kSignatureEnd, binary.data(), kBinary - kSignatureEnd) == 0);
  CHECK(std::memcmp(mapped.bytes().data, binary.data(), kBinary) == 0);  // the file stays what it is
  std::fclose(file);
}

TEST_CASE("a binary that is not the one whose hash was computed is not opened") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  REQUIRE(std::fwrite("another program", 1, 16, file) == 16);
  REQUIRE(std::fflush(file) == 0);
  const char hashed[17] = "the same program";
  bespoke_artifact artifact{};
  artifact.descriptor = fileno(file);
  artifact.size = 16, artifact.bytes = hashed;
  const bespoke::ProgramBytes program(artifact);
  CHECK_FALSE(program.load(0, 16, DataLoader::SegmentInfo(DataLoader::SegmentInfo::Type::Backend, 0, kNpu)).ok());
  std::fclose(file);
}
#endif
