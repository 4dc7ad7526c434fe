//! The reasons why a change of a table is refused.

use std::fmt;

use obento_base::Error;

use crate::partition::Scheme;

/// The reason why a change of a table is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EditError {
    /// The table is too damaged to be changed.
    #[error("the partition table is damaged, and no undamaged copy exists")]
    Damaged,
    /// The chain of logical partitions is damaged.
    #[error("the list of logical partitions is damaged")]
    DamagedChain,
    /// No entry has this number.
    #[error("partition {number} does not exist")]
    NoSuchPartition {
        /// The number.
        number: u32,
    },
    /// The number is in use.
    #[error("partition {number} exists already")]
    NumberInUse {
        /// The number.
        number: u32,
    },
    /// The table has no entry with this number.
    #[error("the number {number} is not possible for a partition of this {scheme}")]
    BadNumber {
        /// The kind of table.
        scheme: Scheme,
        /// The number.
        number: u32,
    },
    /// A logical partition must have the next number.
    #[error("the number {number} is not possible: the next logical partition has the number {next}")]
    NotNext {
        /// The number.
        number: u32,
        /// The number of the next logical partition.
        next: u32,
    },
    /// All entries are in use.
    #[error("all {count} entries of the partition table are in use")]
    Full {
        /// The number of entries.
        count: usize,
    },
    /// The range overlaps another partition.
    #[error("the partition would overlap partition {number}")]
    Overlaps {
        /// The other partition.
        number: u32,
    },
    /// The range is not completely within the usable bytes.
    #[error("{}", outside(*start, *end, *first, *last))]
    OutOfRange {
        /// First byte of the range.
        start: u64,
        /// The byte after the range.
        end: u64,
        /// First usable byte.
        first: u64,
        /// The byte after the last usable one.
        last: u64,
    },
    /// A partition ends after the usable bytes of a disk that was shortened.
    #[error("{}", past_end(*number, *end, needed.saturating_sub(*end)))]
    PastEnd {
        /// The partition.
        number: u32,
        /// The byte after the partition.
        end: u64,
        /// The minimum length of the disk.
        needed: u64,
    },
    /// A position is not a multiple of the sector size, or the range is empty.
    #[error("the start and the size must be multiples of {sector_size} bytes, and the size must not be 0")]
    Unaligned {
        /// The sector size in bytes.
        sector_size: u64,
    },
    /// No gap is large enough.
    #[error("{}", no_space(*largest))]
    NoSpace {
        /// Bytes of the largest gap.
        largest: u64,
    },
    /// The name is longer than the 36 UTF-16 units that a GPT stores.
    #[error("the name has {units} UTF-16 units, but at most 36 are allowed")]
    LongName {
        /// Units of the name.
        units: usize,
    },
    /// An MBR does not store this property.
    #[error("a partition of an MBR has no {what}")]
    NotInMbr {
        /// The property.
        what: &'static str,
    },
    /// The type belongs to the other kind of table.
    #[error("this type does not exist for {scheme}")]
    WrongType {
        /// The kind of table.
        scheme: Scheme,
    },
    /// The partition is extended, and the change would lose logical partitions.
    #[error("the extended partition contains partition {number}")]
    ContainerInUse {
        /// A logical partition.
        number: u32,
    },
    /// An extended partition cannot get another type, and another partition cannot become extended.
    #[error(
        "the type of an extended partition cannot change, and no other partition can become an extended partition"
    )]
    Container,
    /// The table already has an extended partition.
    #[error("the MBR has an extended partition already")]
    SecondContainer,
    /// Another partition has the same UUID.
    #[error("partition {number} has this UUID already")]
    DuplicateUuid {
        /// The other partition.
        number: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
}

/// Describes the lack of a gap if the largest gap has `largest` bytes.
fn no_space(largest: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match largest {
        0 => f.write_str("the disk has no free space for a partition"),
        _ => write!(f, "no gap between partitions is large enough: the largest gap has {largest} bytes"),
    })
}

/// Describes the partition `number`, which ends at `end` and leaves less than `copy` bytes for the second copy of a
/// GPT.
fn past_end(number: u32, end: u64, copy: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        write!(f, "partition {number} ends at byte {end}, ")?;
        match copy {
            0 => f.write_str("which is after the end of the disk"),
            _ => write!(f, "and the backup GPT needs {copy} bytes after it"),
        }
    })
}

/// Describes a range from `start` to `end` that is not between `first` and `last`.
fn outside(start: u64, end: u64, first: u64, last: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match start < first {
        true => write!(
            f,
            "the partition would start at byte {start}, but the disk has its partition table before byte {first}"
        ),
        false => write!(
            f,
            "the partition would end at byte {end}, but the usable space of the disk ends at byte {last}"
        ),
    })
}
