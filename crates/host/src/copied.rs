//! The entries that were copied from a directory tree of the host, so that only these are removed.

use std::collections::HashMap;
use std::sync::Arc;

use obento_base::{Attr, FileKind};
use parking_lot::Mutex;
use rustix::fs::{FileType, Stat};

use crate::FileId;

/// The identity and state of each copied entry. Clones share their entries.
#[derive(Clone, Debug, Default)]
pub struct CopiedEntries(Arc<Mutex<HashMap<FileId, CopiedState>>>);

/// The state of an entry when it was opened. A hard link that is removed changes none of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopiedState {
    /// Its contents are entries of their own.
    Directory,
    Other {
        size: u64,
        mtime: (i64, u32),
    },
}

impl CopiedEntries {
    /// Records an entry with the attributes that it had before its bytes were read.
    pub fn add(&self, id: FileId, attr: &Attr) {
        let mtime = (attr.mtime.secs(), attr.mtime.nanos());
        let state = match attr.kind {
            FileKind::Directory => CopiedState::Directory,
            _ => CopiedState::Other { size: attr.size, mtime },
        };
        self.0.lock().insert(id, state);
    }

    /// Returns whether `stat` is that of an entry that was copied, and that has not changed since.
    pub(crate) fn contains(&self, stat: &Stat) -> bool {
        let mtime = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
        let state = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => CopiedState::Directory,
            _ => CopiedState::Other { size: u64::try_from(stat.st_size).unwrap_or(0), mtime },
        };
        self.0.lock().get(&FileId::of(stat)) == Some(&state)
    }
}
