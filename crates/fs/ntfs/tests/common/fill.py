"""Creates empty files on an unmounted NTFS volume through libntfs-3g: IMAGE DIRECTORIES FILES-IN-EACH.

A mount needs many times as long.
"""

import ctypes
import stat
import sys

lib = ctypes.CDLL("libntfs-3g.so.89", use_errno=True)
lib.ntfs_mount.restype = ctypes.c_void_p
lib.ntfs_mount.argtypes = [ctypes.c_char_p, ctypes.c_ulong]
lib.ntfs_pathname_to_inode.restype = ctypes.c_void_p
lib.ntfs_pathname_to_inode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
lib.ntfs_create.restype = ctypes.c_void_p
lib.ntfs_create.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint8, ctypes.c_uint32]
lib.ntfs_inode_close.argtypes = [ctypes.c_void_p]
lib.ntfs_umount.argtypes = [ctypes.c_void_p, ctypes.c_int]


def expect(result, what):
    """Returns a pointer, and exits if it is none."""
    if not result:
        sys.exit(f"{what}: error {ctypes.get_errno()}")
    return result


def create(parent, name, kind):
    return expect(lib.ntfs_create(parent, 0, name.encode("utf-16-le"), len(name), kind), name)


image, directories, files = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
volume = expect(lib.ntfs_mount(image, 0), "mount")
root = expect(lib.ntfs_pathname_to_inode(volume, None, b"/"), "root")
for directory in range(directories):
    parent = create(root, f"directory {directory}", stat.S_IFDIR)
    for file in range(files):
        lib.ntfs_inode_close(create(parent, f"{file:04}.txt", stat.S_IFREG))
    lib.ntfs_inode_close(parent)
lib.ntfs_inode_close(root)
if lib.ntfs_umount(volume, 0):
    sys.exit("cannot unmount")
