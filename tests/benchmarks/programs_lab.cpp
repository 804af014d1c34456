// SPDX-License-Identifier: Apache-2.0
// Programs of ExecuTorch in a process of their own, with the device core's operators: they take turns, and memory is said as it grows.
//
//     programs_lab LIBRARY THREADS ROUNDS {PROGRAM OPERANDS CACHE}...
//
// LIBRARY: the device core. OPERANDS: a file with the operands of a program, each at the start of a page. CACHE: of packed weights, or -.
// Lines of JSON: anonymous bytes before and after loading and after a first run, then a line a round with the wall and processor seconds of
// each program.
#include <dlfcn.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

namespace rt = executorch::runtime;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

constexpr size_t kPage = 4096, kWorkspace = size_t{64} << 20;

void check(bool well, const char* what) {
  if (!well) std::fprintf(stderr, "%s\n", what), std::exit(1);
}

double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

size_t in_pages(size_t size) { return (size + kPage - 1) / kPage * kPage; }

uint8_t* memory(size_t size) {
  return static_cast<uint8_t*>(mmap(nullptr, in_pages(size + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void say_memory(const char* when) {
  FILE* status = std::fopen("/proc/self/status", "r");
  char line[256];
  long kilobytes = 0;
  while (std::fgets(line, sizeof line, status)) std::sscanf(line, "RssAnon: %ld", &kilobytes);
  std::fclose(status);
  std::printf("{\"when\": \"%s\", \"bytes\": %ld}\n", when, kilobytes * 1024);
}

struct Mapped {
  uint8_t* data;
  size_t size;

  explicit Mapped(const char* path) {
    const int file = open(path, O_RDONLY);
    struct stat found;
    check(file >= 0 && fstat(file, &found) == 0, path);
    size = static_cast<size_t>(found.st_size);
    data = static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0));
    close(file);
  }
};

class Loaded {
 public:
  Loaded(const char* path, const char* operands, const char* cache)
      : file_(path), operands_(operands), loader_(file_.data, file_.size), program_(program_of(&loader_)),
        temporary_(kWorkspace, workspace()) {
    auto meta = program_.method_meta("forward");
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); i++) {
      const auto size = static_cast<size_t>(*meta->memory_planned_buffer_size(i));
      planned_.push_back({memory(size), size});
    }
    hierarchy_ = std::make_unique<rt::HierarchicalAllocator>(rt::Span<rt::Span<uint8_t>>(planned_.data(), planned_.size()));
    manager_ = std::make_unique<rt::MemoryManager>(&structures_, hierarchy_.get(), &temporary_);
    if (std::strcmp(cache, "-") != 0) {
      (void)options_.set_option("weight_cache_enabled", true);
      (void)options_.set_option("packed_cache_path", cache);
      (void)given_.set_options("XnnpackBackend", options_.view());
    }
    auto loaded = program_.load_method("forward", manager_.get(), nullptr, nullptr, &given_);
    check(loaded.ok(), "the method cannot be loaded");
    method_ = std::make_unique<rt::Method>(std::move(loaded.get()));
    size_t at = 0;
    for (size_t i = 0; i < meta->num_inputs(); i++) {
      auto spec = meta->input_tensor_meta(i);
      sizes_.push_back(std::make_unique<std::vector<TensorImpl::SizesType>>(spec->sizes().begin(), spec->sizes().end()));
      orders_.push_back(std::make_unique<std::vector<uint8_t>>(spec->dim_order().begin(), spec->dim_order().end()));
      check(at + spec->nbytes() <= operands_.size, "the operands are too short");
      tensors_.push_back(std::make_unique<TensorImpl>(spec->scalar_type(), static_cast<ssize_t>(sizes_.back()->size()),
                                                      sizes_.back()->data(), operands_.data + at, orders_.back()->data()));
      check(method_->set_input(rt::EValue(Tensor(tensors_.back().get())), i) == rt::Error::Ok, "an operand is refused");
      at += in_pages(spec->nbytes());
    }
    static std::vector<uint8_t*> results;  // of all programs, as they would be in a step
    for (size_t i = 0; i < meta->num_outputs(); i++) {
      const size_t size = method_->get_output(i).toTensor().nbytes();
      if (results.size() <= i) results.push_back(memory(size));
      check(method_->set_output_data_ptr(results[i], size, i) == rt::Error::Ok, "the place of a result is refused");
    }
  }

  void run() { check(method_->execute() == rt::Error::Ok, "the method cannot be run"); }

 private:
  static rt::Program program_of(executorch::extension::BufferDataLoader* loader) {
    auto found = rt::Program::load(loader);
    check(found.ok(), "the program cannot be read");
    return std::move(found.get());
  }
  static uint8_t* workspace() {
    static uint8_t* one = memory(kWorkspace);
    return one;
  }

  Mapped file_, operands_;
  executorch::extension::BufferDataLoader loader_;
  rt::Program program_;
  executorch::extension::MallocMemoryAllocator structures_;
  rt::MemoryAllocator temporary_;
  std::vector<rt::Span<uint8_t>> planned_;
  std::unique_ptr<rt::HierarchicalAllocator> hierarchy_;
  std::unique_ptr<rt::MemoryManager> manager_;
  rt::BackendOptions<2> options_;
  rt::LoadBackendOptionsMap given_;
  std::unique_ptr<rt::Method> method_;
  std::vector<std::unique_ptr<std::vector<TensorImpl::SizesType>>> sizes_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> orders_;
  std::vector<std::unique_ptr<TensorImpl>> tensors_;
};

}  // namespace

int main(int argc, char** argv) {
  check(argc >= 7, "programs_lab LIBRARY THREADS ROUNDS {PROGRAM OPERANDS CACHE}...");
  check(dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) != nullptr, "the device core cannot be loaded");
  rt::runtime_init();
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(static_cast<uint32_t>(std::atoi(argv[2])));
  say_memory("idle");
  std::vector<std::unique_ptr<Loaded>> programs;
  for (int i = 4; i + 2 < argc; i += 3) programs.push_back(std::make_unique<Loaded>(argv[i], argv[i + 1], argv[i + 2]));
  say_memory("loaded");
  for (auto& program : programs) program->run();
  say_memory("run");
  for (int round = std::atoi(argv[3]); round > 0; round--) {
    std::printf("[");
    for (auto& program : programs) {
      const double wall = seconds(CLOCK_MONOTONIC), processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
      program->run();
      std::printf("%s[%.7f, %.7f]", &program == &programs.front() ? "" : ", ", seconds(CLOCK_MONOTONIC) - wall,
                  seconds(CLOCK_PROCESS_CPUTIME_ID) - processor);
    }
    std::printf("]\n");
  }
}
