//! The provenance layer: records which process created, read and changed which file, around any driver.
//!
//! [`Recorded`] wraps an open volume and implements the same contract, so that every host uses it without
//! changes. It appends a record after each successful change to segments in the directory
//! `/.obento-prov`, which is hidden. [`Who`] returns the process on whose behalf the current thread works.
//!
//! - `actor` numbers processes; [`obento_driver::history`] identifies them, and encodes open files for another host.
//! - `record` and `block` are the format: records in blocks of 4 KiB, each with a checksum.
//! - `segment` decodes segments. It accepts any bytes.
//! - `log` writes segments, and `log_files` reads those of a log that continues.
//! - `opens` attributes delayed writes to the process that opened the file, and merges them.
//! - `owned` recognises the files of the log.
//! - `recorded` and `changes` implement the contract, and `syncs` joins the syncs of several threads.
//! - `graph` derives versions of files, and which version was made from which.
//! - `compaction` gathers the edges of segments that are removed.
//! - `index` finds the blocks of a segment with records of a file or process. `index_builder` derives an index, and `indexes`
//!   writes the indexes.
//! - `indexed` reads a log through its indexes: `places` finds blocks in the indexes, `presence` selects the segments for many
//!   questions, and `parsed` selects the records of a block. `lineage` derives versions from the records that an answer needs.
//! - `writer` encodes whole segments: compacted edges, and the sources of a new volume.
//! - `directories` builds paths, and `reader` finds the segments of a volume.
//!
//! Invariant: a record is on stable storage before the sync that covers its change returns. A failure to
//! record never fails an operation: the lost records are counted instead.
//! Locking: the log has one lock. No thread holds it while it calls the wrapped volume on behalf of a user, and no
//! driver calls this crate. It is therefore the innermost lock of a host.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod actor;
mod block;
mod changes;
mod compaction;
mod directories;
mod files;
mod graph;
mod index;
mod index_builder;
mod indexed;
mod indexes;
mod kinds;
mod lineage;
mod log;
mod log_files;
mod names;
mod opens;
mod owned;
mod parsed;
mod places;
mod presence;
mod reader;
mod record;
mod recorded;
mod segment;
mod syncs;
mod writer;

pub use actor::ActorId;
pub use block::BLOCK;
pub use directories::{Directories, EntryPath, Location, entry_path};
pub use graph::{Activity, Edge, Graph, Removal, Version};
pub use index::{IndexDefect, Summary};
pub use indexed::{IndexedLog, NameSink, Performer, each_name_change};
pub use lineage::Lineage;
pub use log::{LogOptions, LogStatus, WriteSource};
pub use log_files::LogFiles;
pub use names::SegmentNames;
pub use obento_driver::history::{Actor, FixedWho, OpenFile, OpenMode, OpenRecorder, Transferred, Who};
pub use reader::Segments;
pub use record::{AttrMask, FileId, Mark, Record};
pub use recorded::{DIRECTORY, Recorded};
pub use segment::{Damage, Entries, Entry, Header, segment_name, segment_number};
pub use writer::{BuiltLog, BuiltName};
