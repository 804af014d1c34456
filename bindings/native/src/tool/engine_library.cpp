// SPDX-License-Identifier: Apache-2.0
#include "tool/engine_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "engines/module.h"

namespace bespoke {
namespace {

const std::string kBefore = BESPOKE_ENGINE_LIBRARY "_", kAfter = BESPOKE_ENGINE_LIBRARY_SUFFIX;  // found by this program's run path

bool is_name(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

std::optional<nlohmann::json> open_engine(const std::string& name, bespoke_engine& engine) {
  const auto refused = [&](const std::string& got) {
    return nlohmann::json{
        {"event", "error"},
        {"kind", "MissingDependency"},
        {"subject", "engine '" + name + "'"},
        {"got", got},
        {"expected", "its library beside the core's, and what that needs"},
        {"next_step", "pip install 'bespoke-sdk[" + name + "]', then install bespoke-sdk again: the core is built with what is there"}};
  };
  if (!is_name(name)) return refused("a name that no library has");
  void* library = dlopen((kBefore + name + kAfter).c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process: it may have threads
  if (!library) return refused(dlerror());
  const auto module = reinterpret_cast<bespoke_engine_module_function>(dlsym(library, BESPOKE_ENGINE_MODULE_FUNCTION));
  if (!module) return refused("a library without " BESPOKE_ENGINE_MODULE_FUNCTION);
  char message[256] = "";
  if (module(&engine, message, sizeof message)) return refused(message);
  return std::nullopt;
}

}  // namespace bespoke
