//! The runs of a value in clusters.
//!
//! Layout: each run has a byte with the lengths of two numbers. They are the number of clusters, and the signed
//! distance of the first cluster from that of the previous run. Without the second number the run is a hole. A zero
//! byte ends the list.
//! Invariant: runs follow each other without a gap, and the clusters of a run are clusters of the volume.
//! Source: linux-ntfs documentation, "Data Runs"; libfsntfs documentation, "Data runs".

use alloc::vec::Vec;

/// Clusters of a value that follow each other on the volume, or a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First cluster of the value.
    pub vcn: u64,
    /// Number of clusters, at least 1.
    pub len: u64,
    /// First cluster of the volume; `None` for a hole.
    pub lcn: Option<u64>,
}

impl Run {
    /// Returns the cluster of the value after the run.
    pub fn end(&self) -> u64 {
        self.vcn.saturating_add(self.len)
    }
}

/// The runs of a value, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runs(Vec<Run>);

/// The reason why runs cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunError {
    /// The list ends within a run, or a number is too large; the value is the byte offset in the list.
    Encoding(usize),
    /// A run leaves the volume.
    Outside {
        /// Cluster of the value.
        vcn: u64,
        /// First cluster of the run.
        lcn: u64,
        /// Number of clusters.
        len: u64,
    },
}

/// Reads a number of `len` bytes.
fn signed(bytes: &[u8]) -> Option<i64> {
    let last = bytes.last()?;
    let fill = if last & 0x80 == 0 { 0 } else { 0xff };
    let mut word = [fill; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(word))
}

impl Runs {
    /// Appends the runs of the encoded list `bytes`, which starts at the end of these, on a volume of
    /// `clusters` clusters.
    ///
    /// # Errors
    ///
    /// - `Encoding`: the list is not well-formed.
    /// - `Outside`: a run leaves the volume.
    pub fn append(&mut self, bytes: &[u8], clusters: u64) -> Result<(), RunError> {
        let (mut at, mut previous) = (0_usize, 0_i64);
        loop {
            let error = RunError::Encoding(at);
            let head = *bytes.get(at).ok_or(error)?;
            if head == 0 {
                return Ok(());
            }
            let (count, distance) = (usize::from(head & 15), usize::from(head >> 4));
            let start = at.saturating_add(1);
            let middle = start.saturating_add(count);
            let end = middle.saturating_add(distance);
            let len = bytes.get(start..middle).and_then(signed).and_then(|len| u64::try_from(len).ok());
            let len = len.filter(|&len| len > 0 && len < 1 << 54).ok_or(error)?;
            let vcn = self.end();
            let lcn = match bytes.get(middle..end).ok_or(error)? {
                [] => None,
                bytes => {
                    previous = signed(bytes).and_then(|step| previous.checked_add(step)).ok_or(error)?;
                    let lcn = u64::try_from(previous).map_err(|_| error)?;
                    let is_inside = lcn.checked_add(len).is_some_and(|end| end <= clusters);
                    Some(lcn).filter(|_| is_inside).ok_or(RunError::Outside { vcn, lcn, len })?.into()
                }
            };
            if vcn.checked_add(len).is_none_or(|end| end > 1 << 54) {
                return Err(error);
            }
            self.push(Run { vcn, len, lcn });
            at = end;
        }
    }

    /// Appends a run, joined with the last one if it continues it.
    fn push(&mut self, run: Run) {
        if let Some(last) = self.0.last_mut() {
            let follows = match (last.lcn, run.lcn) {
                (None, None) => true,
                (Some(lcn), Some(next)) => lcn.saturating_add(last.len) == next,
                _ => false,
            };
            if follows {
                last.len = last.len.saturating_add(run.len);
                return;
            }
        }
        self.0.push(run);
    }

    /// Returns the number of clusters of the value.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, Run::end)
    }

    /// Returns the rest of the run that contains the cluster `vcn` of the value, from there on.
    pub fn at(&self, vcn: u64) -> Option<Run> {
        let after = self.0.partition_point(|run| run.vcn <= vcn);
        let run = self.0.get(after.checked_sub(1)?)?;
        let skipped = vcn.checked_sub(run.vcn)?;
        let len = run.len.checked_sub(skipped).filter(|&len| len > 0)?;
        Some(Run { vcn, len, lcn: run.lcn.map(|lcn| lcn.saturating_add(skipped)) })
    }

    /// Returns all runs.
    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.iter()
    }

    /// Returns the number of clusters that the value occupies.
    #[cfg(test)]
    pub fn allocated(&self) -> u64 {
        let mapped = self.0.iter().filter(|run| run.lcn.is_some());
        mapped.fold(0, |sum: u64, run| sum.saturating_add(run.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_continue_from_the_run_before_and_may_be_holes() {
        // The example of the linux-ntfs documentation: 0x30 clusters at 0x20, 0x60 more, and so on.
        let mut runs = Runs::default();
        runs.append(&[0x11, 0x30, 0x60, 0x21, 0x10, 0x00, 0x01, 0x11, 0x20, 0xe0, 0x01, 5, 0], 1 << 20)
            .unwrap();
        let expected =
            [(0, 0x30, Some(0x60)), (0x30, 0x10, Some(0x160)), (0x40, 0x20, Some(0x140)), (0x60, 5, None)];
        let expected = expected.map(|(vcn, len, lcn)| Run { vcn, len, lcn });
        assert!(runs.iter().eq(&expected), "{runs:?}");
        assert_eq!(runs.at(0x35), Some(Run { vcn: 0x35, len: 11, lcn: Some(0x165) }));
        assert_eq!(runs.at(0x64), Some(Run { vcn: 0x64, len: 1, lcn: None }));
        assert_eq!((runs.at(0x65), runs.end(), runs.allocated()), (None, 0x65, 0x60));
    }

    #[test]
    fn lists_that_cannot_be_are_refused() {
        let refused = |bytes: &[u8]| Runs::default().append(bytes, 100).unwrap_err();
        assert_eq!(refused(&[]), RunError::Encoding(0));
        assert_eq!(refused(&[0x11, 1]), RunError::Encoding(0));
        assert_eq!(refused(&[0x11, 1, 4]), RunError::Encoding(3));
        assert_eq!(refused(&[0x01, 0]), RunError::Encoding(0));
        assert_eq!(refused(&[0x11, 0xff, 4]), RunError::Encoding(0));
        assert_eq!(refused(&[0xff; 40]), RunError::Encoding(0));
        assert_eq!(refused(&[0x11, 2, 99, 0]), RunError::Outside { vcn: 0, lcn: 99, len: 2 });
        assert_eq!(refused(&[0x11, 2, 0xff, 0]), RunError::Encoding(0));
    }
}
