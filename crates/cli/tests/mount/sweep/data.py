"""Times, space, sizes, locks and information."""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import time

from base import *


def times():
    now, omit = (1 << 30) - 1, (1 << 30) - 2

    def seen(path):
        found = os.lstat(path)
        return [
            each if abs(each / 1e9 - time.time()) > 1000 else "now" for each in (found.st_atime_ns, found.st_mtime_ns)
        ]

    for kind in ["file", "dir", "link", "fifo"]:
        fresh(kind)
        for seconds in [0, -1, 1000000000, 2147483648, -2147483648, -2147483649, 15032385535, 15032385536, 1 << 40]:
            for nanos in [0, 1, 999999999]:
                show(f"{kind} {seconds}.{nanos}", utimensat, "a", (seconds, nanos), (seconds, nanos))
                show(f"{kind} {seconds}.{nanos}, after", seen, "a")
        for access, modification in [
            ((0, now), (0, now)),
            ((0, omit), (0, omit)),
            ((7, 0), (0, omit)),
            ((0, now), (0, omit)),
            ((0, omit), (0, now)),
            ((0, now), (8, 0)),
            ((0, 1000000000), (0, 0)),
        ]:
            utimensat("a", (1000, 0), (2000, 0))
            show(f"{kind} {access} {modification}", utimensat, "a", access, modification)
            show(f"{kind} {access} {modification}, after", seen, "a")
            if kind == "file":
                for bits, uid in [(0o644, OWNER), (0o644, OTHER), (0o666, OTHER)]:
                    os.chown("a", OWNER, OWNER)
                    os.chmod("a", bits)
                    user_case(uid, f"{access} {modification} {bits:o}", utimensat, "a", access, modification)


def changes():
    """Which calls change the times of which files."""
    os.mkdir("d")
    create("a", b"x")
    file = os.open("a", os.O_RDWR)
    calls = {
        "write": lambda: os.pwrite(file, b"y", 0),
        "write nothing": lambda: os.pwrite(file, b"", 0),
        "ftruncate": lambda: os.ftruncate(file, 1),
        "same size": lambda: os.truncate("a", 1),
        "grow": lambda: os.truncate("a", 9000),
        "open emptied": lambda: os.close(os.open("a", os.O_TRUNC | os.O_WRONLY)),
        "allocate": lambda: fallocate(file, 0, 0, 8192),
        "punch": lambda: fallocate(file, 3, 0, 4096),
        "chmod": lambda: os.chmod("a", 0o644),
        "chown of nothing": lambda: os.chown("a", -1, -1),
        "chown": lambda: os.chown("a", 0, 0),
        "attribute": lambda: os.setxattr("a", "user.a", b"v"),
        "same attribute": lambda: os.setxattr("d", "user.a", b"v"),
        "link": lambda: os.link("a", "d/l"),
        "rename": lambda: os.rename("d/l", "d/m"),
        "unlink": lambda: os.unlink("d/m"),
        "mkdir": lambda: os.mkdir("d/e"),
        "rmdir": lambda: os.rmdir("d/e"),
        "failure": lambda: os.mkdir("d"),
        "read": lambda: contents("a"),
        "list": lambda: os.listdir("d"),
        "flags": lambda: set_flags("a", 0x80040),
        "sync": lambda: os.fsync(file),
    }
    os.setxattr("d", "user.a", b"v")
    for label, call in calls.items():
        before = [os.lstat(path) for path in ["a", "d"]]
        time.sleep(0.012)
        try:
            call()
        except OSError:
            pass
        after = [os.lstat(path) for path in ["a", "d"]]
        show(
            label,
            lambda: [
                (old.st_mtime_ns != new.st_mtime_ns, old.st_ctime_ns != new.st_ctime_ns)
                for old, new in zip(before, after)
            ],
        )
    os.close(file)


def data_ranges(file):
    found, at, end = [], 0, os.fstat(file).st_size
    while at < end:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(file, start, os.SEEK_HOLE)
        found.append((start, at))
    return found


def space():
    ranges = [
        (0, 4096),
        (0, 1),
        (4096, 8192),
        (12288, 4096),
        (100, 200),
        (1 << 20, 4096),
        (0, 0),
        (-1, 4096),
        ((1 << 63) - 1, 1),
        (1 << 44, 4096),
        ((1 << 44) - 8192, 4096),
        (5000, 5000),
        (16384, 16384),
    ]
    for mode in [0, 1, 2, 3, 8, 16, 17, 18, 24, 32, 64, 128]:
        for offset, length in ranges:
            fresh("file")
            write("a", b"A" * 20000, 0)
            file = os.open("a", os.O_RDWR)
            show(f"{mode} {offset} {length}", fallocate, file, mode, offset, length)
            os.fsync(file)
            found = os.fstat(file)
            show(f"{mode} {offset} {length}, after", lambda: (found.st_size, found.st_blocks))
            if found.st_size < 1 << 30:
                show(
                    f"{mode} {offset} {length}, data",
                    lambda: (data_ranges(file), hash(tuple(os.pread(file, 1 << 21, 0)))),
                )
            os.close(file)
    for flags in [os.O_RDONLY, os.O_WRONLY, os.O_PATH, os.O_RDWR | os.O_APPEND]:
        for mode in [0, 1, 3, 16]:
            show(f"open {flags} {mode}", lambda: with_file("a", flags, lambda file: fallocate(file, mode, 0, 4096)))
    file = os.open("holes", os.O_CREAT | os.O_RDWR)
    for offset in [0, 65536, 200000]:
        os.pwrite(file, b"x" * 5000, offset)
    os.ftruncate(file, 1 << 20)
    for label in ["gathered", "synced"]:
        for offset in [0, 4096, 8191, 8192, 70000, 200000, (1 << 20) - 1, 1 << 20, -1]:
            for whence in [os.SEEK_DATA, os.SEEK_HOLE]:
                show(f"{label} seek {offset} {whence}", os.lseek, file, offset, whence)
        os.fsync(file)
    for offset, whence in [(-1, 0), (-1, 2), (-200, 1), (0, 99), ((1 << 63) - 1, 0), (1 << 44, 0)]:
        show(f"seek {offset} {whence}", os.lseek, file, offset, whence)
    os.close(file)


def sizes():
    create("f", b"A" * 10000)
    os.mkdir("d")
    for size in [0, 1, 4097, 1 << 32, (1 << 44) - 4096, (1 << 44) - 4095, 1 << 44, (1 << 63) - 1, -1]:
        show(f"truncate {size}", os.truncate, "f", size)
        show(f"truncate {size}, after", lambda: (os.stat("f").st_size, os.stat("f").st_blocks))
    for path in ["d", "missing", "."]:
        show(f"truncate {path}", os.truncate, path, 100)
    os.truncate("f", 5000)
    for offset in [(1 << 44) - 4096, 1 << 62, (1 << 32) - 1]:
        file = os.open("f", os.O_RDWR)
        show(f"write at {offset}", os.pwrite, file, b"x", offset)
        show(f"sync after a write at {offset}", os.fsync, file)
        show(f"size after a write at {offset}", lambda: os.fstat(file).st_size)
        os.ftruncate(file, 5000)
        try:
            # Later lines do not depend on errors of this file.
            syscall(306, file)
        except OSError:
            pass
        os.close(file)
    for size in [1, 100, 4096, 5000]:
        fresh("file")
        write("a", b"Z" * 10000, 0)
        file = os.open("a", os.O_RDWR)
        pages = mmap.mmap(file, 10000)
        os.ftruncate(file, size)
        os.ftruncate(file, 10000)
        show(f"zeros after {size}", lambda: (os.pread(file, 10000, 0).count(0), pages[:].count(0)))
        pages.close()
        os.close(file)


def locks():
    create("f", b"x" * 100)
    first, second, reader = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR), os.open("f", os.O_RDONLY)
    for one in [fcntl.LOCK_SH, fcntl.LOCK_EX]:
        for two in [fcntl.LOCK_SH, fcntl.LOCK_EX]:
            show(f"flock {one}", fcntl.flock, first, one | fcntl.LOCK_NB)
            show(f"flock {one} {two}", fcntl.flock, second, two | fcntl.LOCK_NB)
            fcntl.flock(first, fcntl.LOCK_UN)
            fcntl.flock(second, fcntl.LOCK_UN)

    def lock(file, command, kind, start=0, length=0):
        return struct.unpack("hhqqi4x", fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, 0, start, length, 0)))[
            :4
        ]

    for command in [6, 37]:
        for kind in [0, 1, 2, 3]:
            show(f"lock {command} {kind}", lock, reader, command, kind)
            lock(reader, command, 2)
    show("lock a range", lock, first, 37, 1, 0, 10)
    show("lock an overlapping range", lock, second, 37, 1, 5, 10)
    show("find the lock", lock, second, 36, 1, 5, 10)
    show("lock another range", lock, second, 37, 1, 10, 10)
    for file in [first, second, reader]:
        os.close(file)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]:
        for kind in [0, 1, 2]:
            show(
                f"lease {flags} {kind}",
                lambda: with_file("f", flags, lambda file: fcntl.fcntl(file, fcntl.F_SETLEASE, kind)),
            )
    os.mkdir("d")
    for path in ["f", "d"]:
        for label, call in [
            ("fsync", os.fsync),
            ("fdatasync", os.fdatasync),
            ("syncfs", lambda file: syscall(306, file)),
            ("flock", lambda file: fcntl.flock(file, fcntl.LOCK_EX)),
        ]:
            show(f"{label} {path}", lambda: with_file(path, os.O_RDONLY, call))


def information():
    def found(path, mask):
        buffer = ctypes.create_string_buffer(256)
        syscall(332, -100, path, 0x100, mask, buffer)
        seen, block, attributes, links, uid, gid, bits = struct.unpack_from("IIQIIIH", buffer)
        return hex(seen & 0xFFF), block, links, uid, gid, oct(bits)

    for kind in KINDS:
        fresh(kind)
        for mask in [0, 0x7FF, 0xFFF, 0x80000000]:
            show(f"statx {kind} {mask:x}", found, "a", mask)
    space = os.statvfs(".")
    show("statvfs", lambda: (space.f_bsize, space.f_frsize, space.f_blocks, space.f_files, space.f_namemax))
    os.mkdir("many")
    for number in range(2000):
        create(f"many/{number:060}")
    directory = os.open("many", os.O_RDONLY)
    buffer = ctypes.create_string_buffer(1 << 20)

    def entries(length=1 << 20):
        size, found, at = syscall(217, directory, buffer, length), [], 0
        while at < size:
            _, offset, length, kind = struct.unpack_from("QqHB", buffer.raw, at)
            found.append((buffer.raw[at + 19 : at + length].split(b"\0")[0], offset, kind))
            at += length
        return found

    show("getdents of 10 bytes", entries, 10)
    everything = []
    os.lseek(directory, 0, 0)
    while part := entries():
        everything += part
    show("entries", lambda: (len(everything), sorted({kind for _, _, kind in everything})))

    def agrees(position):
        os.lseek(directory, everything[position][1], 0)
        return entries()[0][0] == everything[position + 1][0]

    show(
        "each offset leads to the next entry",
        lambda: all(agrees(number) for number in range(0, len(everything) - 1, 50)),
    )
    show("seek before the start", os.lseek, directory, -1, 0)
    os.lseek(directory, 0, 0)
    show("read a directory", os.read, directory, 10)
    os.close(directory)


def copies():
    create("source", bytes(range(256)) * 400)
    for start, to, length in [
        (0, 0, 102400),
        (100, 7, 5000),
        (102399, 0, 10),
        (102400, 0, 10),
        (0, 1 << 20, 100),
        (0, 0, 0),
        (-1, 0, 5),
        (0, (1 << 44) + 5, 5),
    ]:
        fresh("file")
        show(
            f"copy {start} {to} {length}",
            lambda: with_file(
                "source",
                os.O_RDONLY,
                lambda source: with_file(
                    "a", os.O_RDWR, lambda file: os.copy_file_range(source, file, length, start, to)
                ),
            ),
        )
        show(f"copy {start} {to} {length}, after", lambda: (os.path.getsize("a"), sum(contents("a"))))
    file = os.open("source", os.O_RDWR)
    for label, number, data in [
        ("clone", 0x40049409, file),
        ("version", 0x80087601, bytes(8)),
        ("block size", 2, bytes(4)),
        ("identity", 0x80111500, bytes(17)),
        ("label", 0x81009431, bytes(256)),
        ("unknown", 0x504D, 0),
    ]:
        show(f"ioctl {label}", lambda: bool(fcntl.ioctl(file, number, data)) or True)
    for start, length, least in [(0, UNDEFINED << 31, 0), (0, 100, 0), (1 << 60, 4096, 0)]:
        show(
            f"trim {start} {length}",
            lambda: bool(fcntl.ioctl(file, 0xC0185879, struct.pack("QQQ", start, length, least))),
        )
    os.close(file)


SECTIONS = [times, changes, space, sizes, locks, information, copies]
