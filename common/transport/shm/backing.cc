#include "common/transport/shm/backing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/memory_file.h"

namespace quarry::transport::shm {
namespace {

struct FileId {
  dev_t device = 0;
  uint64_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

struct MappedFile {
  FileId id;
  uint64_t file_offset = 0;
  std::string path;
};

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

// One line of /proc/self/maps.
struct Area {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool shared_writable = false;
  MappedFile file;
};

bool ParseArea(char* line, Area* area) {
  char flags[5] = {};
  uint64_t offset = 0;
  unsigned major = 0;
  unsigned minor = 0;
  uint64_t inode = 0;
  int path_at = 0;
  const int fields = std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &area->begin,
                                 &area->end, flags, &offset, &major, &minor, &inode, &path_at);
  if (fields < 7) return false;
  area->shared_writable = flags[0] == 'r' && flags[1] == 'w' && flags[3] == 's';
  area->file = {{makedev(major, minor), inode}, offset, line + path_at};
  if (absl::EndsWith(area->file.path, "\n")) area->file.path.pop_back();
  return true;
}

// The one file that is mapped, shared and in one piece, over the whole range.
bool FindMappedFile(const MemoryRange& range, MappedFile* found) {
  const std::unique_ptr<FILE, CloseFile> maps(std::fopen("/proc/self/maps", "re"));
  if (maps == nullptr) return false;
  uint64_t next = reinterpret_cast<uint64_t>(range.base);
  const uint64_t end = next + range.bytes;
  bool any = false;
  char* line = nullptr;
  size_t room = 0;
  while (next < end && getline(&line, &room, maps.get()) > 0) {
    Area area;
    if (!ParseArea(line, &area) || area.end <= next) continue;
    if (area.begin > next || !area.shared_writable || area.file.id.inode == 0) break;
    const uint64_t offset = area.file.file_offset + (next - area.begin);
    if (!any) {
      *found = area.file;
      found->file_offset = offset;
      any = true;
    } else if (!(area.file.id == found->id) ||
               offset - found->file_offset != next - reinterpret_cast<uint64_t>(range.base)) {
      break;
    }
    next = area.end;
  }
  std::free(line);
  return any && next >= end;
}

bool Is(int fd, const FileId& id) {
  struct stat info;
  return fstat(fd, &info) == 0 && FileId{info.st_dev, info.st_ino} == id;
}

UniqueFd OpenByPath(const MappedFile& file) {
  if (!absl::StartsWith(file.path, "/") || absl::EndsWith(file.path, " (deleted)")) return UniqueFd();
  UniqueFd fd(open(file.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  return fd && Is(fd.get(), file.id) ? std::move(fd) : UniqueFd();
}

UniqueFd OpenByDescriptor(const FileId& id) {
  const std::unique_ptr<DIR, CloseDir> dir(opendir("/proc/self/fd"));
  if (dir == nullptr) return UniqueFd();
  while (const dirent* entry = readdir(dir.get())) {
    // By path, because other threads may close what is listed here.
    const std::string path = absl::StrCat("/proc/self/fd/", entry->d_name);
    struct stat info;
    if (entry->d_name[0] == '.' || stat(path.c_str(), &info) != 0) continue;
    if (!(FileId{info.st_dev, info.st_ino} == id)) continue;
    // One's own open file: it stays valid when the engine closes its descriptor.
    UniqueFd own(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (own && Is(own.get(), id)) return own;
  }
  return UniqueFd();
}

}  // namespace

Backing FindBacking(const MemoryRange& range) {
  Backing backing;
  MappedFile file;
  if (!FindMappedFile(range, &file)) return backing;
  UniqueFd fd = OpenByPath(file);
  if (!fd) fd = OpenByDescriptor(file.id);
  struct stat info;
  if (!fd || !IsMemoryFile(fd.get(), &info)) return backing;
  backing.cannot_shrink = CannotShrink(fd.get());
  backing.file = std::move(fd);
  backing.file_offset = file.file_offset;
  return backing;
}

}  // namespace quarry::transport::shm
