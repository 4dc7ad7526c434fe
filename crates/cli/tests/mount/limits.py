"""Changes of a user whose quotas are nearly used up, and their results. Runs as root in the root of a mounted volume.

limits.py set: sets the limits, which requires a mount by the kernel.
limits.py use: prints the result of each change.
limits.py values: the same for attributes whose values are in inodes.
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


def set_project(path, flags=0x200):
    file = os.open(path, os.O_RDONLY)
    fields = list(struct.unpack("=5I8x", fcntl.ioctl(file, FSGETXATTR, bytes(28))))
    fields[0], fields[3] = flags, PROJECT
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


def with_values():
    """Attributes whose values are in inodes: user 1001 may have 100 KiB and 6 inodes."""
    fill("v", 0, 0)
    large = lambda name, size, byte=b"x", path="v": os.setxattr(path, "user." + name, byte * size)
    blocks = lambda: os.stat("v").st_blocks
    report("first", lambda: [large("a", 5000), blocks()])
    report("too long", lambda: large("b", 60000 + 40000 // 2))
    report("second", lambda: [large("b", 50000), blocks()])
    report("no space", lambda: large("c", 45000))
    report("shared", lambda: [large("c", 5000), blocks()])
    report("inodes", lambda: [count(lambda n: large(f"d{n}", 4500, b"d")), blocks()])
    report("create", lambda: fill("w", 0, 0))
    report("replace", lambda: large("a", 5500))
    report("same", lambda: large("a", 5000))
    report("shorter", lambda: [large("a", 20), blocks()])
    report("create", lambda: fill("w", 0, 0))
    report("create", lambda: fill("w2", 0, 0))
    report("unlink", lambda: os.unlink("w"))
    report("longer", lambda: [large("a", 5500), blocks()])
    report("other file", lambda: large("a", 5500, b"x", "w2"))
    report("remove", lambda: [os.removexattr("v", "user.b"), blocks()])
    report("other file", lambda: large("a", 5500, b"x", "w2"))
    report("group", lambda: os.chown("v", -1, GROUP))


def values():
    os.chmod(".", 0o777)
    child(USER, [], with_values)
    report("group", lambda: os.chown("v", -1, GROUP))
    report("flag of directories", lambda: [fill("p", 0, 0), set_project("p")])
    report("project", lambda: set_project("v", 0))
    report("give away", lambda: os.chown("v", FULL, -1))
    report("unlink", lambda: os.unlink("w2"))
    report("values", lambda: [len(os.getxattr("v", name)) for name in sorted(os.listxattr("v"))])


if __name__ == "__main__":
    {"set": setup, "use": use, "values": values}[sys.argv[1]]()
