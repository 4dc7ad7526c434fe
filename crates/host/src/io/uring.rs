//! Reads and writes through `io_uring`: a large transfer is split into parallel pieces.
//!
//! A ring is set up when the image is opened, before privileges are dropped, and it can only read and write. A ring
//! with all operations would bypass the list of system calls. A thread uses a ring for one transfer. If all rings are
//! in use, it uses system calls.
//! Invariant: no transfer returns while the kernel may still access its buffers.
//! Source: io_uring_setup(2), io_uring_enter(2), io_uring_register(2) `IORING_REGISTER_RESTRICTIONS`.

use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue, types};
use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{Backing, BlockDevice, ReadRequest};
use rustix::io::Errno;

use crate::FileDevice;

/// The number of rings.
const RINGS: usize = 4;
/// Pieces in progress in a ring.
const DEPTH: u32 = 32;
/// Bytes of a piece: a size that disks and the page cache still handle as one unit.
const PIECE: usize = 256 << 10;

/// A file that is read and written through rings.
pub(super) struct UringDevice {
    file: FileDevice,
    rings: Mutex<Vec<IoUring>>,
}

/// A part of a transfer.
struct Piece {
    offset: u64,
    entry: squeue::Entry,
    len: usize,
}

impl UringDevice {
    pub(super) fn new(file: FileDevice) -> std::result::Result<Self, Errno> {
        let rings: io::Result<Vec<_>> = (0..RINGS).map(|_| new_ring()).collect();
        let rings = rings.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Self { file, rings: Mutex::new(rings) })
    }

    fn with_ring<T>(&self, work: impl FnOnce(Option<&mut IoUring>) -> T) -> T {
        let lock = || self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ring = lock().pop();
        let result = work(ring.as_mut());
        lock().extend(ring);
        result
    }

    /// Returns the pieces that fill `buf`.
    fn reads(&self, offset: u64, buf: &mut [u8]) -> impl Iterator<Item = Piece> {
        let fd = types::Fd(self.file.host_file().as_fd().as_raw_fd());
        let offsets = (offset..).step_by(PIECE);
        let pieces = offsets.zip(buf.chunks_mut(PIECE)).map(move |(offset, part)| {
            let read = opcode::Read::new(fd, part.as_mut_ptr(), part.len() as u32).offset(offset);
            Piece { offset, entry: read.build(), len: part.len() }
        });
        pieces.collect::<Vec<_>>().into_iter()
    }

    /// Returns the pieces that write `buf`.
    fn writes(&self, offset: u64, buf: &[u8]) -> Vec<Piece> {
        let fd = types::Fd(self.file.host_file().as_fd().as_raw_fd());
        let pieces = (offset..).step_by(PIECE).zip(buf.chunks(PIECE)).map(move |(offset, part)| {
            let write = opcode::Write::new(fd, part.as_ptr(), part.len() as u32).offset(offset);
            Piece { offset, entry: write.build(), len: part.len() }
        });
        pieces.collect()
    }
}

fn new_ring() -> io::Result<IoUring> {
    let ring = IoUring::builder().setup_r_disabled().build(DEPTH)?;
    let allowed = [opcode::Read::CODE, opcode::Write::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed.into_iter().collect::<Vec<_>>())?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Performs all of `pieces`, whose buffers live until this returns. Returns the number of bytes or the error
/// of each.
fn transfer(ring: &mut IoUring, pieces: &[Piece]) -> Vec<std::result::Result<usize, i32>> {
    let mut moved = vec![Err(libc::EIO); pieces.len()];
    for (batch, pieces) in pieces.chunks(DEPTH as usize).enumerate() {
        for (index, piece) in pieces.iter().enumerate() {
            let entry = piece.entry.clone().user_data(index as u64);
            // SAFETY: the descriptor and the buffer live until all completions arrived, which the loop below
            // waits for.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("a batch is no longer than the ring");
        }
        let mut open = pieces.len();
        while open > 0 {
            match ring.submit_and_wait(open) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // The kernel may hold the buffers, and they cannot be reclaimed.
                    // A closed standard error must not unwind before the abort.
                    let _ = writeln!(io::stderr(), "obento: io_uring_enter: {error}");
                    std::process::abort();
                }
            }
            for done in ring.completion() {
                let result = done.result();
                let index = batch * DEPTH as usize + done.user_data() as usize;
                moved[index] = usize::try_from(result).map_err(|_| -result);
                open -= 1;
            }
        }
    }
    moved
}

/// Returns whether another attempt may succeed.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME))
}

/// Returns whether the error means that plain system calls should be used.
fn is_retried(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

impl BlockDevice for UringDevice {
    obento_base::forward! { self.file;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
        fn discard(&self, range: Range<u64>) -> Result<()>;
        fn known_zeros(&self, range: Range<u64>) -> u64;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, buf }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter().try_for_each(|request| self.file.check(request.offset, request.buf.len()))?;
        self.with_ring(|ring| {
            let Some(ring) = ring else { return self.file.read_many(requests) };
            let (mut pieces, mut owners) = (Vec::new(), Vec::new());
            for (index, request) in requests.iter_mut().enumerate() {
                pieces.extend(self.reads(request.offset, request.buf));
                owners.resize(pieces.len(), index);
            }
            let moved = transfer(ring, &pieces);
            for ((piece, owner), moved) in pieces.iter().zip(owners).zip(moved) {
                let done = match moved {
                    Ok(count) => count,
                    Err(errno) if is_retried(errno) => 0,
                    Err(errno) => {
                        let (offset, len) = (piece.offset, to_u64(piece.len));
                        return Err(DeviceError::Read { offset, len, errno }.into());
                    }
                };
                if done < piece.len {
                    // The rest uses system calls, which report the end of a file that shrank.
                    let request = &mut requests[owner];
                    let start = (piece.offset - request.offset) as usize;
                    let rest = &mut request.buf[start + done..start + piece.len];
                    self.file.read_at(piece.offset + to_u64(done), rest)?;
                }
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.check_writable()?;
        self.file.check(offset, buf.len())?;
        self.with_ring(|ring| {
            let Some(ring) = ring else { return self.file.write_at(offset, buf) };
            let pieces = self.writes(offset, buf);
            let moved = transfer(ring, &pieces);
            for (piece, moved) in pieces.iter().zip(moved) {
                let done = match moved {
                    Ok(count) => count,
                    Err(errno) if is_retried(errno) => 0,
                    Err(errno) => {
                        let (offset, len) = (piece.offset, to_u64(piece.len));
                        return Err(DeviceError::Write { offset, len, errno }.into());
                    }
                };
                if done < piece.len {
                    let start = (piece.offset - offset) as usize;
                    let rest = &buf[start + done..start + piece.len];
                    self.file.write_at(piece.offset + to_u64(done), rest)?;
                }
            }
            Ok(())
        })
    }
}
