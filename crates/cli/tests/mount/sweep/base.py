"""What the sections of the sweep have in common: system calls, files, and the output."""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
OWNER, MEMBER, OTHER, GROUP = 1000, 1001, 1002, 55
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
GETFLAGS, SETFLAGS, FSGETXATTR, FSSETXATTR = 0x80086601, 0x40086602, 0x801C581F, 0x401C5820
KINDS = ["file", "dir", "link", "fifo", "device", "socket"]
UNDEFINED = 0xFFFFFFFF
section = ""


def show(label, call, *arguments):
    """Prints the result of a call, or its error."""
    try:
        result = repr(call(*arguments))
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(f"{section}: {label} = {result}", flush=True)


def as_user(uid, call, groups=()):
    """Makes a call as a user with the group of the same number, in another process."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            call()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(process, 0)


def user_case(uid, label, call, *arguments, groups=()):
    as_user(uid, lambda: show(f"{label}, user {uid} {list(groups)}", call, *arguments), groups)


def syscall(number, *arguments):
    def converted(value):
        value = value.encode() if isinstance(value, str) else value
        return (
            ctypes.c_char_p(value)
            if isinstance(value, bytes)
            else ctypes.c_long(value)
            if isinstance(value, int)
            else value
        )

    result = LIBC.syscall(ctypes.c_long(number), *map(converted, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "a system call")
    return result


def with_file(path, flags, use):
    file = os.open(path, flags)
    try:
        return use(file)
    finally:
        os.close(file)


def create(path, contents=b""):
    with_file(path, os.O_CREAT | os.O_RDWR, lambda file: contents and os.write(file, contents))


def write(path, contents, offset, flags=os.O_WRONLY):
    return with_file(path, flags, lambda file: os.pwrite(file, contents, offset))


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def make(kind, path):
    match kind:
        case "file":
            create(path, b"x")
        case "dir" | "full":
            os.mkdir(path)
        case "link":
            os.symlink("target", path)
        case "fifo":
            os.mkfifo(path, 0o644)
        case "device":
            os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3))
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o644)
    if kind == "full":
        create(f"{path}/x")


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            remove(f"{path}/{name}")
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def fresh(kind, path="a", mode=None, owner=None):
    remove(path)
    make(kind, path)
    if owner:
        os.chown(path, *owner)
    if mode is not None:
        os.chmod(path, mode)


def mode(path):
    return oct(os.lstat(path).st_mode & 0o7777)


def state(path):
    found = os.lstat(path)
    return oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid


def tree():
    return sorted((at, sorted(dirs), sorted(files)) for at, dirs, files in os.walk("."))


def renameat2(old, new, flags):
    return syscall(316, -100, old, -100, new, flags)


def fallocate(file, mode, offset, length):
    return syscall(285, file, mode, offset, length)


def utimensat(path, access, modification):
    times = (ctypes.c_long * 4)(*access, *modification)
    return syscall(280, -100, path, ctypes.byref(times), 0x100)


def flags_of(path):
    return hex(
        struct.unpack("I4x", with_file(path, os.O_RDONLY, lambda file: fcntl.ioctl(file, GETFLAGS, bytes(8))))[0]
    )


def set_flags(path, flags):
    with_file(path, os.O_RDONLY, lambda file: fcntl.ioctl(file, SETFLAGS, struct.pack("I4x", flags)))


def extended_of(path):
    found = with_file(path, os.O_RDONLY, lambda file: fcntl.ioctl(file, FSGETXATTR, bytes(28)))
    return struct.unpack("=5I8x", found)


def set_extended(path, flags, size=0, project=0):
    fields = struct.pack("=5I8x", flags, size, 0, project, 0)
    with_file(path, os.O_RDONLY, lambda file: fcntl.ioctl(file, FSSETXATTR, fields))


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


MINIMAL = acl((1, 6, UNDEFINED), (4, 4, UNDEFINED), (32, 1, UNDEFINED))


FULL = acl(
    (1, 7, UNDEFINED),
    (2, 5, OWNER),
    (2, 6, MEMBER),
    (4, 5, UNDEFINED),
    (8, 2, 77),
    (16, 7, UNDEFINED),
    (32, 0, UNDEFINED),
)
