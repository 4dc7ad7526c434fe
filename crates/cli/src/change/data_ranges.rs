//! The ranges in which a file of the host, or one of an image, has data.

use std::fs::File;
use std::io;
use std::ops::Range;

use obento::{Error, Node};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// A range behind all data.
const NONE: Range<u64> = u64::MAX..u64::MAX;

/// Finds the ranges of data from the start of the files to their ends. Each range is looked up once, since finding its
/// end visits all its extents.
pub struct DataRanges<'a> {
    copy: Option<&'a File>,
    node: Option<&'a Node>,
    in_copy: Range<u64>,
    in_image: Range<u64>,
}

impl<'a> DataRanges<'a> {
    /// Returns the ranges in which `copy` or `node` has data. Holes of both are equal.
    pub fn of(copy: Option<&'a File>, node: Option<&'a Node>) -> Self {
        Self { copy, node, in_copy: 0..0, in_image: 0..0 }
    }

    /// Returns the next range from `at` on, or `None` if no data follows. `at` must not decrease from call to call.
    ///
    /// # Errors
    ///
    /// The errors of the file system of the host, or of the image.
    pub fn next<E: From<io::Error> + From<Error>>(&mut self, at: u64) -> Result<Option<Range<u64>>, E> {
        if let Some(node) = self.node.filter(|_| at >= self.in_image.end) {
            self.in_image = in_image(node, at)?;
        }
        if let Some(copy) = self.copy.filter(|_| at >= self.in_copy.end) {
            self.in_copy = in_copy(copy, at)?;
        }
        let known = [&self.in_image, &self.in_copy];
        let found = known.map(|range| range.start.max(at)..range.end);
        Ok(found.into_iter().filter(|range| !range.is_empty()).min_by_key(|range| range.start))
    }
}

fn in_image(node: &Node, at: u64) -> Result<Range<u64>, Error> {
    match node.seek_data(at) {
        Ok(data) => Ok(data..node.seek_hole(data)?),
        Err(Error::NoSuchOffset) => Ok(NONE),
        Err(error) => Err(error),
    }
}

fn in_copy(copy: &File, at: u64) -> io::Result<Range<u64>> {
    match rustix::fs::seek(copy, SeekFrom::Data(at)) {
        Ok(data) => Ok(data..rustix::fs::seek(copy, SeekFrom::Hole(data))?),
        Err(Errno::NXIO) => Ok(NONE),
        // A file system without holes.
        Err(_) => Ok(at..copy.metadata()?.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn ranges_end_at_the_holes_of_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        for at in [1 << 20, 3 << 20] {
            file.write_all_at(&[1; 4096], at).unwrap();
        }
        let mut ranges = DataRanges::of(Some(&file), None);
        let mut next = |at| ranges.next::<Box<dyn std::error::Error>>(at).unwrap();
        let first = next(0).unwrap();
        assert!(first.start <= 1 << 20 && first.end >= (1 << 20) + 4096, "{first:?}");
        assert_eq!(next(first.start + 1), Some(first.start + 1..first.end));
        let second = next((1 << 20) + 4096).unwrap();
        assert!(second.contains(&(3 << 20)), "{second:?}");
        assert_eq!(next(4 << 20), None);
    }
}
