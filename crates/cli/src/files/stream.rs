//! The bytes of a file, in order: data in pieces that fit a buffer, and holes by their length alone.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use obento::Node;
use obento::base::Quantity;

use crate::cause::containing;

/// The bytes that are read at once.
pub const CHUNK: usize = 256 << 10;

/// The origin of the bytes.
pub enum Input {
    /// A regular file of an image.
    Image(Node),
    /// A file of the host.
    Host(File),
    /// Standard input.
    Stdin,
}

/// The reason why the bytes of a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// An error of the image.
    #[error(transparent)]
    Image(#[from] obento::Error),
    /// An error of the host.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The command does not support the contents.
    #[error("{0}")]
    Contents(String),
    /// An error after so many bytes.
    #[error("{error} (after {})", Quantity::new(*bytes, "byte"))]
    After { error: Box<Self>, bytes: u64 },
}

containing! {
    StreamError {
        Self::Image(error) => error,
        Self::Host(error) => error,
        Self::After { error, .. } => &**error,
    }
}

/// The next bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// So many bytes at the start of the buffer.
    Data(usize),
    /// So many zeros, which no buffer holds. Never 0.
    Hole(u64),
    End,
}

/// The bytes of an [`Input`] from an offset on.
pub struct Stream<'a> {
    input: &'a Input,
    at: u64,
}

impl<'a> Stream<'a> {
    /// Starts at the first byte.
    pub fn new(input: &'a Input) -> Self {
        Self { input, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Continues at `at`. Standard input is read and dropped up to there, at most to its end.
    pub fn skip_to(&mut self, at: u64) -> Result<(), StreamError> {
        if !matches!(self.input, Input::Stdin) {
            self.at = at;
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK];
        while self.at < at {
            let want = usize::try_from(at - self.at).map_or(CHUNK, |left| left.min(CHUNK));
            if self.next(&mut buffer[..want])? == Piece::End {
                break;
            }
        }
        Ok(())
    }

    /// Reads the next bytes. A hole of a file of an image is returned as a hole, as far as it reaches.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read. The error says how many were read before.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Piece, StreamError> {
        let piece = match self.input {
            Input::Image(node) => self.of_node(node, buffer),
            Input::Host(file) => retry(|| file.read_at(buffer, self.at)),
            Input::Stdin => retry(|| io::stdin().lock().read(buffer)),
        };
        let piece = piece.map_err(|error| match self.at {
            0 => error,
            bytes => StreamError::After { error: Box::new(error), bytes },
        })?;
        self.at = self.at.saturating_add(match piece {
            Piece::Data(len) => len as u64,
            Piece::Hole(len) => len,
            Piece::End => 0,
        });
        Ok(piece)
    }

    fn of_node(&self, node: &Node, buffer: &mut [u8]) -> Result<Piece, StreamError> {
        let Some(run) = node.run(self.at, u64::MAX)? else { return Ok(Piece::End) };
        if run.span().is_zeros() {
            return Ok(Piece::Hole(run.len()));
        }
        let len = run.read(0, buffer)?;
        Ok(if len == 0 { Piece::End } else { Piece::Data(len) })
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> Result<Piece, StreamError> {
    loop {
        match read() {
            Ok(0) => return Ok(Piece::End),
            Ok(len) => return Ok(Piece::Data(len)),
            Err(error)
                if error.kind() == io::ErrorKind::Interrupted && !obento::host::interrupt::is_requested() => {
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Calls `take` with `len` zeros in pieces.
pub fn zeros<E>(len: u64, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    const ZEROS: &[u8] = &[0; 64 << 10];
    let mut left = len;
    while left > 0 {
        let part = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        take(&ZEROS[..part])?;
        left -= part as u64;
    }
    Ok(())
}
