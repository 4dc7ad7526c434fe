//! Compares the bytes of two files of the same length.
//!
//! The comparison asks both files for runs of data and holes. It reads nothing where both have a hole.

use obento_block::BlockDevice;
use obento_host::HostError;
use obento_host::source::{Run, SourceFile};
use obento_vfs::Node;

use super::side::SideEntry;
use crate::copy::{Problem, ProblemReason};
use crate::data::CHUNK;

/// The bytes of one side.
enum Bytes<'a> {
    Image(&'a Node),
    Host {
        file: &'a SourceFile,
        runs: Box<dyn Iterator<Item = Result<Run, HostError>> + 'a>,
        /// The last run: its end, and whether it is a hole.
        run: (u64, bool),
    },
}

/// Returns the first difference of `left` and `right`, which are regular files of the same length.
pub fn first_difference(left: &SideEntry, right: &SideEntry) -> Result<Option<u64>, Problem> {
    let size = left.attr().size;
    let files = (open(left)?, open(right)?);
    let (mut a, mut b) = (Bytes::of(left, &files.0), Bytes::of(right, &files.1));
    let (mut a_buffer, mut b_buffer) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < size {
        let (a_hole, a_len) = a.run(at, size).map_err(|trouble| left.problem(trouble))?;
        let (b_hole, b_len) = b.run(at, size).map_err(|trouble| right.problem(trouble))?;
        let len = a_len.min(b_len).min(size - at);
        if a_hole && b_hole {
            at += len;
            continue;
        }
        let len = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
        a_buffer.resize(len, 0);
        b_buffer.resize(len, 0);
        a.read(at, &mut a_buffer, a_hole).map_err(|trouble| left.problem(trouble))?;
        b.read(at, &mut b_buffer, b_hole).map_err(|trouble| right.problem(trouble))?;
        if a_buffer != b_buffer {
            let same = a_buffer.iter().zip(&b_buffer).take_while(|(a, b)| a == b).count();
            return Ok(Some(at + same as u64));
        }
        at += len as u64;
    }
    Ok(None)
}

fn open(met: &SideEntry) -> Result<Option<SourceFile>, Problem> {
    match met {
        SideEntry::Host(entry) => {
            entry.open_file().map(Some).map_err(|error| met.problem(ProblemReason::Host(error)))
        }
        SideEntry::Image { .. } => Ok(None),
    }
}

impl<'a> Bytes<'a> {
    fn of(met: &'a SideEntry, file: &'a Option<SourceFile>) -> Self {
        match (met, file) {
            (SideEntry::Image { node, .. }, _) => Self::Image(node),
            (SideEntry::Host(_), Some(file)) => {
                Self::Host { file, runs: Box::new(file.runs()), run: (0, false) }
            }
            (SideEntry::Host(_), None) => unreachable!("files of the host were opened"),
        }
    }

    /// Returns whether the bytes at `at` are in a hole, and the length of the run from there, at least 1.
    fn run(&mut self, at: u64, size: u64) -> Result<(bool, u64), ProblemReason> {
        match self {
            Self::Image(node) => match node.run(at, size - at).map_err(ProblemReason::Volume)? {
                Some(run) => Ok((run.span().is_zeros(), run.len())),
                None => Ok((true, size - at)),
            },
            Self::Host { runs, run, .. } => {
                while run.0 <= at {
                    *run = match runs.next().transpose().map_err(ProblemReason::Host)? {
                        Some(Run::Data(range)) => (range.end, false),
                        Some(Run::Hole(range)) => (range.end, true),
                        // Another thread shortened the file; reading reports that.
                        None => (size, false),
                    };
                }
                Ok((run.1, run.0 - at))
            }
        }
    }

    fn read(&self, at: u64, mut buffer: &mut [u8], is_hole: bool) -> Result<(), ProblemReason> {
        if is_hole {
            buffer.fill(0);
            return Ok(());
        }
        let node = match self {
            Self::Host { file, .. } => {
                return file.device().read_at(at, buffer).map_err(ProblemReason::Volume);
            }
            Self::Image(node) => node,
        };
        let mut at = at;
        while !buffer.is_empty() {
            match node.read_at(at, buffer).map_err(ProblemReason::Volume)? {
                // Another thread shortened the file: the missing bytes are zeros.
                0 => {
                    buffer.fill(0);
                    break;
                }
                len => {
                    at += len as u64;
                    buffer = &mut buffer[len..];
                }
            }
        }
        Ok(())
    }
}
