// Stands before the C library (LD_PRELOAD) and sees what a process does with the files below some directories, in native
// code too: refuses one of the calls, shortens reads, or writes every change down, in order.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PATH = 4096, ROOTS = 4 };

static char roots[ROOTS][PATH];
static int num_roots = 0;
static long refused_at = -1;  // number of the call that is refused
static int refused_with = 0;  // errno
static ssize_t longest = INT64_MAX;  // bytes that a read returns at most
static int log_fd = -1;
static int64_t* counts = NULL;  // calls so far; errno of the one that was refused
static char* refused_name = NULL;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Directories apart by ':'; `shared` has room for two numbers and a name.
void calls_arm(const char* folders, long at, int code, int log, void* shared) {
  num_roots = 0;
  for (const char* each = folders; *each && num_roots < ROOTS; ++num_roots) {
    size_t length = strcspn(each, ":");
    snprintf(roots[num_roots], PATH, "%.*s", (int)length, each);
    each += length + (each[length] == ':');
  }
  refused_at = at, refused_with = code, log_fd = log;
  counts = shared, refused_name = (char*)shared + 16;
}

void calls_shorten(ssize_t bytes) { longest = bytes; }

static int below(const char* path) {
  for (int k = 0; k < num_roots; ++k) {
    size_t length = strlen(roots[k]);
    if (strncmp(path, roots[k], length) == 0 && (path[length] == '/' || path[length] == 0)) return 1;
  }
  return 0;
}

static int place_of(int fd, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH - 1);
  path[length < 0 ? 0 : length] = 0;
  return below(path);
}

static int place_at(int folder, const char* name, char* path) {
  char around[PATH] = "";
  if (name[0] != '/') {
    if (folder == AT_FDCWD) {
      if (syscall(SYS_getcwd, around, PATH) < 0) return 0;
    } else {
      place_of(folder, around);
    }
    strncat(around, "/", PATH - strlen(around) - 1);
  }
  snprintf(path, PATH, "%s%s", around, name);
  return below(path);
}

static int takes_space(const char* name) {
  static const char* const names[] = {"write",     "pwrite",          "fsync",  "fdatasync",
                                      "fallocate", "posix_fallocate", "create", "rename",
                                      "link",      "mkdir",           NULL};
  for (int k = 0; names[k]; ++k)
    if (strcmp(name, names[k]) == 0) return 1;
  return 0;
}

// Whether this call, on a file below the directories, is the one to refuse. A full disk is none that takes no space.
static int refused(const char* name) {
  if (__atomic_fetch_add(&counts[0], 1, __ATOMIC_SEQ_CST) != refused_at) return 0;
  snprintf(refused_name, 32, "%s", name);
  errno = refused_with == ENOSPC && !takes_space(name) ? EIO : refused_with;
  counts[1] = errno;
  return 1;
}

static void put(const void* data, size_t bytes) {
  for (const char* at = data; bytes > 0;) {
    long done = syscall(SYS_write, log_fd, at, bytes);
    if (done <= 0) return;
    at += done, bytes -= (size_t)done;
  }
}

static void note(char kind, const char* path, const char* other, int64_t first, int64_t second,
                 const void* data, size_t bytes) {
  struct {
    int64_t kind, path, other, first, second, bytes;
  } head = {kind, (int64_t)strlen(path), other ? (int64_t)strlen(other) : 0, first, second, (int64_t)bytes};
  put(&head, sizeof head);
  put(path, strlen(path));
  if (other) put(other, strlen(other));
  put(data, bytes);
}

#define NEXT(name)                      \
  static __typeof__(name)* next = NULL; \
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, #name)
#define ALSO(name, other) __typeof__(name) other __attribute__((alias(#name)))
// One change at a time, so that the log has their order.
#define CHANGE(call, done, ...)     \
  do {                              \
    if (log_fd < 0) return call;    \
    pthread_mutex_lock(&lock);      \
    __typeof__(call) result = call; \
    int code = errno;               \
    if (done) note(__VA_ARGS__);    \
    pthread_mutex_unlock(&lock);    \
    errno = code;                   \
    return result;                  \
  } while (0)

ssize_t read(int fd, void* to, size_t bytes) {
  char path[PATH];
  NEXT(read);
  if (num_roots && place_of(fd, path) && refused("read")) return -1;
  return next(fd, to, bytes);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  char path[PATH];
  NEXT(pread);
  if (!num_roots || !place_of(fd, path)) return next(fd, to, bytes, offset);
  if (refused("pread")) return -1;
  ssize_t arrived = next(fd, to, bytes, offset);
  return arrived < longest ? arrived : longest;
}
ALSO(pread, pread64);

ssize_t preadv2(int fd, const struct iovec* to, int count, off_t offset, int flags) {
  char path[PATH];
  NEXT(preadv2);
  if (num_roots && place_of(fd, path) && refused("preadv")) return -1;
  return next(fd, to, count, offset, flags);
}
ALSO(preadv2, preadv64v2);

ssize_t preadv(int fd, const struct iovec* to, int count, off_t offset) {
  return preadv2(fd, to, count, offset, 0);
}
ALSO(preadv, preadv64);

ssize_t write(int fd, const void* from, size_t bytes) {
  char path[PATH];
  NEXT(write);
  if (!num_roots || !place_of(fd, path)) return next(fd, from, bytes);
  if (refused("write")) return -1;
  struct stat state;
  int appends = fcntl(fd, F_GETFL) & O_APPEND;
  off_t offset = appends && fstat(fd, &state) == 0 ? state.st_size : lseek(fd, 0, SEEK_CUR);
  CHANGE(next(fd, from, bytes), result > 0, 'W', path, NULL, offset, 0, from, (size_t)result);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  char path[PATH];
  NEXT(pwrite);
  if (!num_roots || !place_of(fd, path)) return next(fd, from, bytes, offset);
  if (refused("pwrite")) return -1;
  CHANGE(next(fd, from, bytes, offset), result > 0, 'W', path, NULL, offset, 0, from, (size_t)result);
}
ALSO(pwrite, pwrite64);

// Whoever copies this way goes on by reading and writing.
ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) {
  char path[PATH];
  NEXT(sendfile);
  if (!num_roots || !place_of(to, path)) return next(to, from, offset, bytes);
  errno = ENOTSOCK;
  return -1;
}
ALSO(sendfile, sendfile64);

#define SYNC(name)                                                  \
  int name(int fd) {                                                \
    char path[PATH];                                                \
    NEXT(name);                                                     \
    if (!num_roots || !place_of(fd, path)) return next(fd);         \
    if (refused(#name)) return -1;                                  \
    CHANGE(next(fd), result == 0, 'S', path, NULL, 0, 0, NULL, 0);  \
  }
SYNC(fsync)
SYNC(fdatasync)

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  char path[PATH];
  NEXT(fallocate);
  if (!num_roots || !place_of(fd, path)) return next(fd, mode, offset, bytes);
  if (refused("fallocate")) return -1;
  CHANGE(next(fd, mode, offset, bytes), result == 0, 'F', path, NULL, offset, bytes, NULL, 0);
}
ALSO(fallocate, fallocate64);

int posix_fallocate(int fd, off_t offset, off_t bytes) {
  char path[PATH];
  NEXT(posix_fallocate);
  if (!num_roots || !place_of(fd, path)) return next(fd, offset, bytes);
  if (refused("posix_fallocate")) return errno;
  CHANGE(next(fd, offset, bytes), result == 0, 'F', path, NULL, offset, bytes, NULL, 0);
}
ALSO(posix_fallocate, posix_fallocate64);

int ftruncate(int fd, off_t bytes) {
  char path[PATH];
  NEXT(ftruncate);
  if (!num_roots || !place_of(fd, path)) return next(fd, bytes);
  if (refused("ftruncate")) return -1;
  CHANGE(next(fd, bytes), result == 0, 'T', path, NULL, bytes, 0, NULL, 0);
}
ALSO(ftruncate, ftruncate64);

int truncate(const char* name, off_t bytes) {
  char path[PATH];
  NEXT(truncate);
  if (!num_roots || !place_at(AT_FDCWD, name, path)) return next(name, bytes);
  if (refused("truncate")) return -1;
  CHANGE(next(name, bytes), result == 0, 'T', path, NULL, bytes, 0, NULL, 0);
}
ALSO(truncate, truncate64);

int openat(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  char path[PATH];
  NEXT(openat);
  if (!num_roots || !place_at(folder, name, path)) return next(folder, name, flags, mode);
  int there = faccessat(folder, name, F_OK, 0) == 0;
  if (refused(there || !(flags & O_CREAT) ? "open" : "create")) return -1;
  int changes = there ? flags & O_TRUNC : flags & O_CREAT;
  CHANGE(next(folder, name, flags, mode), result >= 0 && changes, there ? 'T' : 'C', path, NULL, 0, 0, NULL,
         0);
}
ALSO(openat, openat64);

int open(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, name, flags, mode);
}
ALSO(open, open64);

int renameat2(int folder, const char* name, int to_folder, const char* to_name, unsigned flags) {
  char path[PATH], other[PATH];
  NEXT(renameat2);
  if (!num_roots || !place_at(folder, name, path)) return next(folder, name, to_folder, to_name, flags);
  if (refused("rename")) return -1;
  place_at(to_folder, to_name, other);
  CHANGE(next(folder, name, to_folder, to_name, flags), result == 0, flags ? 'X' : 'R', path, other, 0, 0,
         NULL, 0);
}

int renameat(int folder, const char* name, int to_folder, const char* to_name) {
  return renameat2(folder, name, to_folder, to_name, 0);
}

int rename(const char* name, const char* to_name) { return renameat2(AT_FDCWD, name, AT_FDCWD, to_name, 0); }

int linkat(int folder, const char* name, int to_folder, const char* to_name, int flags) {
  char path[PATH], other[PATH];
  NEXT(linkat);
  if (!num_roots || !place_at(to_folder, to_name, other))
    return next(folder, name, to_folder, to_name, flags);
  if (refused("link")) return -1;
  place_at(folder, name, path);
  CHANGE(next(folder, name, to_folder, to_name, flags), result == 0, 'L', path, other, 0, 0, NULL, 0);
}

int link(const char* name, const char* to_name) { return linkat(AT_FDCWD, name, AT_FDCWD, to_name, 0); }

int mkdirat(int folder, const char* name, mode_t mode) {
  char path[PATH];
  NEXT(mkdirat);
  if (!num_roots || !place_at(folder, name, path)) return next(folder, name, mode);
  if (refused("mkdir")) return -1;
  CHANGE(next(folder, name, mode), result == 0, 'M', path, NULL, 0, 0, NULL, 0);
}

int mkdir(const char* name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int folder, const char* name, int flags) {
  char path[PATH];
  NEXT(unlinkat);
  if (!num_roots || !place_at(folder, name, path)) return next(folder, name, flags);
  if (refused("unlink")) return -1;
  CHANGE(next(folder, name, flags), result == 0, flags & AT_REMOVEDIR ? 'D' : 'U', path, NULL, 0, 0, NULL, 0);
}

int unlink(const char* name) { return unlinkat(AT_FDCWD, name, 0); }

int rmdir(const char* name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
