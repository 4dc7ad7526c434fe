//! Open files, for the recorder of a volume's history. Without a recorder, OPEN is not supported.
//!
//! The kernel sends WRITE for pages of its cache, READ for read-ahead, and RELEASE without a process. Such a request
//! counts for the process that opened the file. If several processes have a file open for writing, the kernel chooses
//! one of their handles for the pages of all.
//!
//! The reply to the first OPEN of a small file follows its data, so that reading the file needs no request. Each open
//! would otherwise be a second request for which a program waits.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::{FileKind, Ino};
use obento_driver::history::{Actor, OpenMode, OpenRecorder};
use obento_vfs::Node;
use parking_lot::Mutex;

use super::{Reply, Server};
use crate::handover::{HandleState, HistoryState};
use crate::nodes::FirstUse;
use crate::processes::{Acting, Processes};

/// The recorder, and the open files.
pub(super) struct Recorder {
    recorded: Arc<dyn OpenRecorder>,
    processes: Arc<Processes>,
    open: Mutex<HashMap<u64, Handle>>,
    next: AtomicU64,
}

/// An open file.
#[derive(Clone, Copy)]
struct Handle {
    actor: Actor,
    ino: Ino,
}

/// The largest file whose data is sent with the reply to OPEN.
const SMALL: u64 = 64 << 10;

/// A reply to OPEN.
pub(crate) struct Opened<'s> {
    /// The number of the open file.
    pub(crate) fh: u64,
    /// Data to send before the reply.
    pub(crate) data: Option<FileData<'s>>,
}

/// The data of a file that the kernel does not cache, until the kernel has received it.
pub(crate) struct FileData<'s> {
    /// The size of the file.
    pub(crate) size: u32,
    _first: FirstUse<'s>,
}

/// The sender of a request.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Recorder {
    fn handle(&self, fh: u64) -> Option<Handle> {
        self.open.lock().get(&fh).copied()
    }
}

impl Server {
    /// Reports open files, reads and writes to `recorded`, the layer that records the history of the volume.
    /// `processes` is the [`Who`](obento_driver::history::Who) of that layer.
    #[must_use]
    pub fn with_recorder(mut self, recorded: Arc<dyn OpenRecorder>, processes: Arc<Processes>) -> Self {
        let (open, next) = (Mutex::default(), AtomicU64::new(1));
        self.recorder = Some(Recorder { recorded, processes, open, next });
        self
    }

    /// Returns the open files, for a server that takes the mount.
    pub(crate) fn export_history(&self) -> Option<HistoryState> {
        let recorder = self.recorder.as_ref()?;
        let open = recorder.open.lock();
        let handles = open.iter().map(|(&number, &Handle { actor, ino })| HandleState { number, actor, ino });
        Some(HistoryState {
            files: recorder.recorded.open_files(),
            handles: handles.collect(),
            next: recorder.next.load(Ordering::Relaxed),
        })
    }

    /// Continues with the open files of the server that passed the mount on.
    pub(crate) fn import_history(&self, history: &HistoryState) {
        let Some(recorder) = &self.recorder else { return };
        recorder.recorded.adopt_open_files(history.files.clone());
        let open = |&HandleState { number, actor, ino }: &HandleState| (number, Handle { actor, ino });
        recorder.open.lock().extend(history.handles.iter().map(open));
        recorder.next.store(history.next, Ordering::Relaxed);
    }

    /// Returns whether the server needs to know which files are open.
    pub(crate) fn records_opens(&self) -> bool {
        self.recorder.is_some()
    }

    /// Works for the sender of a request until the result is dropped.
    pub(crate) fn act_for(&self, sender: Sender) -> Option<Acting> {
        let recorder = self.recorder.as_ref()?;
        Some(Acting::begin(recorder.processes.actor(sender.pid, sender.uid, sender.gid)))
    }

    /// Opens the file `id` with the flags of open(2).
    pub(crate) fn open(&self, id: u64, flags: u32) -> Reply<Opened<'_>> {
        let node = self.node(id)?;
        let ino = node.ino();
        let Some(recorder) = &self.recorder else { return Ok(Opened { fh: 0, data: None }) };
        let first = self.nodes.begin_use(id);
        let actor = Acting::current().unwrap_or_default();
        let access = flags.cast_signed() & libc::O_ACCMODE;
        let mode = OpenMode { read: access != libc::O_WRONLY, write: access != libc::O_RDONLY };
        recorder.recorded.opened(actor, ino, mode);
        let fh = recorder.next.fetch_add(1, Ordering::Relaxed);
        recorder.open.lock().insert(fh, Handle { actor, ino });
        let is_cached = flags.cast_signed() & (libc::O_DIRECT | libc::O_TRUNC) == 0;
        let data = match first {
            Some(first) if mode.read && !mode.write && is_cached => small(first, &node),
            _ => None,
        };
        Ok(Opened { fh, data })
    }

    /// Notes that a process changes the size of `id`.
    pub(crate) fn note_resize(&self, id: u64) {
        if self.recorder.is_some() {
            let _ = self.nodes.begin_use(id);
        }
    }

    /// Closes an open file.
    pub(crate) fn release(&self, fh: u64) {
        let Some(recorder) = &self.recorder else { return };
        let closed = recorder.open.lock().remove(&fh);
        if let Some(Handle { actor, ino }) = closed {
            recorder.recorded.closed(actor, ino);
        }
    }

    /// Notes that `range` was read through the open file `fh`.
    pub(crate) fn note_read(&self, fh: u64, range: &Range<u64>) {
        let Some(recorder) = &self.recorder else { return };
        if let Some(Handle { actor, ino }) = recorder.handle(fh) {
            recorder.recorded.was_read(actor, ino, range);
        }
    }

    /// Notes that `range` of `id` was written through the open file `fh`.
    pub(crate) fn note_written(&self, fh: u64, id: u64, range: &Range<u64>) {
        let Some(recorder) = self.recorder.as_ref().filter(|_| !range.is_empty()) else { return };
        let opener = recorder.handle(fh).map(|handle| handle.actor);
        if let Ok(node) = self.node(id) {
            recorder.recorded.wrote(opener.or_else(Acting::current), node.ino(), range);
        }
    }
}

/// Returns the size of a file whose data is sent with the reply to OPEN.
fn small<'s>(first: FirstUse<'s>, node: &Node) -> Option<FileData<'s>> {
    let attr =
        node.attr().ok().filter(|attr| attr.kind == FileKind::Regular && (1..=SMALL).contains(&attr.size))?;
    Some(FileData { size: u32::try_from(attr.size).ok()?, _first: first })
}
