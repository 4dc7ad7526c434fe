//! The bytes of the sources, for drivers that compress them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use obento_base::Error;
use obento_driver::FileBytes;
use obento_driver::tree::{Body, DataId};
use obento_host::HostError;
use obento_host::build::{Reader, SuppliedFile};

use super::source::Read;

/// Reads the files of the sources one after another.
pub(super) struct SourceBytes<'a> {
    /// The length of each file when the tree was read.
    sizes: BTreeMap<u32, u64>,
    state: Mutex<ReadingState<'a>>,
}

struct ReadingState<'a> {
    reader: Reader<'a>,
    /// The file that was read last.
    open: Option<(DataId, SuppliedFile<'a>)>,
    failure: Option<HostError>,
    /// The number of bytes that were read.
    bytes: u64,
}

impl<'a> SourceBytes<'a> {
    /// Creates a reader of all files of `read`.
    pub(super) fn of(read: &'a Read) -> Self {
        let sizes = read.tree.nodes().filter_map(|(_, node)| match node.body {
            Body::File { size, data: Some(data) } => Some((data.0, size)),
            _ => None,
        });
        let state = ReadingState { reader: Reader::new(&read.supply), open: None, failure: None, bytes: 0 };
        Self { sizes: sizes.collect(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, ReadingState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes that were read.
    pub(super) fn len(&self) -> u64 {
        self.state().bytes
    }

    /// Returns the first error of a source, if there was one.
    pub(super) fn failure(&self) -> Option<HostError> {
        self.state().failure.take()
    }
}

impl ReadingState<'_> {
    fn read(&mut self, data: DataId, size: u64, offset: u64, buf: &mut [u8]) -> Result<(), HostError> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != data) {
            self.open = None;
            self.open = Some((data, self.reader.open(data.0, size)?));
        }
        self.bytes += buf.len() as u64;
        self.open.as_ref().map_or(Ok(()), |(_, file)| file.read_exact_at(buf, offset))
    }
}

impl FileBytes for SourceBytes<'_> {
    fn read_at(&self, data: DataId, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        let size = self.sizes.get(&data.0).copied().unwrap_or(0);
        let mut state = self.state();
        state.read(data, size, offset, buf).map_err(|failure| {
            state.failure.get_or_insert(failure);
            Error::Invalid
        })
    }
}
