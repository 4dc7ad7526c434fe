"""Modes, access control lists, extended attributes and flags."""

import mmap
import os
import struct

from base import *


def modes():
    for umask in [0, 0o22, 0o777]:
        os.umask(umask)
        with_file(f"u{umask}", os.O_CREAT | os.O_RDWR, lambda file: None)
        os.mkdir(f"d{umask}", 0o7777)
        os.mkfifo(f"p{umask}", 0o7777)
        show(f"umask {umask:o}", lambda: [mode(f"{kind}{umask}") for kind in "udp"])
    os.umask(0o22)
    for kind in ["file", "dir", "fifo", "socket", "device"]:
        for bits in [0o4755, 0o2755, 0o2745, 0o6777, 0o7777]:
            for owner in [(5, -1), (-1, 6), (0, 0), (-1, -1)]:
                fresh(kind, mode=bits)
                show(f"chown {kind} {bits:o} {owner}", os.chown, "a", *owner)
                show(f"chown {kind} {bits:o} {owner}, after", state, "a")
            for owner in [(OWNER, OWNER), (-1, -1), (-1, GROUP), (-1, 9), (OTHER, -1)]:
                fresh(kind, mode=bits, owner=(OWNER, OWNER))
                user_case(OWNER, f"chown {kind} {bits:o} {owner}", os.chown, "a", *owner, groups=[GROUP])
                show(f"chown {kind} {bits:o} {owner} by its owner, after", state, "a")
            for uid, groups in [(OWNER, []), (OWNER, [GROUP]), (OTHER, [])]:
                fresh(kind, owner=(OWNER, GROUP))
                user_case(uid, f"chmod {kind} {bits:o}", os.chmod, "a", bits, groups=groups)
                show(f"chmod {kind} {bits:o} by {uid} {groups}, after", mode, "a")
    create("source", b"q" * 8192)
    for bits in [0o4777, 0o2777, 0o6777, 0o2767]:
        for label, call in WRITES.items():
            for uid, owner in [(0, 0), (OTHER, 0), (OTHER, OTHER)]:
                fresh("file", mode=bits, owner=(owner, owner))
                os.truncate("a", 8192)
                os.chmod("a", bits)
                user_case(uid, f"{label} {bits:o} of {owner}", call)
                show(f"{label} {bits:o} of {owner} by {uid}, after", mode, "a")
    os.mkdir("sticky")
    for name, uid in [("a", OWNER), ("b", MEMBER)]:
        create(f"sticky/{name}")
        os.chown(f"sticky/{name}", uid, uid)
    os.chmod("sticky", 0o1777)
    for uid in [OTHER, OWNER]:
        user_case(uid, "rename in a sticky directory", os.rename, "sticky/a", "sticky/c")
        user_case(uid, "replace in a sticky directory", os.rename, "sticky/c", "sticky/b")
        user_case(uid, "unlink in a sticky directory", os.unlink, "sticky/b")


def through_mapping():
    def change(file):
        pages = mmap.mmap(file, 4096)
        pages[0] = 65
        pages.flush()

    with_file("a", os.O_RDWR, change)


WRITES = {
    "write": lambda: write("a", b"y", 3),
    "append": lambda: write("a", b"y", 0, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda: os.truncate("a", 5),
    "same size": lambda: os.truncate("a", 8192),
    "open emptied": lambda: os.close(os.open("a", os.O_WRONLY | os.O_TRUNC)),
    "allocate": lambda: with_file("a", os.O_RDWR, lambda file: fallocate(file, 0, 0, 4096)),
    "punch": lambda: with_file("a", os.O_RDWR, lambda file: fallocate(file, 3, 0, 4096)),
    "direct": lambda: write("a", mmap.mmap(-1, 4096), 0, os.O_WRONLY | os.O_DIRECT),
    "copy": lambda: with_file(
        "source",
        os.O_RDONLY,
        lambda source: with_file("a", os.O_WRONLY, lambda file: os.copy_file_range(source, file, 9)),
    ),
    "mapping": through_mapping,
    "nothing": lambda: write("a", b"", 0),
}


def lists():
    entry = {
        "owner": (1, 6, UNDEFINED),
        "group": (4, 4, UNDEFINED),
        "mask": (16, 7, UNDEFINED),
        "other": (32, 1, UNDEFINED),
    }
    plain = [entry["owner"], entry["group"], entry["other"]]
    values = {
        "minimal": MINIMAL,
        "full": FULL,
        "nothing": b"",
        "empty": acl(),
        "short": MINIMAL[:-1],
        "version": b"\1\0\0\0" + MINIMAL[4:],
        "no mask": acl(entry["owner"], (2, 5, 7), entry["group"], entry["other"]),
        "no other": acl(entry["owner"], entry["group"]),
        "twice": acl(entry["owner"], *plain),
        "tag": acl(entry["owner"], (3, 5, 7), entry["group"], entry["other"]),
        "permission": acl((1, 15, UNDEFINED), entry["group"], entry["other"]),
        "order": acl(entry["owner"], (2, 5, 9), (2, 4, 7), entry["group"], entry["mask"], entry["other"]),
        "mask alone": acl(entry["owner"], entry["group"], entry["mask"], entry["other"]),
        "many": acl(
            entry["owner"], *[(2, 5, 2000 + n) for n in range(300)], entry["group"], entry["mask"], entry["other"]
        ),
        "too many": acl(
            entry["owner"], *[(2, 5, 2000 + n) for n in range(600)], entry["group"], entry["mask"], entry["other"]
        ),
    }
    for kind in ["file", "dir", "link", "fifo"]:
        for name in [ACCESS, DEFAULT]:
            for label, value in values.items():
                for before in [None, FULL]:
                    fresh(kind)
                    try:
                        before and os.setxattr("a", name, before, follow_symlinks=False)
                    except OSError:
                        continue
                    show(
                        f"{label} of {kind} {name} {before is None}",
                        lambda: os.setxattr("a", name, value, follow_symlinks=False),
                    )
                    show(
                        f"{label} of {kind} {name} {before is None}, after",
                        lambda: (mode("a"), sorted(os.listxattr("a", follow_symlinks=False))),
                    )
    os.mkdir("dir")
    os.setxattr("dir", DEFAULT, FULL)
    for umask in [0, 0o77]:
        os.umask(umask)
        for bits in [0o777, 0o640]:
            with_file("dir/f", os.O_CREAT | os.O_RDWR, lambda file: None)
            os.mkdir("dir/d", bits)
            os.mkfifo("dir/p", bits)
            for name in ["dir/f", "dir/d", "dir/p"]:
                show(
                    f"inherited by {name} {umask:o} {bits:o}",
                    lambda: (mode(name), [os.getxattr(name, each).hex() for each in sorted(os.listxattr(name))]),
                )
                remove(name)
    os.umask(0o22)
    for bits in [0o2755, 0o2745]:
        for value in [MINIMAL, FULL]:
            for uid, groups in [(OWNER, []), (OWNER, [GROUP]), (MEMBER, []), (0, [])]:
                fresh("file", owner=(OWNER, GROUP), mode=bits)
                user_case(uid, f"list {len(value)} {bits:o}", os.setxattr, "a", ACCESS, value, groups=groups)
                show(f"list {len(value)} {bits:o} by {uid} {groups}, after", mode, "a")


def attributes():
    names = [
        "user.a",
        "user.",
        "user",
        "trusted.a",
        "trusted.",
        "security.a",
        "security.",
        "system.a",
        "system.",
        "other.a",
        "a",
        "",
        "user." + "n" * 250,
        "user." + "n" * 251,
    ]
    for kind in KINDS:
        fresh(kind)
        for name in names:
            label = f"{kind} {name if len(name) < 30 else len(name)!r}"
            for flags in [0, 1, 2, 3, 4]:
                show(f"{label} set {flags}", lambda: os.setxattr("a", name, b"v", flags, follow_symlinks=False))
            show(f"{label} get", lambda: os.getxattr("a", name, follow_symlinks=False))
            user_case(OTHER, f"{label} get", lambda: os.getxattr("a", name, follow_symlinks=False))
            user_case(OTHER, f"{label} list", lambda: os.listxattr("a", follow_symlinks=False))
            show(f"{label} list", lambda: sorted(os.listxattr("a", follow_symlinks=False)))
            show(f"{label} set both", lambda: os.setxattr("a", name, b"v", 3, follow_symlinks=False))
            for turn in [1, 2]:
                show(f"{label} remove {turn}", lambda: os.removexattr("a", name, follow_symlinks=False))
            show(f"{label} set both {turn}", lambda: os.setxattr("a", name, b"v", 3, follow_symlinks=False))
    for size in [0, 100, 3900, 4040, 4076, 65536, 65537]:
        fresh("file")
        show(f"{size} bytes", os.setxattr, "a", "user.a", b"v" * size)
    fresh("file")

    def fill():
        for number in range(1000):
            os.setxattr("a", f"user.{number}", b"x" * 20)

    show("many", fill)
    show("many, after", lambda: len(os.listxattr("a")))
    capability = struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0)
    for label, change in [
        ("write", lambda: write("a", b"y", 0)),
        ("truncate", lambda: os.truncate("a", 0)),
        ("chown", lambda: os.chown("a", 1, 1)),
        ("chmod", lambda: os.chmod("a", 0o755)),
    ]:
        fresh("file")
        os.setxattr("a", "security.capability", capability)
        show(f"capability, {label}", change)
        show(f"capability, {label}, after", os.listxattr, "a")


def flags():
    for kind in ["file", "dir"]:
        # Bit 14 requires a capability that root of a container may lack.
        for bit in [number for number in range(32) if number != 14]:
            fresh(kind)
            base = int(flags_of("a"), 16)
            show(f"{kind} bit {bit}", set_flags, "a", base | 1 << bit)
            show(f"{kind} bit {bit}, after", lambda: (flags_of("a"), extended_of("a")))
            user_case(OTHER, f"{kind} bit {bit}", set_flags, "a", base)
            set_flags("a", base)
            show(f"{kind} extended bit {bit}", set_extended, "a", 1 << bit)
            show(f"{kind} extended bit {bit}, after", lambda: (flags_of("a"), extended_of("a")))
            set_flags("a", base)
        fresh(kind, owner=(OWNER, OWNER))
        for bits in [0x80040, 0x80010, 0x80020, 0x84000]:
            user_case(OWNER, f"{kind} {bits:x}", set_flags, "a", bits)
        show(f"{kind} without extents", set_flags, "a", 0)
        set_flags("a", 0x80000)
    for bits in [0x8, 0x40, 0x80, 0x20, 0x10000, 0x20000, 0x20000000]:
        remove("in")
        os.mkdir("in")
        set_flags("in", 0x80000 | bits)
        create("in/f")
        os.mkdir("in/d")
        show(f"inherited {bits:x}", lambda: [flags_of(f"in/{name}") for name in "fd"])
        for path in ["in", "in/f", "in/d"]:
            set_flags(path, 0x80000)


def protection():
    create("other")
    for bits in [0x80010, 0x80020]:
        for kind in ["file", "full"]:
            fresh(kind)
            held = os.open("a", os.O_RDWR if kind == "file" else os.O_RDONLY)
            set_flags("a", bits)
            calls = {
                "read": lambda: os.close(os.open("a", os.O_RDONLY)),
                "chmod": lambda: os.chmod("a", 0o700),
                "chown": lambda: os.chown("a", 1, 1),
                "touch": lambda: os.utime("a"),
                "time": lambda: os.utime("a", (5, 5)),
                "access time": lambda: utimensat("a", (0, (1 << 30) - 1), (0, (1 << 30) - 2)),
                "set attribute": lambda: os.setxattr("a", "user.a", b"v"),
                "remove attribute": lambda: os.removexattr("a", "user.a"),
                "set list": lambda: os.setxattr("a", ACCESS, MINIMAL),
                "link": lambda: os.link("a", "new"),
                "rename": lambda: os.rename("a", "new"),
                "replace": lambda: os.rename("other", "a"),
                "exchange": lambda: renameat2("other", "a", 2),
                "unlink": lambda: os.unlink("a"),
                "rmdir": lambda: os.rmdir("a"),
                "may write": lambda: os.access("a", os.W_OK),
                "project": lambda: set_extended("a", 0, 0, 5),
                "flags": lambda: set_flags("a", bits | 0x40),
            }
            if kind == "file":
                calls |= {
                    "open to write": lambda: os.close(os.open("a", os.O_WRONLY)),
                    "open to append": lambda: os.close(os.open("a", os.O_WRONLY | os.O_APPEND)),
                    "open emptied": lambda: os.close(os.open("a", os.O_WRONLY | os.O_TRUNC)),
                    "truncate": lambda: os.truncate("a", 0),
                    "append": lambda: write("a", b"y", 0, os.O_WRONLY | os.O_APPEND),
                    "truncate an open file": lambda: os.ftruncate(held, 0),
                    "allocate": lambda: fallocate(held, 0, 0, 4096),
                    "punch": lambda: fallocate(held, 3, 0, 4096),
                    "write to an open file": lambda: os.pwrite(held, b"h", 0),
                    "sync": lambda: os.fsync(held),
                }
            else:
                calls |= {
                    "create below": lambda: create("a/n"),
                    "mkdir below": lambda: os.mkdir("a/d"),
                    "link below": lambda: os.link("other", "a/l"),
                    "unlink below": lambda: os.unlink("a/x"),
                    "rename below": lambda: os.rename("a/x", "a/y"),
                    "rename out": lambda: os.rename("a/x", "new"),
                    "write below": lambda: write("a/x", b"y", 0),
                    "file without a name": lambda: os.close(os.open("a", os.O_TMPFILE | os.O_RDWR)),
                }
            for label, call in calls.items():
                show(f"{bits:x} {kind} {label}", call)
            os.close(held)
            set_flags("a", 0x80000)
            show(f"{bits:x} {kind}, after", lambda: (state("a"), os.path.getsize("a") if kind == "file" else tree()))


SECTIONS = [modes, lists, attributes, flags, protection]
