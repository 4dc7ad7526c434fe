//! The messages.
//!
//! Inodes are identified by number. The guest holds the inodes to which a [`Step`] led, until the host releases them. A
//! step consists of a directory that the guest holds and a name in this directory. Errors are Linux's numbers.

use crate::codec::{Wire, choice, record};

record! {
    /// A time: seconds since 1970 and nanoseconds.
    Moment {
        /// Seconds.
        seconds: i64,
        /// Nanoseconds, below 1,000,000,000.
        nanos: u32,
    }
}

record! {
    /// The attributes of an inode, as `statx(2)` returns them.
    Stat {
        /// Inode number, unique within the volume.
        ino: u64,
        /// Kind and permission bits, as `st_mode`.
        mode: u16,
        /// Number of names.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Major number of a device node.
        major: u32,
        /// Its minor number.
        minor: u32,
        /// Bytes.
        size: u64,
        /// Allocated space, in units of 512 bytes.
        blocks: u64,
        /// Preferred size of an I/O.
        block_size: u32,
        /// `stx_attributes`, which are the flags of `FS_IOC_GETFLAGS`.
        flags: u32,
        /// Last access.
        atime: Moment,
        /// Last change of data.
        mtime: Moment,
        /// Last change.
        ctime: Moment,
        /// Creation, if the format stores it.
        btime: Option<Moment>,
    }
}

record! {
    /// A name in a directory, and its inode.
    Entry {
        /// The name.
        name: Vec<u8>,
        /// The position after the entry, for the next request.
        next: u64,
        /// The attributes of the inode; invalid if `error` is not 0.
        stat: Option<Stat>,
        /// The error of reading the attributes, or 0.
        errno: u32,
    }
}

record! {
    /// A step to an inode: its entry in a directory.
    Step {
        /// A directory that the guest holds.
        dir: u64,
        /// The name in it.
        name: Vec<u8>,
        /// The expected inode.
        ino: u64,
    }
}

record! {
    /// A name in a directory.
    Place {
        /// A directory that the guest holds.
        dir: u64,
        /// The name in it.
        name: Vec<u8>,
    }
}

record! {
    /// A requested part of a file.
    Piece {
        /// The file.
        ino: u64,
        /// The entry of a regular file that need not be held.
        place: Option<Place>,
        /// The first byte.
        offset: u64,
        /// The most bytes.
        len: u32,
    }
}

record! {
    /// The number of bytes of a [`Piece`], or an error. In the data, a piece begins after the full requested length of the
    /// preceding pieces.
    Fill {
        /// Bytes.
        len: u32,
        /// An error, or 0.
        errno: u32,
    }
}

record! {
    /// A run of data, or of zeros that take no space.
    Run {
        /// Its end; it starts at the end of the preceding run.
        end: u64,
        /// Whether it is data.
        is_data: bool,
        /// Its location on the disk, if requested and if the disk contains the same bytes.
        place: Option<u64>,
    }
}

record! {
    /// A new inode.
    Node {
        /// Kind and permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Major number of a device node.
        major: u32,
        /// Its minor number.
        minor: u32,
        /// Target of a symbolic link.
        target: Vec<u8>,
    }
}

record! {
    /// New times; `None` leaves a time unchanged.
    Times {
        /// Last access.
        atime: Option<Moment>,
        /// Last change of data.
        mtime: Option<Moment>,
    }
}

record! {
    /// A new regular file with its contents.
    NewFile {
        /// The name.
        name: Vec<u8>,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Its times.
        times: Times,
        /// The number of its bytes in the data.
        len: u32,
    }
}

record! {
    /// The usage of a volume, as `statfs(2)` returns it.
    Usage {
        /// Unit of the counts in bytes.
        block_size: u32,
        /// Blocks.
        blocks: u64,
        /// Free blocks.
        free: u64,
        /// Free blocks for any user.
        available: u64,
        /// Inodes, or 0.
        inodes: u64,
        /// Free inodes.
        free_inodes: u64,
        /// Longest name in bytes.
        name_max: u32,
    }
}

choice! {
    /// The change of the allocation of a range: the modes of `fallocate(2)`.
    Space {
        /// Allocates space.
        0 Allocate {
            /// Whether the size grows.
            grow: bool,
        },
        /// Creates a hole.
        1 Punch {},
        /// Writes zeros; the space stays allocated.
        2 Zero {
            /// Whether the size grows.
            grow: bool,
        },
    }
}

choice! {
    /// A move of the data after a range.
    Shift {
        /// The range is removed.
        0 Collapse {},
        /// A hole is inserted.
        1 Insert {},
    }
}

choice! {
    /// A request of the host.
    Request {
        /// Mount the disk. Answers `Mounted`.
        0 Mount {
            /// File system type of the kernel.
            kind: Vec<u8>,
            /// Options of the type.
            options: Vec<u8>,
            /// Whether the mount is read-only.
            read_only: bool,
        },
        /// The entries of a directory from `from` on, as many as fit. Answers `Entries`.
        1 List {
            /// The directory.
            dir: u64,
            /// The position to continue at; 0 at the start.
            from: u64,
        },
        /// Looks up a name, and holds the inode. Answers `Node`.
        2 Look {
            /// The directory.
            dir: u64,
            /// The name.
            name: Vec<u8>,
        },
        /// Attributes. Answers `Node`.
        3 Stat {
            /// The inode.
            ino: u64,
        },
        /// The target of a symbolic link. Answers `Bytes`.
        4 ReadLink {
            /// The inode.
            ino: u64,
        },
        /// Reads bytes of files into the data. Answers `Filled`.
        5 Read {
            /// The parts to read; in total no more than the data holds.
            pieces: Vec<Piece>,
        },
        /// The data and holes of a file. Answers `Runs`.
        6 Map {
            /// The file.
            ino: u64,
            /// The first byte.
            offset: u64,
            /// The byte after the last one.
            end: u64,
            /// Whether to report locations on the disk.
            places: bool,
        },
        /// The usage of the volume. Answers `Usage`.
        7 StatFs {},
        /// The value of an extended attribute. Answers `Bytes`.
        8 GetXattr {
            /// The inode.
            ino: u64,
            /// Its name.
            name: Vec<u8>,
        },
        /// The names of all extended attributes, each with a final NUL. Returns `Bytes`.
        9 ListXattrs {
            /// The inode.
            ino: u64,
        },
        /// Sets an extended attribute. Answers `Done`.
        10 SetXattr {
            /// The inode.
            ino: u64,
            /// Its name.
            name: Vec<u8>,
            /// The value.
            value: Vec<u8>,
            /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
            flags: u32,
        },
        /// Removes an extended attribute. Answers `Done`.
        11 RemoveXattr {
            /// The inode.
            ino: u64,
            /// Its name.
            name: Vec<u8>,
        },
        /// Creates an inode with a name, and holds it. Answers `Node`.
        12 Make {
            /// The directory.
            dir: u64,
            /// The name.
            name: Vec<u8>,
            /// Its attributes.
            node: Node,
        },
        /// Adds a name for an inode. Answers `Node`.
        13 Link {
            /// The inode.
            ino: u64,
            /// The directory.
            dir: u64,
            /// The name.
            name: Vec<u8>,
        },
        /// Removes a name. Answers `Done`.
        14 Unlink {
            /// The directory.
            dir: u64,
            /// The name.
            name: Vec<u8>,
            /// Whether it must be an empty directory.
            is_dir: bool,
        },
        /// Renames. Answers `Done`.
        15 Rename {
            /// The directory.
            from: u64,
            /// The name.
            name: Vec<u8>,
            /// The new directory.
            to: u64,
            /// The new name.
            new_name: Vec<u8>,
            /// Flags of `renameat2(2)`.
            flags: u32,
        },
        /// Changes attributes. Answers `Node`.
        16 SetAttr {
            /// The inode.
            ino: u64,
            /// Permission bits.
            mode: Option<u16>,
            /// Owner.
            uid: Option<u32>,
            /// Group.
            gid: Option<u32>,
            /// Times.
            times: Times,
            /// Flags of `FS_IOC_SETFLAGS`.
            flags: Option<u32>,
        },
        /// Sets the size. Answers `Done`.
        17 Truncate {
            /// The file.
            ino: u64,
            /// The size.
            size: u64,
        },
        /// Writes the data. Answers `Count`.
        18 Write {
            /// The file.
            ino: u64,
            /// The first byte.
            offset: u64,
            /// The number of bytes in the data.
            len: u32,
        },
        /// Changes the allocation of a range. Answers `Done`.
        19 Reserve {
            /// The file.
            ino: u64,
            /// The first byte.
            offset: u64,
            /// The number of bytes.
            len: u64,
            /// The change.
            space: Space,
        },
        /// Moves the data after a range. Answers `Done`.
        20 Move {
            /// The file.
            ino: u64,
            /// The first byte.
            offset: u64,
            /// The number of bytes to move by.
            len: u64,
            /// The direction.
            shift: Shift,
        },
        /// Writes all changes to the disk. Answers `Done`.
        21 Sync {},
        /// Writes all changes to the disk and ends changes. Answers `Done`.
        22 Seal {},
        /// Discards free space, in runs of at least a given length. Answers `Count`.
        23 Trim {
            /// The smallest length of a run in bytes.
            min_len: u64,
        },
        /// Creates regular files from the data. An incomplete file is removed. Answers `Made`.
        24 MakeFiles {
            /// The directory.
            dir: u64,
            /// The files; their bytes are concatenated in the data.
            files: Vec<NewFile>,
        },
        /// The data of a file, its locations on the disk, and the checksums that verify it. Answers `Proved`.
        25 Prove {
            /// The file.
            ino: u64,
            /// The first byte: a multiple of [`PROVED`](crate::PROVED).
            offset: u64,
            /// The byte after the last one.
            end: u64,
        },
        /// Grows the volume into its disk, which is longer than the volume. Answers `Done`.
        26 Grow {
            /// The new length of the volume in bytes.
            len: u64,
        },
    }
}

choice! {
    /// An answer of the guest.
    Answer {
        /// The request failed.
        0 Failed {
            /// The error number.
            errno: u32,
        },
        /// The request succeeded.
        1 Done {},
        /// The volume is mounted.
        2 Mounted {
            /// Its root.
            root: Stat,
            /// Its usage.
            usage: Usage,
            /// The largest size of a file.
            file_size_max: u64,
        },
        /// An inode.
        3 Node {
            /// Its attributes.
            stat: Stat,
        },
        /// Names.
        4 Entries {
            /// The entries.
            entries: Vec<Entry>,
            /// Whether these are the last entries.
            is_end: bool,
        },
        /// Bytes.
        5 Bytes {
            /// The bytes.
            bytes: Vec<u8>,
        },
        /// Pieces of files.
        6 Filled {
            /// The result for each piece.
            fills: Vec<Fill>,
        },
        /// Data and holes.
        7 Runs {
            /// The runs; the last may end before the requested range.
            runs: Vec<Run>,
        },
        /// The usage of the volume.
        8 Usage {
            /// The usage.
            usage: Usage,
        },
        /// A number.
        9 Count {
            /// The number.
            count: u64,
        },
        /// The results of creating files.
        10 Made {
            /// An error number for each file, or 0.
            errnos: Vec<u32>,
        },
        /// Data and holes, and the checksums of the data.
        11 Proved {
            /// The runs; the last may end before the requested range.
            runs: Vec<Run>,
            /// The CRC-32C of each [`PROVED`](crate::PROVED) bytes of the runs with a location, in order. The last checksum
            /// of a file covers as many bytes.
            sums: Vec<u32>,
        },
    }
}

record! {
    /// A request with its preparation.
    Envelope {
        /// Inodes to release.
        forget: Vec<u64>,
        /// Steps to the inodes of the request, each from a directory that is held at that point.
        steps: Vec<Step>,
        /// The request; absent if only inodes are released.
        request: Option<Request>,
    }
}
