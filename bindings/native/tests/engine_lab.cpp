// SPDX-License-Identifier: Apache-2.0
// The engine in the hands of a test: a request is one line of JSON, an answer another. Every operand and result lies between pages
// that nobody may touch, and results are filled with a pattern first, so that an answer says whether a byte of them was written.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bespoke.h"
#ifdef BESPOKE_EXECUTORCH
#include "engines/executorch/engine.h"
#endif

using Json = nlohmann::json;

namespace {

constexpr size_t kTail = 128;  // XNNPACK may read so far past an operand, and past a result that a later stage reads
constexpr uint8_t kPattern = 0xa5;
constexpr size_t kBytes[] = {4, 2, 1, 8, 4};  // of bespoke.h's dtypes

class Guarded {  // `size` bytes and the tail, which end where no page is
 public:
  explicit Guarded(size_t size) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (size + kTail + page - 1) / page * page;
    length_ = inside + 2 * page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + page, inside, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
    data_ = base_ + page + inside - size - kTail;
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() { munmap(base_, length_); }
  uint8_t* data() const { return data_; }
  void fill() const { std::memset(data_, kPattern, size_ + kTail); }
  bool untouched(size_t from) const {
    for (size_t i = from; i < size_ + kTail; i++)
      if (data_[i] != kPattern) return false;
    return true;
  }
  size_t size() const { return size_; }

 private:
  uint8_t *base_, *data_;
  size_t size_, length_;
};

struct Tensors {  // of a list of [shape, dtype]
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<bespoke_tensor> tensors;
  std::vector<const bespoke_tensor*> pointers;

  Tensors(const Json& specs, bool pattern, bool places = true) {
    for (const Json& spec : specs) shapes.push_back(spec[0].get<std::vector<int64_t>>());
    for (size_t i = 0; i < specs.size(); i++) {
      const int dtype = specs[i][1].get<int>();
      tensors.push_back({sizeof(bespoke_tensor), "", shapes[i].data(), static_cast<int32_t>(shapes[i].size()),
                         static_cast<bespoke_dtype>(dtype), nullptr, 0, nullptr});
      if (!places) continue;
      size_t size = kBytes[dtype];
      for (const int64_t extent : shapes[i]) size *= static_cast<size_t>(extent);
      memory.push_back(std::make_unique<Guarded>(size));
      if (pattern) memory.back()->fill();
      tensors.back().data = memory.back()->data();
    }
    for (const bespoke_tensor& tensor : tensors) pointers.push_back(&tensor);
  }
};

#ifdef BESPOKE_EXECUTORCH
Json logged = Json::array();  // [level, line]

void log(void*, bespoke_log_level level, const char* text) { logged.push_back({static_cast<int>(level), text}); }

struct Opened {
  std::vector<char> artifact;
  std::unique_ptr<Guarded> workspace;
  void* program = nullptr;
};

Json answer(const bespoke_engine& engine, std::vector<Opened>& opened, const Json& request) {
  char message[256] = "";
  const bool opens = request["do"] == "open";
  const Tensors operands(request["operands"], false, !opens), results(request["results"], true, !opens);
  if (opens) {
    std::ifstream file(request["path"].get<std::string>(), std::ios::binary);
    Opened made;
    made.artifact.assign(std::istreambuf_iterator<char>(file), {});
    made.workspace = std::make_unique<Guarded>((request["workspace"].get<size_t>() + 63) / 64 * 64);
    made.workspace->fill();
    bespoke_artifact artifact{};
    artifact.struct_size = sizeof artifact;
    artifact.descriptor = -1;
    artifact.bytes = made.artifact.data(), artifact.size = made.artifact.size();
    artifact.operands = operands.pointers.data(), artifact.operand_count = operands.pointers.size();
    artifact.results = results.pointers.data(), artifact.result_count = results.pointers.size();
    artifact.workspace = made.workspace->data(), artifact.workspace_bytes = made.workspace->size();
    const int code = engine.open(engine.context, &artifact, &made.program, message, sizeof message);
    const bool untouched = made.workspace->untouched(0);
    if (!code) opened.push_back(std::move(made));
    return {{"code", code},
            {"message", message},
            {"program", opened.size() - 1},
            {"untouched", untouched},
            {"log", std::exchange(logged, Json::array())}};
  }
  const int code = engine.run(engine.context, opened.at(request["program"].get<size_t>()).program, operands.pointers.data(),
                              operands.pointers.size(), results.pointers.data(), results.pointers.size(), message, sizeof message);
  bool untouched = true, inside = true;
  for (const auto& memory : results.memory) {
    untouched = untouched && memory->untouched(0);
    inside = inside && memory->untouched(memory->size());
  }
  return {{"code", code}, {"message", message}, {"untouched", untouched}, {"inside", inside}};
}
#endif

}  // namespace

int main() {
#ifdef BESPOKE_EXECUTORCH
  bespoke_set_log(log, nullptr);
  const bespoke_engine engine = bespoke::executorch_engine(1);
  std::vector<Opened> opened;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(engine, opened, Json::parse(line)).dump() << std::endl;
  for (const Opened& one : opened) engine.close(engine.context, one.program);
  engine.destroy(engine.context);
#endif
  return 0;
}
