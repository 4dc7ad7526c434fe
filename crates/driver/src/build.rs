//! Building a volume with its contents in one pass.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Quantity;
use obento_base::wire::to_u64;
use obento_block::BlockDevice;

use crate::tree::DataId;
use crate::{FormatError, FormatOptions, Formatted, NodeId, Tree};

/// Builds a volume that contains a tree. The whole volume is planned before the first byte is written. On devices
/// that contain only zeros, equal trees, options, clocks and seeds produce identical bytes.
///
/// The driver defines the layout of the volume and writes the metadata. The caller copies the data of files to the
/// locations that [`BuildPlan::places`] returns. The caller may do so before, after, or while the driver writes.
pub trait Build: Send + Sync {
    /// Plans a volume for `tree`. Writes nothing.
    ///
    /// # Errors
    ///
    /// 1. `Format`: an option is invalid, memory is exhausted, or the format requires
    ///    [`plan_with`](Self::plan_with) (JFFS2).
    /// 2. `Unfit`: the format cannot store some files. The error lists all of these files, or 1,000 of them (ext4).
    /// 3. `TooSmall`: the requested size is too small.
    fn plan<'t>(&self, tree: &'t Tree, options: &BuildOptions)
    -> Result<Box<dyn BuildPlan + 't>, BuildError>;

    /// Plans a volume like [`Build::plan`], for a format that compresses files. The layout of such a volume depends
    /// on the bytes of the files. The driver writes the compressed bytes itself, so [`BuildPlan::places`] returns no
    /// locations for these bytes. Other formats ignore `bytes`.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`Build::plan`].
    /// 2. `Format` with [`FormatError::Device`]: the error that `bytes` returned.
    fn plan_with<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
        bytes: &dyn FileBytes,
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        let _ = bytes;
        self.plan(tree, options)
    }

    /// Starts a volume whose files arrive before the rest of the tree is known. The driver assigns a final
    /// location to the data of each file, and later plans the rest of the volume around that data. Returns
    /// `None` if the driver does not support this operation. The caller then plans the complete tree.
    ///
    /// # Errors
    ///
    /// - `Format`: an option is invalid.
    fn receive(&self, options: &BuildOptions) -> Result<Option<Box<dyn Receive>>, BuildError> {
        let _ = options;
        Ok(None)
    }
}

/// Access to the contents of the regular files of a tree.
pub trait FileBytes: Sync {
    /// Reads the contents `data` from byte `offset` on into `buf`, and fills `buf` completely.
    ///
    /// # Errors
    ///
    /// - `Device`: the source cannot be read, or is shorter than `offset + buf.len()`.
    fn read_at(&self, data: DataId, offset: u64, buf: &mut [u8]) -> obento_base::Result<()>;
}

/// A volume under construction whose tree is not complete yet. The location of a file depends only on the options,
/// the size and the ranges of the file, and the files received earlier. It does not depend on when data is copied.
pub trait Receive: Send {
    /// Allocates space for a regular file of `size` bytes with data in `ranges`, and passes the locations to
    /// `sink` as [`BuildPlan::places`] does. The ranges are in bytes of the file and sorted, do not overlap,
    /// and end within the file. The identifier `data` must be greater than the identifiers of all files
    /// received earlier.
    ///
    /// # Errors
    ///
    /// - `Format` with [`FormatError::TooSmall`]: the files received so far do not fit into the requested
    ///   length.
    /// - `Format` with [`FormatError::Device`]: memory is exhausted.
    fn place(
        &mut self,
        data: DataId,
        size: u64,
        ranges: &[Range<u64>],
        sink: &mut dyn FnMut(Range<u64>, u64),
    ) -> Result<(), BuildError>;

    /// Plans a volume for `tree` around the received files, as [`Build::plan`] does. [`BuildPlan::places`] returns no
    /// locations for received files, since [`place`](Self::place) has returned them.
    ///
    /// `tree` need not contain all received files. The data of the missing files is passed to `gone` as ranges of the
    /// device. The caller must write zeros to these ranges before it writes the plan.
    ///
    /// # Errors
    ///
    /// As for [`Build::plan`].
    fn plan<'t>(
        self: Box<Self>,
        tree: &'t Tree,
        options: &BuildOptions,
        gone: &mut dyn FnMut(Range<u64>),
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError>;
}

/// Options of a build.
#[derive(Clone)]
pub struct BuildOptions {
    /// Options of the volume. If the length is `None`, the driver computes the length. The driver ignores `contents`:
    /// the device must read as zeros.
    pub format: FormatOptions,
    /// Free space to include when the driver computes the length.
    pub room: FreeSpace,
}

/// Free space of a new volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeSpace {
    /// At least this percentage of the blocks is free. ext4 applies the percentage to the inodes, too. JFFS2 ignores
    /// the percentage.
    Free(u8),
    /// As little as possible: the journal has its minimum size, and no space is reserved for growing the volume.
    Least,
}

/// The layout of a volume that is not written yet.
pub trait BuildPlan: Send + Sync {
    /// Returns a description of the volume.
    fn formatted(&self) -> &Formatted;

    /// Returns the required length of the device in bytes.
    fn device_len(&self) -> u64;

    /// Passes the locations of the data of the regular file `node` to `sink`. A location consists of a range
    /// of the file, and the offset of its first byte on the device. The ranges are sorted and do not overlap.
    /// Passes no location for a file without data, nor for data that the driver writes itself.
    fn places(&self, node: NodeId, sink: &mut dyn FnMut(Range<u64>, u64));

    /// Writes everything to `device` except the data of files that the caller copies. The caller copies the data whose
    /// locations [`places`](Self::places) or [`Receive::place`] returned. Apart from this data, the device must read as
    /// zeros before the call. The signature of the volume is written last.
    ///
    /// # Errors
    ///
    /// - [`FormatError::Device`]: the device failed, or memory is exhausted.
    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError>;
}

/// The reason why a volume cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The options of the volume are invalid for every tree. Exception: [`FormatError::Device`] reports a
    /// source that cannot be read, a device that failed, or exhausted memory.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The tree does not fit into the requested size.
    #[error("{}", too_small(*len, *needed))]
    TooSmall {
        /// Size of the volume in bytes.
        len: u64,
        /// A size in bytes that is sufficient. Equal to `len` if no sufficient size is known.
        needed: u64,
    },
    /// The format cannot store these files.
    #[error("{} cannot be stored", Quantity::new(to_u64(.0.len()), "file"))]
    Unfit(Vec<(NodeId, Unfit)>),
}

/// The reason why a format cannot store a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// The name is longer than this number of bytes.
    #[error("the name is longer than {0} bytes")]
    Name(u32),
    /// The file has more names, or the directory more subdirectories, than the format permits. The number is the
    /// maximum link count of an inode.
    #[error("the file has more than {0} links")]
    Links(u32),
    /// The file is larger than this number of bytes.
    #[error("the file is longer than {0} bytes")]
    Size(u64),
    /// The target of the symbolic link is empty or longer than this number of bytes.
    #[error("the target is empty or longer than {0} bytes")]
    Target(u32),
    /// A timestamp is out of range.
    #[error("the time cannot be stored")]
    Time,
    /// The device number is out of range.
    #[error("the device number cannot be stored")]
    Device,
    /// The namespace of an extended attribute is not supported by the format, or an access control list is malformed.
    #[error("an extended attribute has a name or value that cannot be stored")]
    XattrName,
    /// The extended attributes are too large.
    #[error("the extended attributes are too large")]
    Xattrs,
    /// The extended attributes are too large for a volume without this feature.
    #[error("the extended attributes are too large without the feature {0}")]
    XattrsNeed(&'static str),
    /// The directory has too many entries.
    #[error("the directory has too many entries")]
    Directory,
    /// The name contains characters that the format does not allow.
    #[error("the name has characters that cannot be stored")]
    Characters,
    /// The name ends with a dot or a space, which the format does not allow.
    #[error("the name ends with a dot or a space, which the format does not allow")]
    LastCharacter,
    /// The format treats the name as equal to another name in the directory, for example because the two
    /// names differ only in case.
    #[error("the format treats the name as equal to another name in the directory")]
    Twice,
    /// The format does not support files of this type.
    #[error("the format does not support files of this type")]
    Kind,
    /// The format reserves the name for a certain directory, and the file is not that directory.
    #[error("the format reserves the name for another directory")]
    Reserved,
}

fn too_small(len: u64, needed: u64) -> String {
    let size = Quantity::new(len, "byte");
    match needed > len {
        true => format!("a size of {size} is too small; {needed} bytes are required"),
        // No sufficient size is known.
        false => format!("the files do not fit in {size}"),
    }
}

impl From<obento_base::Error> for BuildError {
    fn from(error: obento_base::Error) -> Self {
        Self::Format(error.into())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_size_that_is_too_small_is_reported_with_a_sufficient_size_only_if_one_is_known() {
        let text = |needed| BuildError::TooSmall { len: 4096, needed }.to_string();
        assert_eq!(text(8192), "a size of 4096 bytes is too small; 8192 bytes are required");
        assert_eq!(text(4096), "the files do not fit in 4096 bytes");
    }
}
