//! `i_flags`, with the names of Linux `fs/ext4/ext4.h` without `EXT4_` and `_FL`.
#![expect(missing_docs, reason = "the names are the specification's")]

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct InodeFlags: u32 {
        const SECRM = 0x1;
        const UNRM = 0x2;
        const COMPR = 0x4;
        const SYNC = 0x8;
        const IMMUTABLE = 0x10;
        const APPEND = 0x20;
        const NODUMP = 0x40;
        const NOATIME = 0x80;
        const DIRTY = 0x100;
        const COMPRBLK = 0x200;
        const NOCOMPR = 0x400;
        const ENCRYPT = 0x800;
        const INDEX = 0x1000;
        const IMAGIC = 0x2000;
        const JOURNAL_DATA = 0x4000;
        const NOTAIL = 0x8000;
        const DIRSYNC = 0x10000;
        const TOPDIR = 0x20000;
        const HUGE_FILE = 0x40000;
        const EXTENTS = 0x80000;
        const VERITY = 0x100000;
        const EA_INODE = 0x200000;
        const DAX = 0x2000000;
        const INLINE_DATA = 0x10000000;
        const PROJINHERIT = 0x20000000;
        const CASEFOLD = 0x40000000;
        const RESERVED = 0x80000000;
        const _ = !0;
    }
}
