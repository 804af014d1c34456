// SPDX-License-Identifier: Apache-2.0
#include "state/errors.h"

#include <sqlite3.h>

#include <cerrno>
#include <string_view>
#include <system_error>

namespace bespoke {

namespace {

struct Named {
  int code;
  std::string_view name;
};
#define NAMED(code) {code, #code}
constexpr Named kNames[] = {NAMED(SQLITE_ERROR),
                            NAMED(SQLITE_INTERNAL),
                            NAMED(SQLITE_PERM),
                            NAMED(SQLITE_ABORT),
                            NAMED(SQLITE_BUSY),
                            NAMED(SQLITE_LOCKED),
                            NAMED(SQLITE_NOMEM),
                            NAMED(SQLITE_READONLY),
                            NAMED(SQLITE_INTERRUPT),
                            NAMED(SQLITE_IOERR),
                            NAMED(SQLITE_CORRUPT),
                            NAMED(SQLITE_NOTFOUND),
                            NAMED(SQLITE_FULL),
                            NAMED(SQLITE_CANTOPEN),
                            NAMED(SQLITE_PROTOCOL),
                            NAMED(SQLITE_SCHEMA),
                            NAMED(SQLITE_TOOBIG),
                            NAMED(SQLITE_CONSTRAINT),
                            NAMED(SQLITE_MISMATCH),
                            NAMED(SQLITE_MISUSE),
                            NAMED(SQLITE_NOLFS),
                            NAMED(SQLITE_AUTH),
                            NAMED(SQLITE_RANGE),
                            NAMED(SQLITE_NOTADB),
                            NAMED(SQLITE_BUSY_RECOVERY),
                            NAMED(SQLITE_BUSY_SNAPSHOT),
                            NAMED(SQLITE_BUSY_TIMEOUT),
                            NAMED(SQLITE_LOCKED_SHAREDCACHE),
                            NAMED(SQLITE_READONLY_RECOVERY),
                            NAMED(SQLITE_READONLY_CANTLOCK),
                            NAMED(SQLITE_READONLY_ROLLBACK),
                            NAMED(SQLITE_READONLY_DBMOVED),
                            NAMED(SQLITE_READONLY_CANTINIT),
                            NAMED(SQLITE_READONLY_DIRECTORY),
                            NAMED(SQLITE_IOERR_READ),
                            NAMED(SQLITE_IOERR_SHORT_READ),
                            NAMED(SQLITE_IOERR_WRITE),
                            NAMED(SQLITE_IOERR_FSYNC),
                            NAMED(SQLITE_IOERR_DIR_FSYNC),
                            NAMED(SQLITE_IOERR_TRUNCATE),
                            NAMED(SQLITE_IOERR_FSTAT),
                            NAMED(SQLITE_IOERR_UNLOCK),
                            NAMED(SQLITE_IOERR_RDLOCK),
                            NAMED(SQLITE_IOERR_DELETE),
                            NAMED(SQLITE_IOERR_NOMEM),
                            NAMED(SQLITE_IOERR_ACCESS),
                            NAMED(SQLITE_IOERR_CHECKRESERVEDLOCK),
                            NAMED(SQLITE_IOERR_LOCK),
                            NAMED(SQLITE_IOERR_CLOSE),
                            NAMED(SQLITE_IOERR_SHMOPEN),
                            NAMED(SQLITE_IOERR_SHMSIZE),
                            NAMED(SQLITE_IOERR_SHMLOCK),
                            NAMED(SQLITE_IOERR_SHMMAP),
                            NAMED(SQLITE_IOERR_SEEK),
                            NAMED(SQLITE_IOERR_DELETE_NOENT),
                            NAMED(SQLITE_IOERR_MMAP),
                            NAMED(SQLITE_IOERR_DATA),
                            NAMED(SQLITE_IOERR_CORRUPTFS),
                            NAMED(SQLITE_CANTOPEN_NOTEMPDIR),
                            NAMED(SQLITE_CANTOPEN_ISDIR),
                            NAMED(SQLITE_CANTOPEN_FULLPATH),
                            NAMED(SQLITE_CANTOPEN_SYMLINK),
                            NAMED(SQLITE_CORRUPT_VTAB),
                            NAMED(SQLITE_CORRUPT_SEQUENCE),
                            NAMED(SQLITE_CORRUPT_INDEX),
                            NAMED(SQLITE_CONSTRAINT_CHECK),
                            NAMED(SQLITE_CONSTRAINT_FOREIGNKEY),
                            NAMED(SQLITE_CONSTRAINT_NOTNULL),
                            NAMED(SQLITE_CONSTRAINT_PRIMARYKEY),
                            NAMED(SQLITE_CONSTRAINT_UNIQUE),
                            NAMED(SQLITE_CONSTRAINT_DATATYPE)};
#undef NAMED

std::string name_of_code(int code) {
  for (const Named& named : kNames)
    if (named.code == code) return std::string(named.name);
  for (const Named& named : kNames)
    if (named.code == (code & 0xff)) return std::string(named.name);
  return "SQLITE_" + std::to_string(code);
}

}  // namespace

Error disk_full(const std::string& subject, const std::string& got) {
  return Error(Kind::DiskFull, subject, got, "room on the disk for the commit",
               "Free some space and call again: what was committed before is intact");
}

Error damaged(const std::string& subject, const std::string& got, const std::string& expected) {
  return Error(Kind::State, subject, got, expected, "Restore the folder from a copy, or delete it and add the examples again");
}

Error no_memory(const std::string& subject) {
  return Error(Kind::Budget, subject, "no room for an allocation", "room within the limit that the system sets",
               "Free some memory and call again: what was committed before is intact");
}

Error passing(const std::string& subject, const std::string& got) {
  return Error(Kind::State, subject, got, "a disk that can be read and written",
               "Call again: what was committed before is intact. If it stays, look at the disk and the system's log");
}

Error from_read_errno(int number, const std::string& subject) {
  if (number == ENOENT || number == ENOTDIR || number == ELOOP || number == ENXIO || number == EISDIR)
    return damaged(subject, system_text(number), "the file that the database names");
  return from_errno(number, subject);
}

std::string system_text(int number) { return std::generic_category().message(number); }

Error from_errno(int number, const std::string& subject) {
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) return disk_full(subject, system_text(number));
  if (number == ENOMEM) return no_memory(subject);
  if (is_withheld(number)) return withheld(number, subject);
  if (number == EIO || number == EMFILE || number == ENFILE || number == ENOLCK || number == EAGAIN)
    return passing(subject, system_text(number));
  return not_a_place(number, subject);
}

Error not_a_place(int number, const std::string& subject) {
  return Error(Kind::State, subject, system_text(number), "a folder of its own that this process may read and write",
               "Check that the path is a writable folder on a local disk");
}

Error from_sqlite(int code, const std::string& message, const std::string& subject, int system_number) {
  std::string got = name_of_code(code) + ": " + message;
  int primary = code & 0xff;
  // SQLite says FULL only for ENOSPC on its main write path; a quota and the shared-memory file come as these.
  if (code == SQLITE_FULL || code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_SHMSIZE) return disk_full(subject, got);
  if (primary == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM) return no_memory(subject);
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED || primary == SQLITE_PROTOCOL)
    return Error(Kind::Unavailable, subject, got, "other processes to hold the database for moments only",
                 "End the process that keeps it open in a transaction, then try again");
  if ((primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR) && is_withheld(system_number)) return withheld(system_number, subject);
  // Without an authorizer, as here, only Apple's SQLite says AUTH: of a file that the system keeps closed.
  if (primary == SQLITE_PERM || primary == SQLITE_AUTH) return withheld(EACCES, subject);
  if (primary == SQLITE_READONLY || primary == SQLITE_CANTOPEN)
    return Error(Kind::State, subject, got, "a database that this process may open and write",
                 "Check the permissions of the state folder, that it was not moved, and how many files are open");
  // A call of the system that failed, or one that was broken off, may succeed the next time. What was read and is not what was
  // written may not: for EIO, SQLite says CORRUPTFS.
  bool lasting = code == SQLITE_IOERR_SHORT_READ || code == SQLITE_IOERR_DATA || code == SQLITE_IOERR_CORRUPTFS;
  if (!lasting && (primary == SQLITE_IOERR || primary == SQLITE_INTERRUPT || primary == SQLITE_ABORT || primary == SQLITE_SCHEMA ||
                   primary == SQLITE_NOLFS))
    return passing(subject, got);
  // A disk that fails may look like this to SQLite too.
  return Error(Kind::State, subject, got, "what this version of bespoke writes",
               "Call again; if it stays, restore the folder from a copy, or delete it and add the examples again");
}

}  // namespace bespoke
