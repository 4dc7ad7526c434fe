//! The disk of the guest: any [`BlockDevice`], served by a thread of this process.
//!
//! The kernel's own disk for a file of the host, `ubd`, loses flushes (Linux 6.1, arch/um/drivers/ubd_kern.c). A flush
//! has no segment, and the loop over segments does the sync. This disk uses vhost-user: every request arrives, and can
//! be passed to a partition, an overlay or a device that a test records.
//! Source: docs/interop/vhost-user.rst of QEMU; Virtual I/O Device (VIRTIO) 1.2, 5.2; Linux 6.1, drivers/virtio/virtio_uml.c.
//!
//! Trap: `virtio_uml` refuses a back end without both protocol features CONFIG and SLAVE_REQ. The addresses of queues are
//! addresses of the guest.

mod memory;
mod message;
mod queue;
mod request;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use memory::{Memory, MemoryPart};
pub(crate) use message::receive_all;
use message::{Message, request as ask};
use queue::Queue;
pub(crate) use request::SECTOR;

/// Feature bits: VIRTIO 1.2, 5.2.3 and 6; `PROTOCOL` of vhost-user.
mod feature {
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const INDIRECT: u64 = 1 << 28;
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    /// `VHOST_USER_PROTOCOL_F_SLAVE_REQ` and `_CONFIG`.
    pub const PROTOCOL_FEATURES: u64 = 1 << 5 | 1 << 9;
}

/// The most segments of a request: the kernel's queue has space for that many and three more.
const SEGMENTS: u32 = 253;
/// The most sectors of a discard.
const DISCARD_SECTORS: u32 = 1 << 22;

/// The back end of a disk.
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    socket: UnixStream,
    memory: Memory,
    queue: Queue,
    kick: Option<File>,
    call: Option<File>,
    /// The buffer that all bytes pass through.
    buffer: Vec<u8>,
    /// The socket for requests to the kernel. The kernel takes its end for the end of the disk.
    back: Option<OwnedFd>,
    failure: Arc<OnceLock<Error>>,
    watch: Arc<Watch>,
}

/// The state that the thread of the disk shares with its user.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether the disk has stopped.
    is_over: AtomicBool,
    /// Whether the kernel has found its disk.
    was_asked: AtomicBool,
    /// The number of read requests that failed, and the reason of the last failure.
    failed_reads: Mutex<(u64, Option<Error>)>,
    /// The time at which the device began its current request.
    busy_since: Mutex<Option<Instant>>,
}

impl Watch {
    /// Returns the time since the device began its current request.
    pub fn busy_for(&self) -> Option<Duration> {
        self.busy().map(|since| since.elapsed())
    }

    /// Returns whether the kernel has requested anything from the disk.
    pub fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }

    /// Returns the number of read requests that failed so far, and the reason of the last failure.
    pub fn failed_reads(&self) -> (u64, Option<Error>) {
        *self.failed_reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before the kernel gets the error, so that the failure is counted when the kernel replies.
    fn note(&self, error: Error) {
        if matches!(error, Error::Device(DeviceError::Read { .. } | DeviceError::OutOfBounds { .. })) {
            let mut failed = self.failed_reads.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = (failed.0.saturating_add(1), Some(error));
        }
    }

    fn set_busy(&self, since: Option<Instant>) {
        *self.busy() = since;
    }

    fn busy(&self) -> MutexGuard<'_, Option<Instant>> {
        self.busy_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that serves a disk. Dropping this waits for the current request and then stops the thread.
pub struct Serving {
    thread: Option<JoinHandle<()>>,
    /// Closing this socket wakes the thread, which may wait for a request; a process without rights may close it.
    line: Option<OwnedFd>,
    watch: Arc<Watch>,
}

impl Serving {
    /// Starts a thread that serves `disk`.
    pub fn start(disk: Disk) -> io::Result<Self> {
        let (end, line) = pipe_with(PipeFlags::CLOEXEC)?;
        let watch = Arc::clone(&disk.watch);
        let thread = thread::Builder::new().name("obento-disk".to_owned()).spawn(move || disk.serve(&end))?;
        Ok(Self { thread: Some(thread), line: Some(line), watch })
    }

    /// Stops the thread.
    pub fn stop(&mut self) {
        self.watch.is_over.store(true, Ordering::Relaxed);
        drop(self.line.take());
    }

    /// Returns the state that the thread shares.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
        // After this, no write may reach the image, which another process may open.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Disk {
    /// Serves `device` to the process at the other end of `socket`. The first error of the device is stored in `failure`: the
    /// kernel reports only that an error occurred.
    pub fn new(device: Arc<dyn BlockDevice>, socket: UnixStream, failure: Arc<OnceLock<Error>>) -> Self {
        Self {
            device,
            socket,
            memory: Memory::default(),
            queue: Queue::default(),
            kick: None,
            call: None,
            buffer: Vec::new(),
            back: None,
            failure,
            watch: Arc::default(),
        }
    }

    /// Serves until the other side has ended, or the other end of `end` is closed.
    fn serve(mut self, end: &OwnedFd) {
        while self.turn(end).is_ok() {}
    }

    fn turn(&mut self, end: &OwnedFd) -> io::Result<()> {
        let (asked, kicked) = self.wait(end)?;
        if asked {
            self.message()?;
        }
        if kicked {
            match self.kick.as_mut().map(|kick| kick.read(&mut [0; 8])) {
                Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Some(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
            self.work()?;
        }
        Ok(())
    }

    /// Waits for a message or for requests. Fails if `end` is closed.
    fn wait(&self, end: &OwnedFd) -> io::Result<(bool, bool)> {
        let [end, socket] =
            [end.as_fd(), self.socket.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let kick = self.kick.as_ref().map(|kick| PollFd::from_borrowed_fd(kick.as_fd(), PollFlags::IN));
        let mut waited: Vec<_> = [end, socket].into_iter().chain(kick).collect();
        match poll(&mut waited, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has = |at: usize| waited.get(at).is_some_and(|waited| !waited.revents().is_empty());
        if has(0) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok((has(1), has(2))) }
    }

    /// Executes all requests of the queue, and notifies the kernel once, since a notification interrupts its processor.
    fn work(&mut self) -> io::Result<()> {
        let mut wants_call = false;
        while let Some(chain) = self.queue.next(&self.memory) {
            if self.watch.is_over.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.watch.was_asked.store(true, Ordering::Relaxed);
            self.watch.set_busy(Some(Instant::now()));
            let (written, failure) = request::serve(&*self.device, &self.memory, &chain, &mut self.buffer);
            self.watch.set_busy(None);
            if let Some(error) = failure {
                self.failure.get_or_init(|| error);
                self.watch.note(error);
            }
            wants_call |= self.queue.give_back(&self.memory, &chain, written) == Some(true);
        }
        if self.memory.is_broken() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match self.call.as_mut().filter(|_| wants_call).map(|call| call.write(&1_u64.to_ne_bytes())) {
            // The kernel has not handled an earlier notification yet.
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn message(&mut self) -> io::Result<()> {
        let mut message = Message::receive(&self.socket)?;
        match message.request {
            ask::GET_FEATURES => self.answer(&message, self.features()),
            ask::GET_PROTOCOL_FEATURES => self.answer(&message, feature::PROTOCOL_FEATURES),
            ask::GET_QUEUE_NUM => self.answer(&message, 1),
            ask::GET_CONFIG => self.answer_config(&message),
            ask::SET_MEM_TABLE => self.set_memory(&mut message),
            ask::SET_VRING_NUM => {
                self.queue.len = message.u32(4)?;
                Ok(())
            }
            ask::SET_VRING_ADDR => {
                // Index and flags, then the addresses of descriptors, used ring, available ring and log.
                (self.queue.descriptors, self.queue.used) = (message.u64(8)?, message.u64(16)?);
                self.queue.available = message.u64(24)?;
                Ok(())
            }
            ask::SET_VRING_BASE => {
                // Only the low 16 bits of the number are an index.
                let base = message.u32(4)?.to_le_bytes();
                self.queue.taken = u16::from_le_bytes([base[0], base[1]]);
                self.queue.given = self.queue.taken;
                Ok(())
            }
            ask::GET_VRING_BASE => {
                self.kick = None;
                let state = [message.u32(0)?, u32::from(self.queue.taken)].map(u32::to_le_bytes).concat();
                message.answer(&self.socket, &state)
            }
            ask::SET_VRING_KICK => {
                self.kick = message.files.pop().map(unblocking).transpose()?;
                Ok(())
            }
            ask::SET_VRING_CALL => {
                self.call = message.files.pop().map(unblocking).transpose()?;
                Ok(())
            }
            ask::SET_BACKEND_REQ_FD => {
                self.back = message.files.pop();
                Ok(())
            }
            // The other messages need no reply and change nothing here.
            _ => Ok(()),
        }
    }

    fn answer(&self, message: &Message, number: u64) -> io::Result<()> {
        message.answer(&self.socket, &number.to_le_bytes())
    }

    fn features(&self) -> u64 {
        let always = feature::SEG_MAX | feature::BLOCK_SIZE | feature::FLUSH | feature::INDIRECT;
        let writing = match self.device.is_read_only() {
            true => feature::READ_ONLY,
            false => feature::DISCARD | feature::WRITE_ZEROES,
        };
        always | writing | feature::PROTOCOL | feature::VERSION_1
    }

    fn set_memory(&mut self, message: &mut Message) -> io::Result<()> {
        self.memory = Memory::default();
        let count = message.u32(0)?;
        let mut files = std::mem::take(&mut message.files).into_iter();
        for index in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let Some(file) = files.next() else { return Err(io::ErrorKind::InvalidData.into()) };
            let at = 8 + 32 * index;
            let part = MemoryPart {
                start: message.u64(at)?,
                len: message.u64(at + 8)?,
                offset: message.u64(at + 24)?,
            };
            self.memory.add(part, file)?;
        }
        Ok(())
    }

    /// Returns the first fields of `virtio_blk_config`, as many as were requested.
    fn answer_config(&self, message: &Message) -> io::Result<()> {
        let config = self.config();
        let (offset, len) = (message.u32(0)?, message.u32(4)?);
        let mut payload = message.payload.clone();
        for index in 0..usize::try_from(len).unwrap_or(usize::MAX) {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(index);
            match payload.get_mut(12 + index) {
                Some(byte) => *byte = config.get(from).copied().unwrap_or(0),
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        message.answer(&self.socket, &payload)
    }

    fn config(&self) -> Vec<u8> {
        let mut config = (self.device.len() / request::SECTOR).to_le_bytes().to_vec();
        let u32s = |config: &mut Vec<u8>, numbers: &[u32]| {
            numbers.iter().for_each(|number| config.extend_from_slice(&number.to_le_bytes()));
        };
        // size_max; seg_max; geometry; blk_size; topology in two words; writeback and num_queues.
        u32s(&mut config, &[0, SEGMENTS, 0, 512, 0, 0, 1 | 1 << 16]);
        // max_discard_sectors, max_discard_seg, discard_sector_alignment; the same of write_zeroes, without alignment.
        u32s(&mut config, &[DISCARD_SECTORS, 1, 8, DISCARD_SECTORS, 1]);
        config.extend_from_slice(&[1, 0, 0, 0]);
        config
    }
}

/// Drops a file of the guest that this side does not wait on.
fn unblocking(file: OwnedFd) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use obento_block::MemDevice;

    use super::*;

    #[test]
    fn dropping_a_disk_ends_it_even_if_the_guest_does_not_respond() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(vec![0; 4096]));
        let serving = Serving::start(Disk::new(Arc::clone(&device), ours, Arc::default())).unwrap();
        assert_eq!(serving.watch().busy_for(), None);
        drop(serving);
        assert_eq!(Arc::strong_count(&device), 1, "its thread is gone");
    }
}
