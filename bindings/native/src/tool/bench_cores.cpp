// SPDX-License-Identifier: Apache-2.0
#include "tool/bench_cores.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#if defined(__linux__)
#include <sched.h>
#include <sys/sysinfo.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__ANDROID__)
#include <sys/system_properties.h>
#endif

#include "platform/cores.h"

namespace bespoke {

namespace {

using Fields = std::map<std::string, std::string>;

// Paragraphs of /proc/cpuinfo by the number of their processor. Those of the whole chip are in the last, as on Arm.
std::map<int, Fields> processor_fields() {
  std::map<int, Fields> all;
  std::ifstream file("/proc/cpuinfo");
  int processor = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, line.find_last_not_of("\t ", colon - 1) + 1);
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    const std::string value = begin == std::string::npos ? "" : line.substr(begin);
    if (name == "processor" && !value.empty() && value.find_first_not_of("0123456789") == std::string::npos) processor = std::stoi(value);
    all[processor][name] = value;
  }
  return all;
}

std::string part_of(Fields fields) {
  const auto digits = [&](const char* name) {
    const std::string& value = fields[name];
    return value.compare(0, 2, "0x") == 0 ? value.substr(2) : value;
  };
  const std::string implementer = digits("CPU implementer"), part = digits("CPU part");
  return implementer.empty() || part.empty() ? "" : implementer + ':' + part;
}

std::string list_of(const std::vector<int>& processors) {
  std::string list;
  for (size_t i = 0; i < processors.size();) {
    size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) last++;
    list += (list.empty() ? "" : ",") + std::to_string(processors[i]);
    if (last > i) list += '-' + std::to_string(processors[last]);
    i = last + 1;
  }
  return list;
}

// The kernel gives cores of one class the same capacity. Highest frequencies differ a little among cores that are alike.
bool is_alike(const CoreClass& one, const CoreClass& other) {
  if (one.capacity != other.capacity || one.part != other.part) return false;
  return one.capacity > 0 || other.max_khz * 10 >= one.max_khz * 9;
}

}  // namespace

std::vector<CoreClass> core_classes() {
  std::vector<CoreClass> cores;
  const std::map<int, Fields> fields = processor_fields();
  for (const Core& one : read_cores().all) {
    CoreClass core;
    core.count = 1, core.capacity = one.capacity, core.max_khz = one.max_khz;
    if (one.number >= 0) core.processors = {one.number};
    const auto found = fields.find(one.number);
    if (found != fields.end()) core.part = part_of(found->second);
    cores.push_back(core);
  }
  std::stable_sort(cores.begin(), cores.end(), [](const CoreClass& a, const CoreClass& b) {
    return a.capacity != b.capacity ? a.capacity > b.capacity : a.max_khz > b.max_khz;
  });
  std::vector<CoreClass> classes;
  for (const CoreClass& core : cores) {
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const CoreClass& one) { return is_alike(one, core); });
    if (same == classes.end()) {
      classes.push_back(core);
      continue;
    }
    same->count++;
    same->processors.insert(same->processors.end(), core.processors.begin(), core.processors.end());
  }
  for (CoreClass& one : classes) {
    std::sort(one.processors.begin(), one.processors.end());
    one.name = list_of(one.processors);
  }
  return classes;
}

#if defined(__linux__)

void run_on(const std::vector<int>& processors) {
  if (processors.empty()) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int processor : processors) CPU_SET(processor, &wanted);
  sched_setaffinity(0, sizeof wanted, &wanted);  // refused: the thread stays where it may be, and the figure is that of those cores
}

std::string processor_name() {
#if defined(__ANDROID__)
  std::string chip;
  for (const char* property : {"ro.soc.manufacturer", "ro.soc.model"}) {
    char value[PROP_VALUE_MAX] = "";
    if (__system_property_get(property, value) > 0) chip += (chip.empty() ? "" : " ") + std::string(value);
  }
  if (!chip.empty()) return chip;
#endif
  for (const char* name : {"model name", "Hardware", "Model"})
    for (const auto& [processor, fields] : processor_fields())
      if (const auto found = fields.find(name); found != fields.end()) return found->second;
  return "";
}

int64_t largest_cache_bytes() {
  int64_t largest = 0;
  for (const Core& core : read_cores().all)
    for (int index = 0; index < 8; index++) {
      std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(core.number) + "/cache/index" + std::to_string(index) + "/size");
      int64_t kilobytes = 0;  // written as 2048K
      if (file >> kilobytes) largest = std::max(largest, kilobytes);
    }
  return largest * 1024;
}

double load_average() {  // not from /proc/loadavg, which Android hides
  struct sysinfo info{};
  return sysinfo(&info) == 0 ? static_cast<double>(info.loads[0]) / (1 << SI_LOAD_SHIFT) : -1;
}

#else

void run_on(const std::vector<int>&) {}

std::string processor_name() {
#if defined(__APPLE__)
  char name[128] = "";
  size_t size = sizeof name;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
  return "";
}

int64_t largest_cache_bytes() { return 0; }

double load_average() { return -1; }

#endif

SystemName system_name() {
  utsname names{};
  uname(&names);
#if defined(__ANDROID__)
  char release[PROP_VALUE_MAX] = "";
  __system_property_get("ro.build.version.release", release);
  return {"Android", release, names.machine};
#else
  const std::string release = names.release;  // without what whoever built the kernel has added
  return {names.sysname, release.substr(0, release.find_first_not_of("0123456789.")), names.machine};
#endif
}

}  // namespace bespoke
