//! The messages.
//!
//! Inodes are told by number. The guest holds those that it was shown a way to: a [`Step`] names an inode by a directory that it
//! holds and a name, and it holds that one until it is told to forget it. Errors are Linux's numbers.

use crate::codec::{Wire, choice, record};

record! {
    /// A moment: seconds since 1970 and nanoseconds.
    Moment {
        /// Seconds.
        seconds: i64,
        /// Nanoseconds, below 1,000,000,000.
        nanos: u32,
    }
}

record! {
    /// What `statx(2)` says of an inode.
    Stat {
        /// Inode number, unique within the volume.
        ino: u64,
        /// Kind and permission bits, as `st_mode`.
        mode: u16,
        /// Names.
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
        /// Space taken, in units of 512 bytes.
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
        /// Creation, where the format has it.
        btime: Option<Moment>,
    }
}

record! {
    /// A name in a directory, and what it leads to.
    Entry {
        /// The name.
        name: Vec<u8>,
        /// Where the listing goes on after it.
        next: u64,
        /// The inode's attributes, or why there are none.
        stat: Option<Stat>,
        /// Why there are none.
        errno: u32,
    }
}

record! {
    /// The way to an inode: where it is named.
    Step {
        /// A directory that the guest holds.
        dir: u64,
        /// The name there.
        name: Vec<u8>,
        /// The inode it must lead to.
        ino: u64,
    }
}

record! {
    /// A name in a directory.
    Place {
        /// A directory that the guest holds.
        dir: u64,
        /// The name there.
        name: Vec<u8>,
    }
}

record! {
    /// A part of a file that is wanted.
    Piece {
        /// The file.
        ino: u64,
        /// Where it is, of a regular file that need not be held for it.
        place: Option<Place>,
        /// From which byte on.
        offset: u64,
        /// How many bytes at most.
        len: u32,
    }
}

record! {
    /// How many bytes of a [`Piece`] there are, or why none. In the data it begins where those before it would end if each were
    /// as long as was asked for.
    Fill {
        /// Bytes.
        len: u32,
        /// An error, or 0.
        errno: u32,
    }
}

record! {
    /// A run of data or of zeros that take no space.
    Run {
        /// Its end; it starts where the last one ended.
        end: u64,
        /// Whether there is data.
        is_data: bool,
        /// Where on the disk it is, byte for byte, if that was asked for and is so.
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
    /// New times; `None` leaves one.
    Times {
        /// Last access.
        atime: Option<Moment>,
        /// Last change of data.
        mtime: Option<Moment>,
    }
}

record! {
    /// A new regular file, with all that is in it.
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
        /// How many bytes of the data are its.
        len: u32,
    }
}

record! {
    /// What `statfs(2)` says.
    Usage {
        /// Unit of the counts in bytes.
        block_size: u32,
        /// Blocks.
        blocks: u64,
        /// Free ones.
        free: u64,
        /// Those that anybody may take.
        available: u64,
        /// Inodes, or 0.
        inodes: u64,
        /// Free ones.
        free_inodes: u64,
        /// Longest name in bytes.
        name_max: u32,
    }
}

choice! {
    /// What happens to the space of a range: the modes of `fallocate(2)`.
    Space {
        /// Takes space.
        0 Allocate {
            /// Whether the size moves.
            grow: bool,
        },
        /// Makes a hole.
        1 Punch {},
        /// Makes zeros that have space.
        2 Zero {
            /// Whether the size moves.
            grow: bool,
        },
    }
}

choice! {
    /// What moves in a file.
    Shift {
        /// The range is cut out.
        0 Collapse {},
        /// A hole is put in.
        1 Insert {},
    }
}

choice! {
    /// What the host asks for.
    Request {
        /// Mount the disk. Answers `Mounted`.
        0 Mount {
            /// File system type of the kernel.
            kind: Vec<u8>,
            /// Options in the type's own words.
            options: Vec<u8>,
            /// Whether nothing may change.
            read_only: bool,
        },
        /// The entries of a directory from `from` on, as many as fit. Answers `Entries`.
        1 List {
            /// The directory.
            dir: u64,
            /// Where to go on; 0 at the start.
            from: u64,
        },
        /// What a name leads to; it is held. Answers `Node`.
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
        /// Bytes of files into the data. Answers `Filled`.
        5 Read {
            /// What is wanted; in all no more than the data holds.
            pieces: Vec<Piece>,
        },
        /// Where a file has data and where holes. Answers `Runs`.
        6 Map {
            /// The file.
            ino: u64,
            /// From which byte on.
            offset: u64,
            /// To which.
            end: u64,
            /// Whether the places on the disk are asked for.
            places: bool,
        },
        /// How full the volume is. Answers `Usage`.
        7 StatFs {},
        /// The value of an extended attribute. Answers `Bytes`.
        8 GetXattr {
            /// The inode.
            ino: u64,
            /// Its name.
            name: Vec<u8>,
        },
        /// The names of all, each with a final NUL. Answers `Bytes`.
        9 ListXattrs {
            /// The inode.
            ino: u64,
        },
        /// Sets one. Answers `Done`.
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
        /// Removes one. Answers `Done`.
        11 RemoveXattr {
            /// The inode.
            ino: u64,
            /// Its name.
            name: Vec<u8>,
        },
        /// Makes an inode and names it; it is held. Answers `Node`.
        12 Make {
            /// The directory.
            dir: u64,
            /// The name.
            name: Vec<u8>,
            /// What it is.
            node: Node,
        },
        /// Gives an inode another name. Answers `Node`.
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
        /// Moves a name. Answers `Done`.
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
            /// From which byte on.
            offset: u64,
            /// How many bytes of the data.
            len: u32,
        },
        /// Changes what has space. Answers `Done`.
        19 Reserve {
            /// The file.
            ino: u64,
            /// From which byte on.
            offset: u64,
            /// How many bytes.
            len: u64,
            /// How.
            space: Space,
        },
        /// Moves what follows. Answers `Done`.
        20 Move {
            /// The file.
            ino: u64,
            /// From which byte on.
            offset: u64,
            /// By how many bytes.
            len: u64,
            /// Which way.
            shift: Shift,
        },
        /// Brings all changes to the disk. Answers `Done`.
        21 Sync {},
        /// Brings all changes to the disk and lets nothing change any more. Answers `Done`.
        22 Seal {},
        /// Gives back what is free to the disk, in runs of so many bytes. Answers `Count`.
        23 Trim {
            /// Length of a run at least.
            min_len: u64,
        },
        /// Makes regular files of the data. What cannot be made wholly is not there. Answers `Made`.
        24 MakeFiles {
            /// The directory.
            dir: u64,
            /// They; their bytes follow each other in the data.
            files: Vec<NewFile>,
        },
        /// Where a file has data, where on the disk that is, and what proves it. Answers `Proved`.
        25 Prove {
            /// The file.
            ino: u64,
            /// From which byte on: a multiple of [`PROVED`](crate::PROVED).
            offset: u64,
            /// To which.
            end: u64,
        },
    }
}

choice! {
    /// What the guest answers.
    Answer {
        /// It is not done.
        0 Failed {
            /// Why.
            errno: u32,
        },
        /// It is done.
        1 Done {},
        /// The volume is there.
        2 Mounted {
            /// Its root.
            root: Stat,
            /// How full it is.
            usage: Usage,
            /// The most bytes of a file.
            file_size_max: u64,
        },
        /// An inode.
        3 Node {
            /// Its attributes.
            stat: Stat,
        },
        /// Names.
        4 Entries {
            /// They.
            entries: Vec<Entry>,
            /// Whether there are no more.
            is_end: bool,
        },
        /// Bytes.
        5 Bytes {
            /// They.
            bytes: Vec<u8>,
        },
        /// Pieces of files.
        6 Filled {
            /// How much of each.
            fills: Vec<Fill>,
        },
        /// Data and holes.
        7 Runs {
            /// They; the last may end before what was asked for.
            runs: Vec<Run>,
        },
        /// How full the volume is.
        8 Usage {
            /// That.
            usage: Usage,
        },
        /// How much.
        9 Count {
            /// That.
            count: u64,
        },
        /// Files that were made.
        10 Made {
            /// Of each an error, or 0.
            errnos: Vec<u32>,
        },
        /// Data and holes, and what proves the data.
        11 Proved {
            /// They; the last may end before what was asked for.
            runs: Vec<Run>,
            /// Of those that have a place the CRC-32C of each [`PROVED`](crate::PROVED) bytes there, one after the other; the last of a file is of as
            /// many.
            sums: Vec<u32>,
        },
    }
}

record! {
    /// A request and what goes before it.
    Envelope {
        /// Inodes that the host has no more use for.
        forget: Vec<u64>,
        /// Ways to those that the request tells of, each step from one that is held.
        steps: Vec<Step>,
        /// The request, absent where the others are all there is.
        request: Option<Request>,
    }
}
