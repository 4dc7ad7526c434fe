//! Reading ahead: if a file is read in order, its next parts are requested before the caller needs them.
//!
//! Invariant: a part is used for [`Mounted::valid`], as attributes are, and not after a change of the file by this client.
//! Invariant: at most [`STREAMS`] files are read ahead, each by at most [`WINDOW`] and one part, so memory is bounded.
//! Locking: the lock of the table is not held during a call. A thread takes a stream out of the table while it reads.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Error, Ino, Result};

use crate::contract::{LATER_PAUSE, Mounted, REPEATS, Status};
use crate::error::{LATER, NONSENSE, of_status};
use crate::protocol::{Attributes, Handle, procedure};
use crate::rpc::{Deadline, Reply, Ticket};
use crate::xdr::Reader;

/// The most files that are read ahead.
const STREAMS: usize = 4;
/// The most bytes and parts of a file that are requested and not passed on.
const WINDOW: u64 = 4 << 20;
const PARTS: usize = 16;

/// A part that was requested.
struct Asked {
    ticket: Ticket,
    len: usize,
    since: Instant,
}

/// A part that was received.
struct Received {
    reply: Reply,
    /// The bytes in the results that the caller did not get yet.
    rest: Range<usize>,
    /// Whether the server returned fewer bytes than requested.
    is_short: bool,
    since: Instant,
}

/// The parts of a file from an offset on.
struct Stream {
    at: u64,
    front: Option<Received>,
    asked: VecDeque<Asked>,
    /// The end of the parts that were requested.
    next: u64,
}

impl Stream {
    fn new(at: u64) -> Self {
        Self { at, front: None, asked: VecDeque::new(), next: at }
    }

    /// Returns whether a read at `offset` continues the stream, whose parts are still valid.
    fn continues(&self, offset: u64, now: Instant, valid: Duration) -> bool {
        let front = self.front.as_ref().map(|front| front.since);
        let since = front.or_else(|| self.asked.front().map(|asked| asked.since));
        self.at == offset && since.is_none_or(|since| now.duration_since(since) < valid)
    }

    /// Moves bytes of the first part to the start of `buf`. Returns their number.
    fn take_data(&mut self, buf: &mut [u8]) -> usize {
        let Some(front) = &mut self.front else { return 0 };
        let data = front.reply.results().get(front.rest.clone()).unwrap_or_default();
        let len = data.len().min(buf.len());
        buf[..len].copy_from_slice(&data[..len]);
        front.rest.start += len;
        self.at += len as u64;
        len
    }
}

/// A file that is read.
struct Slot {
    ino: Ino,
    /// Absent while a thread reads.
    stream: Option<Stream>,
    /// Whether the file changed while a thread reads.
    is_changed: bool,
}

/// The stream that a thread took out of the table.
enum Taken {
    /// The thread returns a stream.
    Slot(Option<Stream>),
    /// Another thread reads the file.
    InUse,
}

/// The files that are read, the one that was used last at the end.
#[derive(Default)]
pub struct Streams(Vec<Slot>);

impl Streams {
    fn take(&mut self, ino: Ino) -> Taken {
        match self.0.iter_mut().find(|slot| slot.ino == ino) {
            Some(slot) => slot.stream.take().map_or(Taken::InUse, |stream| Taken::Slot(Some(stream))),
            None => {
                self.0.push(Slot { ino, stream: None, is_changed: false });
                Taken::Slot(None)
            }
        }
    }

    /// Ends the use of a stream by a thread. Returns the streams that are no longer needed.
    fn put(&mut self, ino: Ino, stream: Option<Stream>) -> Vec<Stream> {
        let Some(index) = self.0.iter().position(|slot| slot.ino == ino) else { return Vec::new() };
        let mut slot = self.0.remove(index);
        let mut unused = Vec::new();
        match stream {
            Some(stream) if slot.is_changed => unused.push(stream),
            Some(stream) => {
                slot.stream = Some(stream);
                self.0.push(slot);
            }
            None => {}
        }
        while self.0.len() > STREAMS
            && let Some(oldest) = self.0.iter().position(|slot| slot.stream.is_some())
        {
            unused.extend(self.0.remove(oldest).stream);
        }
        unused
    }

    /// Removes the stream of a file, at once or when its thread has read.
    fn forget(&mut self, ino: Ino) -> Option<Stream> {
        let index = self.0.iter().position(|slot| slot.ino == ino)?;
        let slot = self.0.get_mut(index)?;
        slot.is_changed = true;
        slot.stream.is_some().then(|| self.0.remove(index).stream).flatten()
    }
}

/// Takes the results of a read of `len` bytes: the place of the data, and whether the file ends after it.
fn data_of(results: &[u8], len: usize) -> Option<Status<(Range<usize>, bool)>> {
    let mut reply = Reader(results);
    let status = reply.u32()?;
    if status != 0 {
        return Some(Err(status));
    }
    Attributes::take_optional(&mut reply)?;
    let count = usize::try_from(reply.u32()?).ok()?;
    let is_end = reply.flag()?;
    let start = results.len().checked_sub(reply.0.len())?.checked_add(4)?;
    let data = reply.bytes(len)?;
    (data.len() == count).then(|| Ok((start..start.saturating_add(count), is_end)))
}

impl Mounted {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abandon(&self, streams: impl IntoIterator<Item = Stream>) {
        for stream in streams {
            self.connection.abandon(stream.asked.into_iter().map(|asked| asked.ticket));
        }
    }

    /// Forgets the data of a file that was read ahead.
    pub(crate) fn forget_stream(&self, ino: Ino) {
        let unused = self.streams().forget(ino);
        self.abandon(unused);
    }

    /// Changes a file. Data that was read before or meanwhile is not used.
    pub(crate) fn changing<T>(&self, ino: Ino, change: impl FnOnce() -> Result<T>) -> Result<T> {
        self.forget_stream(ino);
        let done = change();
        self.forget_stream(ino);
        done
    }

    /// Fills `buf` with the bytes of a file at `offset`. `size` is the size of the file. Returns the number of bytes.
    pub(crate) fn read_ahead(
        &self,
        ino: Ino,
        handle: &Handle,
        size: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let taken = self.streams().take(ino);
        let (has_slot, known) = match taken {
            Taken::Slot(known) => (true, known),
            Taken::InUse => (false, None),
        };
        let (mut stream, is_in_order) = match known {
            Some(stream) if stream.continues(offset, Instant::now(), self.valid) => (stream, true),
            known => {
                self.abandon(known);
                (Stream::new(offset), false)
            }
        };
        let end = offset.checked_add(buf.len() as u64).ok_or(Error::Invalid);
        let done = end.and_then(|end| {
            let request_to = if is_in_order { size.max(end) } else { end };
            self.fill(&mut stream, handle, request_to, buf)
        });
        let (kept, unused) =
            if done.is_ok() && has_slot { (Some(stream), None) } else { (None, Some(stream)) };
        self.abandon(unused);
        if has_slot {
            let unused = self.streams().put(ino, kept);
            self.abandon(unused);
        }
        done
    }

    fn fill(&self, stream: &mut Stream, handle: &Handle, request_to: u64, buf: &mut [u8]) -> Result<usize> {
        let (mut filled, mut repeats, mut deadline) = (0, 0, Deadline::default());
        while filled < buf.len() {
            self.request(stream, handle, request_to)?;
            match self.receive_front(stream, &mut deadline)? {
                Ok(true) => {
                    filled += stream.take_data(&mut buf[filled..]);
                    // The next part is another call.
                    deadline = Deadline::default();
                }
                Err(LATER) if filled == 0 && repeats < REPEATS => {
                    repeats += 1;
                    self.restart(stream);
                    self.connection.pause(LATER_PAUSE, &deadline)?;
                    continue;
                }
                Err(status) if filled == 0 => return Err(of_status(status)),
                // The file ends, or the caller gets the error when it reads the rest.
                Ok(false) | Err(_) => {
                    self.restart(stream);
                    break;
                }
            }
            if stream.front.as_ref().is_some_and(|front| front.rest.is_empty()) {
                let Some(Received { reply, is_short, .. }) = stream.front.take() else { continue };
                self.connection.recycle(reply);
                // The next part does not start at the end of a short one.
                if is_short {
                    self.restart(stream);
                }
            }
        }
        Ok(filled)
    }

    /// Receives the first part if necessary. Returns `false` if the file ends before it.
    fn receive_front(&self, stream: &mut Stream, deadline: &mut Deadline) -> Result<Status<bool>> {
        if stream.front.is_some() {
            return Ok(Ok(true));
        }
        let Some(Asked { ticket, len, since }) = stream.asked.pop_front() else { return Ok(Ok(false)) };
        let reply = self.connection.finish(ticket, deadline)?;
        let (rest, is_end) = match data_of(reply.results(), len).ok_or(NONSENSE)? {
            Ok(found) => found,
            Err(status) => return Ok(Err(status)),
        };
        if rest.is_empty() {
            return if is_end { Ok(Ok(false)) } else { Err(NONSENSE) };
        }
        let is_short = rest.len() < len;
        stream.front = Some(Received { reply, rest, is_short, since });
        Ok(Ok(true))
    }

    /// Ignores the parts that were requested.
    fn restart(&self, stream: &mut Stream) {
        let at = stream.at;
        self.abandon([std::mem::replace(stream, Stream::new(at))]);
    }

    /// Requests parts up to `request_to`, as far as the window permits.
    fn request(&self, stream: &mut Stream, handle: &Handle, request_to: u64) -> Result<()> {
        while stream.next < request_to && stream.next - stream.at < WINDOW && stream.asked.len() < PARTS {
            let len = (request_to - stream.next).min(self.read_len.into());
            let count = u32::try_from(len).unwrap_or(self.read_len);
            let arguments = handle.arguments().u64(stream.next).u32(count);
            let ticket = self.connection.start(procedure::READ, &arguments)?;
            stream.asked.push_back(Asked { ticket, len: count as usize, since: Instant::now() });
            stream.next += len;
        }
        Ok(())
    }
}
