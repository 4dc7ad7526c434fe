//! The differences of the sweep, each with its reason.

/// Lines that differ.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Parts of which the section and the arguments contain one.
    pub calls: &'static [&'static str],
    /// A part of the result of the kernel's ext4.
    pub kernel: &'static str,
    /// A part of the result of obento.
    pub obento: &'static str,
    /// The place in Linux that causes the difference, or the reason for it.
    #[expect(dead_code, reason = "for the reader, and shown with a row that is no longer needed")]
    pub reason: &'static str,
}

const fn row(
    calls: &'static [&'static str],
    kernel: &'static str,
    obento: &'static str,
    reason: &'static str,
) -> Difference {
    Difference { calls, kernel, obento, reason }
}

pub const DIFFERENCES: [Difference; 20] = [
    row(
        &["modes: allocate", "modes: punch", "modes: copy"],
        "",
        "",
        "FALLOCATE and COPY_FILE_RANGE do not show whether the process has CAP_FSETID or is in the group",
    ),
    row(
        &[" 2767 of 0 by 1002, after"],
        "'0o767'",
        "'0o2767'",
        "setattr_should_drop_sgid in fs/attr.c: requests do not contain all groups of the process",
    ),
    row(
        &["lists: too many"],
        "ENOSPC",
        "E2BIG",
        "fuse_set_acl in fs/fuse/acl.c: a list has at most one page",
    ),
    row(
        &["times: file "],
        "",
        "",
        "fuse_get_cache_mask in fs/fuse/inode.c: with the write-back cache, the kernel shows its own times",
    ),
    row(
        &["changes: same size"],
        "True",
        "False",
        "fuse_do_setattr in fs/fuse/dir.c: only if the size differs",
    ),
    row(&["changes: flags"], "True", "False", "fuse_get_cache_mask in fs/fuse/inode.c"),
    row(
        &["space: 8 ", "space: 32 ", "space: 64 ", "space: 128 "],
        "",
        "",
        "fuse_file_fallocate in fs/fuse/file.c: EOPNOTSUPP for these modes",
    ),
    row(
        &["space: 16 ", "space: 17 "],
        "",
        "",
        "mapping_seek_hole_data in mm/filemap.c: ext4 reports cached pages of unwritten space as data",
    ),
    row(
        &["space: seek "],
        "EINVAL",
        "",
        "fuse_fill_super_common in fs/fuse/inode.c: s_maxbytes is MAX_LFS_FILESIZE",
    ),
    row(&["sizes: write at", "sizes: sync after", "sizes: size after"], "", "", "the same line"),
    row(&["opens: read with flags 8"], "2", "ENOTSUP", "RWF_NOWAIT: files of FUSE have no FMODE_NOWAIT"),
    row(&["with flags 128"], "2", "ENOTSUP", "RWF_DONTCACHE: FUSE has no FOP_DONTCACHE"),
    row(
        &["flags: file bit", "flags: dir bit"],
        "None",
        "ENOTSUP",
        "flags that ext4 accepts and does not store are refused",
    ),
    row(&["bit 22, after"], "0x480000", "0x80000", "EXT4_EOFBLOCKS_FL, which has no meaning in Linux"),
    row(
        &["rmdir", "replace", "unlink"],
        "EPERM",
        "DIR",
        "may_delete in fs/namei.c: the kernel knows the kind of an inode of FUSE, and not its flags",
    ),
    row(
        &["may write"],
        "False",
        "True",
        "inode_permission in fs/namei.c: the kernel does not know the flags of an inode of FUSE",
    ),
    row(
        &["protection: 80010 file open to", "protection: 80020 file open to write"],
        "EPERM",
        "None",
        "the kernel does not send OPEN to the server",
    ),
    row(
        &["protection: 80020 file write to an open file", "protection: 80020 file sync"],
        "",
        "",
        "the gate does not learn whether a write appends",
    ),
    row(
        &["information: statx"],
        "0x73f",
        "0x7ff",
        "fill_mg_cmtime in fs/stat.c: ext4 omits times that were not requested, FUSE does not",
    ),
    row(&["copies: ioctl identity"], "True", "ENOTTY", "ioctl_getfsuuid in fs/ioctl.c: FUSE sets no s_uuid"),
];
