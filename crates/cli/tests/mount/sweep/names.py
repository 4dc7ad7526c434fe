"""Names, links, and opening files."""

import os

from base import *


def names():
    for length in [1, 255, 256, 4095, 4096]:
        name = "n" * length
        for label, call in [
            ("create", create),
            ("mkdir", os.mkdir),
            ("mkfifo", os.mkfifo),
            ("stat", lambda path: os.stat(path).st_size),
        ]:
            show(f"{label} {length}", call, name)
            if length < 256:
                remove(name)
    create("f")
    os.makedirs("d/e")
    calls = {
        "open": lambda path: os.close(os.open(path, os.O_RDONLY)),
        "create": create,
        "exclusive": lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL)),
        "mkdir": os.mkdir,
        "rmdir": os.rmdir,
        "unlink": os.unlink,
        "link to": lambda path: os.link("f", path),
        "link from": lambda path: os.link(path, "new"),
        "rename to": lambda path: os.rename("f", path),
        "rename from": lambda path: os.rename(path, "new"),
        "symlink": lambda path: os.symlink("t", path),
        "mknod": os.mknod,
        "truncate": lambda path: os.truncate(path, 0),
    }
    for path in ["f/", "f/.", "f/x", "d/", "d/.", "d/..", "", ".", "d//e", "missing/", "missing/x", "f/../f"]:
        for label, call in calls.items():
            show(f"{label} {path!r}", call, path)
            for name in ["new", "missing"]:
                remove(name)
            os.makedirs("d/e", exist_ok=True)
            create("f")


def renames():
    kinds = ["file", "dir", "full", "link", "fifo", "device", "none"]
    for flags in [0, 1, 2, 3, 4, 5, 6, 8]:
        for old in kinds:
            for new in kinds:
                fresh(old, "a")
                fresh(new, "b")
                show(f"{flags} {old} to {new}", renameat2, "a", "b", flags)
                show(
                    f"{flags} {old} to {new}, after", lambda: [(name, state(name)) for name in sorted(os.listdir("."))]
                )
    fresh("file", "a")
    remove("b")
    os.link("a", "b")
    os.makedirs("p/q/r")
    pairs = [
        ("a", "b"),
        ("a", "a"),
        ("p", "p/q"),
        ("p/q", "p"),
        ("p/q", "p/q"),
        ("p/.", "z"),
        ("z", "p/."),
        ("p/q/", "p/s/"),
        ("a/", "c"),
    ]
    for flags in [0, 1, 2, 4]:
        for old, new in pairs:
            show(f"{flags} {old} to {new}", renameat2, old, new, flags)
            show(f"{flags} {old} to {new}, after", tree)


def links():
    for kind in KINDS:
        fresh(kind)
        show(f"link {kind}", lambda: os.link("a", "b", follow_symlinks=False))
        show(f"link {kind}, after", lambda: (state("a"), state("b") if os.path.lexists("b") else None))
        remove("b")
    for length in [1, 59, 60, 61, 4095, 4096]:
        show(f"symlink {length}", os.symlink, "s" * length, f"s{length}")
        show(f"symlink {length}, after", lambda: (len(os.readlink(f"s{length}")), os.lstat(f"s{length}").st_blocks))
    show("empty symlink", os.symlink, "", "e")
    for flags in [0, os.O_EXCL]:
        file = os.open(".", os.O_TMPFILE | os.O_RDWR | flags, 0o644)
        show(f"name a file without a name, {flags}", syscall, 265, file, "", -100, f"t{flags}", 0x1000)
        os.close(file)
    create("f")
    file = os.open("f", os.O_RDWR)
    os.unlink("f")
    show("link a removed file", syscall, 265, file, "", -100, "back", 0x1000)
    show("attribute of a removed file", os.setxattr, file, "user.a", b"v")
    os.close(file)
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    create("../f")
    for label, call in [
        ("create", lambda: create("x")),
        ("mkdir", lambda: os.mkdir("x")),
        ("symlink", lambda: os.symlink("a", "x")),
        ("link", lambda: os.link("../f", "x")),
        ("rename", lambda: os.rename("../f", "x")),
        ("file without a name", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR)),
        ("list", lambda: os.listdir(".")),
        ("attribute", lambda: os.setxattr(".", "user.a", b"v")),
    ]:
        show(f"{label} in a removed directory", call)
    os.chdir("..")


def opens():
    create("f", b"data")
    os.mkdir("d")
    for name, target in [("l", "f"), ("ld", "d"), ("dangling", "nowhere"), ("loop", "loop")]:
        os.symlink(target, name)
    make("socket", "socket")
    extra = [
        "O_RDONLY",
        "O_CREAT",
        "O_EXCL",
        "O_TRUNC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
        "O_PATH",
        "O_DIRECT",
        "O_APPEND",
        "O_NOATIME",
        "O_SYNC",
        "O_TMPFILE",
    ]
    for path in ["f", "f/", "d", "d/", "new", "new/", "l", "l/", "ld", "dangling", "loop", "socket", "missing/x"]:
        for access in [0, 1, 2, 3]:
            for first in extra:
                for second in ["O_RDONLY", "O_CREAT"]:
                    fresh("file", "f")
                    flags = access | getattr(os, first) | getattr(os, second)
                    label = f"{path} {access} {first} {second}"
                    show(label, lambda: with_file(path, flags, lambda file: oct(os.fstat(file).st_mode)))
                    show(f"{label}, after", lambda: sorted(os.listdir(".")))
                    for name in ["new", "nowhere"]:
                        remove(name)
    fresh("file", "f")
    file = os.open("f", os.O_RDWR | os.O_APPEND)
    show("write at 0 of a file that is appended to", os.pwrite, file, b"CD", 0)
    show("write at 0 of a file that is appended to, after", contents, "f")
    for flags in [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80]:
        show(f"write with flags {flags}", os.pwritev, file, [b"12"], 0, flags)
        show(f"read with flags {flags}", os.preadv, file, [bytearray(2)], 0, flags)
    os.close(file)


SECTIONS = [names, renames, links, opens]
