//! The history of a volume: the option `provenance` wraps the driver in a layer that records changes with their process.
//!
//! The layer learns the process of a change from the kernel. It learns what is opened, read and written from C, since
//! Linux keeps open files and the page cache. C adds up what is read through an open file, so that a read costs no call.

use alloc::sync::Arc;

use obento_base::{Ino, Result};
use obento_driver::FileSystem;
use obento_prov::{Actor, LogOptions, OpenMode, OpenRecorder as _, Recorded, Transferred, Who, WriteSource};

use crate::report::KernelClock;
use crate::volume::Volume;

unsafe extern "C" {
    /// Fills in the process of the current thread. Returns false if the thread belongs to the kernel.
    fn ob_who(process: *mut Process) -> bool;
}

/// A process.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Process {
    start: u64,
    pid: u32,
    uid: u32,
    gid: u32,
    comm: [u8; 16],
    pad: u32,
}

impl Process {
    fn actor(&self) -> Actor {
        Actor { pid: self.pid, start: self.start, uid: self.uid, gid: self.gid, comm: self.comm }
    }
}

/// Bytes that were read, and the range that contains them.
#[repr(C)]
pub struct Read {
    bytes: u64,
    start: u64,
    end: u64,
}

/// The processes of the kernel.
struct Processes;

impl Who for Processes {
    fn now(&self) -> Option<Actor> {
        let mut process = Process::default();
        // SAFETY: the reference is valid for writing.
        unsafe { ob_who(&mut process) }.then(|| process.actor())
    }
}

/// Wraps `fs` in the layer that records changes.
#[inline(never)]
pub(crate) fn record(
    fs: Arc<dyn FileSystem>,
    boot: [u8; 16],
    shown: bool,
    adopts: bool,
) -> Result<Arc<Recorded>> {
    let options = LogOptions { boot, shown, adopts, writes: WriteSource::Host, ..LogOptions::default() };
    Recorded::open(fs, Arc::new(Processes), Arc::new(KernelClock), options)
}

/// The bits of the mode of an open file.
const READS: u32 = 1;
const WRITES: u32 = 2;

/// Records that a process opened a regular file.
#[unsafe(no_mangle)]
pub extern "C" fn ob_opened(volume: &Volume, ino: u64, process: &Process, mode: u32) {
    if let Some(recorded) = &volume.recorded {
        let mode = OpenMode { read: mode & READS != 0, write: mode & WRITES != 0 };
        recorded.opened(process.actor(), Ino(ino), mode);
    }
}

/// Records that a process closed a regular file, and what it read.
#[unsafe(no_mangle)]
pub extern "C" fn ob_closed(volume: &Volume, ino: u64, process: &Process, read: &Read) {
    if let Some(recorded) = &volume.recorded {
        let (actor, &Read { bytes, start, end }) = (process.actor(), read);
        recorded.add_reads(actor, Ino(ino), &Transferred { bytes, start, end });
        recorded.closed(actor, Ino(ino));
    }
}

/// Records that a range of a file was written through a file that a process opened.
#[unsafe(no_mangle)]
pub extern "C" fn ob_wrote(volume: &Volume, ino: u64, process: &Process, start: u64, end: u64) {
    if let Some(recorded) = &volume.recorded {
        recorded.wrote(Some(process.actor()), Ino(ino), &(start..end));
    }
}
