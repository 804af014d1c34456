// SPDX-License-Identifier: Apache-2.0
// Also of Android, where a file that an app may not read is as good as one that is not there.
#include "platform/cores.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace bespoke {
namespace {

constexpr int kMostCores = 1 << 16;

int64_t number_in(const std::string& path) {  // 0 where there is none
  int64_t number = 0;
  std::ifstream file(path);
  return file >> number ? std::max<int64_t>(0, number) : 0;
}

// The affinity mask of this thread, which threads that it starts inherit. An app in the background has often none but small cores in it.
std::vector<int> allowed_cores(const std::string& root) {
  const std::string label = "Cpus_allowed_list:";
  std::vector<int> cores;
  std::ifstream status(root + "/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, label.size(), label) != 0) continue;
    std::istringstream list(line.substr(label.size()));  // as 0-3,6
    for (int first = 0; list >> first; list.ignore()) {
      int last = first;
      if (list.peek() == '-') list.ignore() >> last;
      for (int core = first; core <= std::min(last, kMostCores); core++) cores.push_back(core);
    }
  }
  return cores;
}

Core core_of(int number, const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(number);
  return {number, number_in(folder + "/cpu_capacity"), number_in(folder + "/cpufreq/cpuinfo_max_freq")};
}

double smaller_quota(double known, double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return known;
  return known > 0 ? std::min(known, quota / period) : quota / period;
}

// Of the group and of those around it. In a container the group's own path is often not there, and its limit stands at the top.
double quota_of_groups(const std::string& mount, std::string group, bool second_version) {
  double known = 0;
  for (;; group.erase(group.rfind('/'))) {
    const std::string folder = mount + group;
    if (second_version) {
      double quota = 0, period = 0;
      std::ifstream file(folder + "/cpu.max");
      if (file >> quota >> period) known = smaller_quota(known, quota, period);  // "max" is no number: no limit
    } else {
      known = smaller_quota(known, static_cast<double>(number_in(folder + "/cpu.cfs_quota_us")),
                            static_cast<double>(number_in(folder + "/cpu.cfs_period_us")));
    }
    if (group.rfind('/') == std::string::npos) return known;
  }
}

double read_quota(const std::string& root) {
  double known = 0;
  std::ifstream groups(root + "/proc/self/cgroup");  // lines of hierarchy:controllers:/group
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    double quota = 0;
    if (controllers.empty())
      quota = quota_of_groups(root + "/sys/fs/cgroup", group, true);
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      quota = quota_of_groups(root + "/sys/fs/cgroup/" + controllers, group, false);
    known = smaller_quota(known, quota, 1);
  }
  return known;
}

}  // namespace

Cores read_cores(const std::string& root) {
  Cores cores;
  for (const int number : allowed_cores(root)) cores.all.push_back(core_of(number, root));
  if (cores.all.empty()) cores.all.resize(static_cast<size_t>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN))));
  cores.quota = read_quota(root);
  return cores;
}

}  // namespace bespoke
