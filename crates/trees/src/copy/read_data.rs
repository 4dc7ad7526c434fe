//! Reading a file without a copy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use obento_block::BlockDevice;
use obento_host::{DataSink, HostError, SinkError};
use obento_vfs::Node;

use super::engine::fill_carefully;
use super::{CopyError, Observer, Problem, ProblemReason, Progress, expect_wanted};
use crate::data::Losses;

/// Reads all data of a regular file, but not its holes. Unreadable bytes are reported to `observer`. Returns the number
/// of bytes of data.
///
/// # Errors
///
/// 1. `Volume`: the attributes of `node` cannot be read.
/// 2. `Host`: the file has more than `most` bytes of data, or the observer ended the work.
pub fn read_data(node: &Node, path: &[u8], most: u64, observer: &mut dyn Observer) -> Result<u64, CopyError> {
    let size = node.attr().map_err(CopyError::Volume)?.size;
    let (mut losses, mut sink) = (Losses::default(), Discard { path, bytes: 0, most });
    fill_carefully(node, size, &mut sink, &mut losses, &mut |bytes| {
        observer.progress(&Progress { files: 0, bytes, path });
        expect_wanted(observer)
    })?;
    for unread in losses.into_ranges() {
        observer.problem(&Problem { path: path.to_vec(), trouble: ProblemReason::Unread(unread) });
    }
    Ok(sink.bytes)
}

/// Counts bytes of data, and discards them.
struct Discard<'p> {
    path: &'p [u8],
    bytes: u64,
    most: u64,
}

impl Discard<'_> {
    fn add(&mut self, len: u64) -> Result<(), HostError> {
        self.bytes = self.bytes.saturating_add(len);
        match self.bytes <= self.most {
            true => Ok(()),
            false => Err(HostError::Limit { path: OsStr::from_bytes(self.path).into(), limit: self.most }),
        }
    }
}

impl DataSink for Discard<'_> {
    fn hole(&mut self, _: u64) -> Result<(), HostError> {
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.add(bytes.len() as u64)
    }

    fn device(&mut self, _: &dyn BlockDevice, _: u64, len: u64) -> Result<(), SinkError> {
        Ok(self.add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Quiet;
    use crate::toy::{Piece, Toy, dir, toy};

    #[test]
    fn data_is_read_up_to_a_limit_and_holes_of_any_length_are_skipped() {
        let pieces =
            vec![Piece::Mapped(1, 5000), Piece::Hole(1 << 50), Piece::Lost(4096), Piece::Mapped(2, 100)];
        let volume = toy([(2, dir(&[("file", 3)])), (3, Toy::File(pieces))]);
        let node = volume.vfs().node(obento_base::Ino(3)).unwrap();
        let mut quiet = Quiet::default();
        assert_eq!(read_data(&node, b"/file", 9196, &mut quiet).unwrap(), 9196);
        let lost = 5000 + (1 << 50);
        let [Problem { path, trouble: ProblemReason::Unread(unread) }] = &quiet.0[..] else {
            panic!("{quiet:?}");
        };
        assert_eq!((&path[..], unread.range.clone()), (&b"/file"[..], lost..lost + 4096));
        let Err(CopyError::Host(error)) = read_data(&node, b"/file", 9195, &mut quiet) else {
            panic!("more data than the limit allows was read");
        };
        assert_eq!(error, HostError::Limit { path: "/file".into(), limit: 9195 });
    }
}
