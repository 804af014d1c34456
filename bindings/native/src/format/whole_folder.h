// SPDX-License-Identifier: Apache-2.0
// A folder that appears under its name whole or not at all: it is written next to that name, and renamed when it is complete
// (sdk/bespoke/format/whole_folder.py: the same names, locks and refusals, so that writers in both languages know each other).
//
// A writer holds an exclusive lock on the folder that it writes, a reader a shared one. The system releases both when the process
// ends, however it ends. So a partial or old folder without a lock was left by a dead writer or has no readers, and the next writer
// removes it. The new folder is exchanged with the old one in one step where the file system can do that. Where it cannot, and the
// process dies between the two renames, the next writer puts the old folder back.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bytes.h"
#include "error.h"
#include "platform/descriptor.h"

namespace bespoke {

class WholeFolder {
 public:
  using Check = std::function<void(const std::string& folder)>;  // throws about an existing folder that must not be replaced

  // What was learned from a person's words is for that person alone: folder 0700 and files 0600, whatever the umask. A bundle is for
  // everyone whom the umask lets in.
  enum class Readers { owner, everyone };

  // Throws Error(kind, ...) where the place cannot be written or is not to be replaced, before anything is written.
  WholeFolder(const std::string& target, Kind kind, Readers readers, Check replaceable);
  ~WholeFolder();  // what was not finished is removed
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  class File {  // a new one of the folder
   public:
    void write(Bytes bytes);
    void finish();  // on the medium when this returns

   private:
    friend class WholeFolder;
    File(const WholeFolder& folder, Descriptor descriptor) : folder_(folder), descriptor_(std::move(descriptor)) {}
    const WholeFolder& folder_;
    Descriptor descriptor_;
  };
  File create(const std::string& name);  // with the folders that its name has

  // A hard link to a file, which has to be there and complete; false where the file system makes none.
  bool link(const std::string& path, const std::string& name);

  // Moves the folder to its place, on the medium, and removes the one that was there. If a reader holds a shared lock on that one, it
  // stays under another name until a later writer removes it.
  void finish();

  const std::string& target() const { return target_; }  // absolute
  const std::string& work() const { return work_; }      // where it is written

 private:
  void check_existing() const;
  void remove_leftovers() const;
  void make_above(const std::string& name) const;
  [[noreturn]] void fail(int number) const;

  const Kind kind_;
  const Readers readers_;
  const Check replaceable_;
  std::string target_, above_, name_, work_;
  Descriptor lock_;
};

}  // namespace bespoke
