//! The reasons why a change of a table is refused.

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
    #[error("no {scheme} partition can have the number {number} here")]
    BadNumber {
        /// The kind of table.
        scheme: Scheme,
        /// The number.
        number: u32,
    },
    /// All entries are in use.
    #[error("all {count} entries of the partition table are in use")]
    Full {
        /// The number of entries.
        count: usize,
    },
    /// The range overlaps another partition.
    #[error("the bytes overlap partition {number}")]
    Overlaps {
        /// The other partition.
        number: u32,
    },
    /// The range is not completely within the usable bytes.
    #[error("the bytes {start} to {end} are not all between {first} and {last}, the usable part of the disk")]
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
    /// A position is not a multiple of the sector size, or the range is empty.
    #[error("a partition begins and ends at a multiple of {sector_size} bytes, and is not empty")]
    Unaligned {
        /// The sector size in bytes.
        sector_size: u64,
    },
    /// No gap is large enough.
    #[error("no gap between partitions is large enough: the largest one has {largest} bytes")]
    NoSpace {
        /// Bytes of the largest gap.
        largest: u64,
    },
    /// A GPT stores 36 UTF-16 units.
    #[error("the name has {units} UTF-16 units, more than 36")]
    LongName {
        /// Units of the name.
        units: usize,
    },
    /// An MBR does not store this property.
    #[error("an MBR has no {what} for a partition")]
    NotInMbr {
        /// The property.
        what: &'static str,
    },
    /// The type belongs to the other kind of table.
    #[error("this type is not for {scheme}")]
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
    /// A partition cannot become or stop being an extended partition.
    #[error("the type of an extended partition cannot change, and no other partition can become one")]
    Container,
    /// The table has an extended partition.
    #[error("the MBR has an extended partition already")]
    SecondContainer,
    /// Another partition has the same UUID.
    #[error("partition {number} has this UUID")]
    DuplicateUuid {
        /// The other partition.
        number: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
}
