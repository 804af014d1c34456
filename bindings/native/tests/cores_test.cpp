// SPDX-License-Identifier: Apache-2.0
// How many threads suit the cores of a device, read from folders that stand for /sys and /proc.
#ifdef __linux__
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "platform/cores.h"

using namespace bespoke;
namespace fs = std::filesystem;

namespace {

class Device {  // its files
 public:
  explicit Device(const std::vector<int>& speeds, const std::string& file = "cpu_capacity") {
    for (size_t core = 0; core < speeds.size(); core++)
      write("sys/devices/system/cpu/cpu" + std::to_string(core) + "/" + file, std::to_string(speeds[core]));
    allow("0-" + std::to_string(speeds.size() - 1));
  }
  ~Device() { fs::remove_all(root_); }
  Device(const Device&) = delete;

  void allow(const std::string& cores) { write("proc/thread-self/status", "Name:\tapp\nCpus_allowed_list:\t" + cores + "\n"); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  int threads() const { return threads_for(read_cores(root_)); }
  int usable() const { return usable_threads(read_cores(root_)); }

 private:
  fs::path root_ = fs::temp_directory_path() / ("bespoke_cores_" + std::to_string(getpid()));
};

}  // namespace

TEST_CASE("threads leave the lowest class of cores out, 2 to 4 of them, and take all where there is one class") {
  CHECK(Device({325, 325, 325, 325, 800, 800, 800, 1024}).threads() == 4);  // 1+3+4
  CHECK(Device({400, 400, 400, 400, 400, 400, 1024, 1024}).threads() == 2);
  CHECK(Device({400, 400, 400, 400, 400, 400, 400, 1024}).threads() == 2);
  CHECK(Device({300, 300, 300, 800, 800, 800, 800, 1024}).threads() == 4);
  CHECK(Device({1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}).threads() == 8);
  CHECK(Device({840, 840, 840, 840, 840, 840, 1024, 1024}).threads() == 8);  // near enough to be one class
  CHECK(Device({1800000, 1800000, 2500000, 2500000, 3000000}, "cpufreq/cpuinfo_max_freq").threads() == 3);
  CHECK(Device({1024, 1024, 1024}, "unknown").threads() == 3);
}

TEST_CASE("threads are no more than the cores that the process may use") {
  Device device({325, 325, 325, 325, 800, 800, 800, 1024});
  device.allow("0-3");  // an app in the background
  CHECK(device.threads() == 4);
  device.allow("3,6-7");
  CHECK(device.threads() == 2);
  CHECK(device.usable() == 3);
  device.allow("7");
  CHECK(device.threads() == 1);
}

TEST_CASE("threads are no more than the quota of the control groups allows, rounded up") {
  Device device({1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024});
  SUBCASE("version 2, the smallest of the groups on the way to the top") {
    device.write("proc/self/cgroup", "0::/a/b");
    device.write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
    CHECK(device.threads() == 8);
    device.write("sys/fs/cgroup/a/cpu.max", "250000 100000");
    CHECK(device.threads() == 3);
    device.write("sys/fs/cgroup/cpu.max", "50000 100000");
    CHECK(device.threads() == 1);
  }
  SUBCASE("version 1") {
    device.write("proc/self/cgroup", "2:cpu,cpuacct:/a\n1:memory:/");
    device.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1");
    device.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
    CHECK(device.threads() == 8);
    device.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000");
    CHECK(device.threads() == 2);
  }
}
#endif
