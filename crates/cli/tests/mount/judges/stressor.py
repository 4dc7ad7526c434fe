"""One process of the stressor: random operations in a directory of its own.

usage: stressor.py DIR SEED COUNT
       stressor.py --tree DIR

Prints one line per operation: the operation and its result, or its error. The same seed prints the same lines on every
file system that behaves the same. With --tree, prints one line per file of a tree.

Not among the operations: FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE, which the kernel refuses for FUSE
(`fuse_file_fallocate` in fs/fuse/file.c), and set-user-ID and set-group-ID, which a mount clears at fallocate(2) even
for root.
"""
import ctypes, errno, hashlib, mmap, os, random, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
BLOCK = 4096
MOST = 1 << 20
ACL = "system.posix_acl_access"


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


class Stressor:
    def __init__(self, root, seed):
        self.root, self.random = root, random.Random(seed)
        os.makedirs(root, exist_ok=True)

    def name(self):
        folders = [[], ["d%d" % self.random.randrange(3)]]
        parts = self.random.choice(folders) + ["n%d" % self.random.randrange(12)]
        return os.path.join(*parts)

    def folder(self):
        return "d%d" % self.random.randrange(3)

    def path(self, name):
        return os.path.join(self.root, name)

    def bytes(self, most=70000):
        length = self.random.choice([1, 10, 100, BLOCK, self.random.randrange(1, most)])
        return (struct.pack("Q", self.random.getrandbits(64)) * (length // 8 + 1))[:length]

    def offset(self):
        return self.random.choice([0, BLOCK, self.random.randrange(200000), BLOCK * self.random.randrange(60)])

    def opened(self, name, flags, act, mode=0o644):
        file = os.open(self.path(name), flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
        try:
            return act(file)
        finally:
            os.close(file)

    # Names.

    def create(self, name):
        mode = self.random.choice([0o600, 0o644, 0o755])
        return self.opened(name, os.O_CREAT | os.O_RDWR, lambda file: None, mode)

    def create_new(self, name):
        return self.opened(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, lambda file: os.write(file, self.bytes()))

    def mkdir(self, name):
        os.mkdir(self.path(self.random.choice([name, self.folder()])), 0o755)

    def rmdir(self, name):
        os.rmdir(self.path(self.random.choice([name, self.folder()])))

    def unlink(self, name):
        os.unlink(self.path(name))

    def symlink(self, name):
        os.symlink("t" * self.random.choice([1, 59, 60, 500]), self.path(name))

    def mkfifo(self, name):
        os.mkfifo(self.path(name), 0o640)

    def link(self, name):
        os.link(self.path(name), self.path(self.name()), follow_symlinks=False)

    def rename(self, name):
        flags = self.random.choice([0, 0, 1, 2])
        old, new = self.path(name).encode(), self.path(self.name()).encode()
        check(libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags))

    def nameless(self, name):
        data, new = self.bytes(), self.path(name)
        file = os.open(self.root, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            os.write(file, data)
            os.link("/proc/self/fd/%d" % file, new, follow_symlinks=True)
        finally:
            os.close(file)

    def list(self, name):
        return sorted(os.listdir(self.path(self.random.choice(["", self.folder()]))))

    # Attributes.

    def chmod(self, name):
        self.opened(name, os.O_RDONLY, lambda file: os.fchmod(file, self.random.randrange(0o2000)))

    def chown(self, name):
        os.chown(self.path(name), self.random.randrange(5), self.random.randrange(5), follow_symlinks=False)

    def utime(self, name):
        times = (self.random.randrange(1 << 31), self.random.randrange(1 << 31))
        os.utime(self.path(name), times, follow_symlinks=False)

    def stat(self, name):
        found = os.lstat(self.path(name))
        size = found.st_size if not os.path.isdir(self.path(name)) else 0
        return oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, size

    def setxattr(self, name):
        value = bytes([self.random.randrange(256)]) * self.random.choice([0, 1, 40, 300, 2000])
        flags = self.random.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])
        os.setxattr(self.path(name), "user.a%d" % self.random.randrange(4), value, flags, follow_symlinks=False)

    def removexattr(self, name):
        os.removexattr(self.path(name), "user.a%d" % self.random.randrange(4), follow_symlinks=False)

    def listxattr(self, name):
        path = self.path(name)
        names = sorted(os.listxattr(path, follow_symlinks=False))
        return [(n, hashlib.md5(os.getxattr(path, n, follow_symlinks=False)).hexdigest()) for n in names]

    def acl(self, name):
        entries = [(1, 6, 0xFFFFFFFF), (4, self.random.randrange(8), 0xFFFFFFFF), (0x20, 4, 0xFFFFFFFF)]
        if self.random.randrange(3):
            entries[1:1] = [(2, self.random.randrange(8), 7)]
            entries[3:3] = [(0x10, self.random.randrange(8), 0xFFFFFFFF)]
        value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(self.path(name), ACL, value, follow_symlinks=False)

    # Data.

    def write(self, name):
        data, offset = self.bytes(), self.offset()
        return self.opened(name, os.O_WRONLY, lambda file: os.pwrite(file, data, offset))

    def append(self, name):
        data = self.bytes(5000)
        return self.opened(name, os.O_WRONLY | os.O_APPEND, lambda file: os.write(file, data))

    def read(self, name):
        offset, length = self.offset(), self.random.randrange(1, 100000)

        def act(file):
            data = os.pread(file, length, offset)
            return len(data), hashlib.md5(data).hexdigest()

        return self.opened(name, os.O_RDONLY, act)

    def truncate(self, name):
        size = self.random.choice([0, 1, BLOCK, self.random.randrange(300000)])
        self.opened(name, os.O_WRONLY, lambda file: os.ftruncate(file, size))

    def empty(self, name):
        self.opened(name, os.O_WRONLY | os.O_TRUNC, lambda file: None)

    def direct(self, name):
        blocks, start = self.random.randrange(1, 9), BLOCK * self.random.randrange(40)
        buffer = mmap.mmap(-1, blocks * BLOCK)
        buffer[:] = struct.pack("Q", self.random.getrandbits(64)) * (blocks * BLOCK // 8)
        return self.opened(name, os.O_WRONLY | os.O_DIRECT, lambda file: os.pwritev(file, [buffer], start))

    def direct_read(self, name):
        blocks, start = self.random.randrange(1, 9), BLOCK * self.random.randrange(40)
        buffer = mmap.mmap(-1, blocks * BLOCK)

        def act(file):
            length = os.preadv(file, [buffer], start)
            return length, hashlib.md5(buffer[:length]).hexdigest()

        return self.opened(name, os.O_RDONLY | os.O_DIRECT, act)

    def asynchronous(self, name):
        """Several direct writes at once (libaio's system calls)."""
        count, start = self.random.randrange(1, 5), BLOCK * self.random.randrange(40)
        buffers = [mmap.mmap(-1, BLOCK) for _ in range(count)]
        for buffer in buffers:
            buffer[:] = struct.pack("Q", self.random.getrandbits(64)) * (BLOCK // 8)

        def act(file):
            context = ctypes.c_ulong(0)
            check(libc.syscall(206, count, ctypes.byref(context)))
            blocks = []
            for number, buffer in enumerate(buffers):
                address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
                at = start + number * BLOCK
                fields = (number, 0, 0, 1, 0, file, address, BLOCK, at, 0, 0, 0)
                blocks.append(ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", *fields), 64))
            pointers = (ctypes.c_void_p * count)(*[ctypes.addressof(block) for block in blocks])
            try:
                submitted = check(libc.syscall(209, context, count, pointers))
                events = ctypes.create_string_buffer(32 * count)
                done = check(libc.syscall(208, context, submitted, submitted, events, None))
                return sorted(struct.unpack_from("q", events, 32 * n + 16)[0] for n in range(done))
            finally:
                libc.syscall(207, context)

        return self.opened(name, os.O_WRONLY | os.O_DIRECT, act)

    def map(self, name):
        data, offset = self.bytes(), self.offset()

        def act(file):
            size = os.fstat(file).st_size
            if not size:
                return None
            with mmap.mmap(file, size) as mapped:
                part = data[: max(0, size - offset)]
                mapped[offset : offset + len(part)] = part
                if self.random.randrange(2):
                    mapped.flush()
            return size

        return self.opened(name, os.O_RDWR, act)

    def fallocate(self, name):
        mode = self.random.choice([0, 1, 3, 3, 0x10, 0x11])
        offset, length = BLOCK * self.random.randrange(30), BLOCK * self.random.randrange(1, 20)
        if self.random.randrange(2):
            offset, length = offset + self.random.randrange(BLOCK), length + self.random.randrange(BLOCK)
        call = lambda file: check(libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)))
        return mode, self.opened(name, os.O_WRONLY, call)

    def copy(self, name):
        other, length = self.name(), self.random.randrange(1, 100000)
        start, to = self.offset(), self.offset()

        def act(source):
            return self.opened(other, os.O_WRONLY, lambda file: os.copy_file_range(source, file, length, start, to))

        return self.opened(name, os.O_RDONLY, act)

    def sync(self, name):
        self.opened(name, os.O_WRONLY, os.fsync)

    DATA = [write, append, read, truncate, direct, direct_read, asynchronous, map, fallocate, copy]
    NAMES = [create, create, create_new, mkdir, rmdir, unlink, symlink, mkfifo, link, rename, nameless, list]
    REST = [chmod, chown, utime, stat, setxattr, removexattr, listxattr, acl, empty, sync]

    def step(self):
        act, name = self.random.choice(self.DATA * 2 + self.NAMES + self.REST), self.name()
        try:
            result = act(self, name)
        except OSError as error:
            result = errno.errorcode.get(error.errno, error.errno)
        return "%s %s %s" % (act.__name__, name, result)


def describe(path):
    found = os.lstat(path)
    line = [oct(found.st_mode), found.st_uid, found.st_gid]
    if os.path.isdir(path):
        line += [found.st_nlink]
    else:
        line += [found.st_nlink, found.st_size]
    if os.path.islink(path):
        line += [os.readlink(path)]
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            line += [hashlib.md5(file.read()).hexdigest()]
    names = sorted(os.listxattr(path, follow_symlinks=False))
    values = [os.getxattr(path, name, follow_symlinks=False) for name in names]
    return line + [(name, hashlib.md5(value).hexdigest()) for name, value in zip(names, values)]


def tree(root):
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            print(os.path.relpath(path, root), *describe(path))


def main():
    if sys.argv[1] == "--tree":
        return tree(sys.argv[2])
    root, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.umask(0o022)
    stressor = Stressor(root, seed)
    for number in range(count):
        print(number, stressor.step())


main()
