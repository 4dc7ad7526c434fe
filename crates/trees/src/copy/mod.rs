//! Copies out of images and into images, as cp(1) does.
//!
//! Copies are written through [`TreeWriter`]. No name, link or mode in the image can cause a write outside of the
//! target. If a file cannot be read or written, the error is reported to the [`Observer`] and the copy continues with
//! the next file. If the host does not permit preserving a property, such as an owner, the property is counted in the
//! [`CopyReport`].
//!
//! Data is copied in extents. Holes stay holes. If the data is in a host file, the kernel copies it directly.

mod engine;
mod holes;
pub(crate) mod image;
mod into;
mod options;
mod out;
mod problem;
mod read_data;
mod source;
mod target;
#[cfg(test)]
mod tests;
pub(crate) mod tree_sink;

use std::io::Write;

use obento_vfs::Node;

use crate::data::{self, Losses};
pub use holes::Holes;
pub use image::ImageTarget;
pub use into::{copy_from_reader, copy_in, read_full};
pub use obento_host::HostError;
pub use obento_host::tree::{
    Backup, Existing, Keep, Loss, Lost, NewMode, Report as WriteReport, TreeOptions, Trust,
};
pub(crate) use options::join;
pub use options::{CopyOptions, CopySource, HardLinks, TargetIs};
pub use out::{copy_out, copy_out_to};
pub(crate) use problem::expect_wanted;
pub use problem::{
    Admission, CopyError, CopyReport, Observer, Problem, ProblemReason, Progress, Quiet, special_word,
};
pub use read_data::read_data;
pub use target::HostTarget;

pub use crate::data::Unread;
pub use crate::shortage::Shortage;
pub use source::CopyFrom;

#[cfg(doc)]
use obento_host::tree::TreeWriter;

/// Writes the bytes of a file to `output`. Unreadable bytes are written as zeros and reported to `observer`.
/// Returns the number of bytes.
///
/// # Errors
///
/// 1. `Volume`: `node` is not a regular file, or its attributes cannot be read.
/// 2. `Output`: `output` cannot be written, or the observer ended the copy.
pub fn copy_to_writer(
    node: &Node,
    path: &[u8],
    output: &mut dyn Write,
    observer: &mut dyn Observer,
) -> Result<u64, CopyError> {
    let attr = node.attr().map_err(CopyError::Volume)?;
    match attr.kind {
        obento_base::FileKind::Regular => {}
        obento_base::FileKind::Directory => return Err(CopyError::Volume(obento_base::Error::IsDirectory)),
        _ => return Err(CopyError::Volume(obento_base::Error::Invalid)),
    }
    let (mut losses, mut bytes) = (Losses::default(), 0);
    data::read(node, 0..attr.size, &mut losses, |chunk| {
        output.write_all(chunk)?;
        bytes += chunk.len() as u64;
        observer.progress(&Progress { files: 0, bytes, path });
        expect_wanted(observer).map_err(std::io::Error::other)
    })
    .map_err(CopyError::Output)?;
    for unread in losses.into_ranges() {
        observer.problem(&Problem { path: path.to_vec(), trouble: ProblemReason::Unread(unread) });
    }
    Ok(bytes)
}
