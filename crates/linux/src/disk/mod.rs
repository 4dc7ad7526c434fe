//! The guest's disk: any [`BlockDevice`], served by a thread of ours.
//!
//! The kernel's own disk for a file of the host, `ubd`, loses flushes (Linux 6.1, arch/um/drivers/ubd_kern.c: a flush has no segment,
//! and the loop over segments is what syncs). This one is asked by vhost-user: every request arrives, and can go to a partition, an
//! overlay or a device that a test records.
//! Source: docs/interop/vhost-user.rst of QEMU; Virtual I/O Device (VIRTIO) 1.2, 5.2; Linux 6.1, drivers/virtio/virtio_uml.c.
//!
//! Trap: `virtio_uml` refuses a back end that has not both protocol features CONFIG and SLAVE_REQ; addresses of queues are those
//! of the guest.

mod memory;
mod message;
mod queue;
mod request;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use obento_base::Error;
use obento_block::BlockDevice;
use rustix::event::{PollFd, PollFlags, poll};

use memory::{Memory, Part};
pub(crate) use message::receive_all;
use message::{Message, request as ask};
use queue::Queue;

/// Bits of the features: VIRTIO 1.2, 5.2.3 and 6; `PROTOCOL` of vhost-user.
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

/// The most segments of a request: the kernel's queue has room for that many and three.
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
    /// What bytes pass through.
    buffer: Vec<u8>,
    /// Where we could ask the kernel something. It takes an end of this for the end of the disk.
    back: Option<OwnedFd>,
    failure: Arc<OnceLock<Error>>,
}

impl Disk {
    /// Serves `device` to whoever is at the other end of `socket`. The first error of the device is told in `failure`: the kernel hands on
    /// no more than that there was one.
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
        }
    }

    /// Serves until the other side is gone.
    pub fn serve(mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> io::Result<()> {
        let (asked, kicked) = self.wait()?;
        if asked {
            self.message()?;
        }
        if kicked {
            if let Some(kick) = &mut self.kick {
                kick.read_exact(&mut [0; 8])?;
            }
            self.work()?;
        }
        Ok(())
    }

    /// Waits for a message or for requests.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let socket = PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN);
        let kick = self.kick.as_ref().map(|kick| PollFd::from_borrowed_fd(kick.as_fd(), PollFlags::IN));
        let mut waited: Vec<_> = [socket].into_iter().chain(kick).collect();
        match poll(&mut waited, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok((!waited[0].revents().is_empty(), waited.get(1).is_some_and(|kick| !kick.revents().is_empty())))
    }

    /// Does all that is in the queue, and calls the kernel once: a call interrupts its processor.
    fn work(&mut self) -> io::Result<()> {
        let mut wants_call = false;
        while let Some(chain) = self.queue.next(&self.memory) {
            let (written, failure) = request::serve(&*self.device, &self.memory, &chain, &mut self.buffer);
            if let Some(error) = failure {
                self.failure.get_or_init(|| error);
            }
            wants_call |= self.queue.give_back(&self.memory, &chain, written) == Some(true);
        }
        match &mut self.call {
            Some(call) if wants_call => call.write_all(&1_u64.to_ne_bytes()),
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
                // Index and flags, then descriptors, used, available and a log.
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
                self.kick = message.files.pop().map(File::from);
                Ok(())
            }
            ask::SET_VRING_CALL => {
                self.call = message.files.pop().map(File::from);
                Ok(())
            }
            ask::SET_BACKEND_REQ_FD => {
                self.back = message.files.pop();
                Ok(())
            }
            // The others tell what needs no answer and changes nothing here.
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
            let part =
                Part { start: message.u64(at)?, len: message.u64(at + 8)?, offset: message.u64(at + 24)? };
            self.memory.add(part, file)?;
        }
        Ok(())
    }

    /// The fields of `virtio_blk_config` from its start on, as many as are asked for.
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
