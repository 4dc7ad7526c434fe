"""Changes of a user whose quotas are nearly used up, and their results. Runs as root in the root of a mounted volume.

limits.py set: sets the limits, which requires a mount by the kernel.
limits.py use: prints the result of each change.
"""

import ctypes
import errno
import fcntl
import os
import struct
import sys

USER, GROUP, PROJECT = 1001, 1002, 1003
FULL, SOFT, PLAIN = 1004, 1005, 1006
KIB = 1024
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820


def set_limits(kind, ident, hard=0, soft=0, inodes=0):
    """quotactl(2), Q_SETQUOTA with QIF_LIMITS: struct if_dqblk."""
    block = struct.pack("=8QI4x", hard, soft, 0, inodes, 0, 0, 0, 0, 5)
    command = ctypes.c_int(0x800008 << 8 | kind)
    libc = ctypes.CDLL(None, use_errno=True)
    device = next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == os.getcwd())
    if libc.quotactl(command, device.encode(), ident, block):
        raise OSError(ctypes.get_errno(), "quotactl")


def setup():
    set_limits(0, USER, hard=100, inodes=6)
    set_limits(1, GROUP, hard=60)
    set_limits(2, PROJECT, hard=200, inodes=5)
    set_limits(0, FULL, hard=8)
    set_limits(0, SOFT, hard=100, soft=20)


def report(name, act):
    try:
        print(name, act(), flush=True)
    except OSError as error:
        print(name, errno.errorcode[error.errno], flush=True)


def child(user, groups, act):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            act()
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def fill(path, step, most=1 << 20, flags=os.O_CREAT | os.O_WRONLY):
    """Writes until an error. Returns the number of bytes, the error, and whether the bytes are in the file."""
    file, done, failed = os.open(path, flags, 0o644), 0, None
    try:
        while done < most:
            done += os.write(file, b"d" * min(step, most - done))
    except OSError as error:
        failed = errno.errorcode[error.errno]
    os.fsync(file)
    os.close(file)
    with open(path, "rb") as found:
        kept = found.read().count(b"d")
    return done, failed, kept == done


def one_call(path, size):
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        return os.write(file, b"d" * size)
    finally:
        os.close(file)


def as_user():
    report("pieces", lambda: fill("f", 4096))
    report("overwrite", lambda: fill("f", 4096, 50 * KIB))
    report("create", lambda: fill("g", 0, 0))
    report("shell", lambda: os.system("echo line >> g 2> /dev/null; test -s g && echo kept"))
    report("mkdir", lambda: os.mkdir("d"))
    report("symlink", lambda: os.symlink("x" * 100, "l"))
    report("attribute", lambda: os.setxattr("f", "user.x", b"x" * 3000))
    report("unlink", lambda: os.unlink("f"))
    report("one call", lambda: one_call("h", 1 << 19))
    report("unlink", lambda: os.unlink("h"))
    report("small", lambda: fill("f", 100))
    report("unlink", lambda: os.unlink("f"))
    handle = os.open("f", os.O_CREAT | os.O_RDWR)
    report("allocate", lambda: os.posix_fallocate(handle, 0, 48 * KIB))
    report("allocate more", lambda: os.posix_fallocate(handle, 0, 200 * KIB))
    report("truncate", lambda: os.ftruncate(handle, 0))
    os.close(handle)
    report("inodes", lambda: [count(lambda n: fill(f"i{n}", 0, 0))])
    report("mkdir", lambda: os.mkdir("d"))
    report("mknod", lambda: os.mkfifo("p"))
    report("tmpfile", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
    report("link", lambda: os.link("g", "g2"))
    report("rename", lambda: os.rename("g", "g3"))
    report("group", lambda: os.chown("g2", -1, GROUP))


def count(act):
    """Returns the number of successes before the first failure, and its error."""
    for number in range(50):
        try:
            act(number)
        except OSError as error:
            return number, errno.errorcode[error.errno]
    return 50, None


def as_member():
    report("group pieces", lambda: fill("shared/f", 4096))
    report("group create", lambda: fill("shared/g", 0, 0))
    report("own file", lambda: fill("own", 4096, 40 * KIB))
    report("to the group", lambda: os.chown("own", -1, GROUP))
    report("shrink", lambda: os.truncate("shared/f", 4096))
    report("to the group", lambda: os.chown("own", -1, GROUP))


def set_project(path):
    file = os.open(path, os.O_RDONLY)
    fields = list(struct.unpack("=5I8x", fcntl.ioctl(file, FSGETXATTR, bytes(28))))
    fields[0], fields[3] = 0x200, PROJECT
    fcntl.ioctl(file, FSSETXATTR, struct.pack("=5I8x", *fields))
    os.close(file)


def space(path):
    found = os.statvfs(path)
    return found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree


def as_project():
    report("project pieces", lambda: fill("project/f", 4096))
    report("project inodes", lambda: count(lambda n: fill(f"project/i{n}", 0, 0)))
    report("outside", lambda: fill("outside", 4096, 40 * KIB))
    report("link into", lambda: os.link("outside", "project/link"))
    report("move out", lambda: os.rename("project/i0", "moved"))
    report("project again", lambda: fill("project/j", 0, 0))


def use():
    os.chmod(".", 0o777)
    child(USER, [], as_user)
    report("as root", lambda: fill("f", 4096, 120 * KIB))
    report("give away", lambda: os.chown("f", FULL, -1))
    report("create as root", lambda: [fill("r", 0, 0), os.chown("r", USER, -1)])
    child(FULL, [], lambda: report("above the limit", lambda: fill("full", 4096)))
    os.mkdir("shared")
    os.chown("shared", -1, GROUP)
    os.chmod("shared", 0o2777)
    child(PLAIN, [GROUP], as_member)
    os.mkdir("project")
    os.chmod("project", 0o777)
    report("project", lambda: set_project("project"))
    report("project space", lambda: space("project"))
    child(PLAIN, [], as_project)
    report("project space", lambda: space("project"))
    child(SOFT, [], lambda: report("soft", lambda: fill("soft", 4096, 40 * KIB)))


if __name__ == "__main__":
    setup() if sys.argv[1] == "set" else use()
