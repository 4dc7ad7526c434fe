//! Making a volume that holds a tree from the beginning.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use obento_block::BlockDevice;

use crate::tree::DataId;
use crate::{FormatError, FormatOptions, Formatted, NodeId, Tree};

/// Making a volume with a tree in it, all of it planned before the first byte is written. Two volumes of equal trees,
/// options, clocks and seeds have the same bytes, on devices of zeros.
///
/// The driver lays out and writes what its format adds; the bytes of files are moved by the caller, straight to where
/// [`BuildPlan::places`] says, before or after or while the driver writes the rest.
pub trait Build: Send + Sync {
    /// Plans a volume of `tree`. Nothing is written. Errors, the first that holds: the option that cannot be; all files
    /// that the format cannot hold; the size, if one is given, is too small.
    fn plan<'t>(&self, tree: &'t Tree, options: &BuildOptions)
    -> Result<Box<dyn BuildPlan + 't>, BuildError>;

    /// Begins a volume whose files come before it is known what else does: their bytes are put where they stay, and the
    /// volume is planned around them. `None` where that cannot be; then a tree is planned when it is whole. Errors: the option
    /// that cannot be.
    fn receive(&self, options: &BuildOptions) -> Result<Option<Box<dyn Receive>>, BuildError> {
        let _ = options;
        Ok(None)
    }
}

/// A volume of which nothing is known but the files that came so far. What they get follows from what came before, and not from
/// how it came.
pub trait Receive: Send {
    /// Takes places for a regular file of `size` bytes with data in `ranges`, which are in order, apart and within it, and hands
    /// them to `sink` as [`BuildPlan::places`] does. `data` is higher than that of any file before. Errors: TooSmall, if
    /// no volume holds it.
    fn place(
        &mut self,
        data: DataId,
        size: u64,
        ranges: &[Range<u64>],
        sink: &mut dyn FnMut(Range<u64>, u64),
    ) -> Result<(), BuildError>;

    /// Plans a volume of `tree` around the files that came, as [`Build::plan`] does. The plan has no places for those. What the
    /// tree has no more is handed to `gone` as ranges of the device, which have to be zeros again before the plan is written.
    /// Errors: as [`Build::plan`].
    fn plan<'t>(
        self: Box<Self>,
        tree: &'t Tree,
        options: &BuildOptions,
        gone: &mut dyn FnMut(Range<u64>),
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError>;
}

/// How to build.
#[derive(Clone)]
pub struct BuildOptions {
    /// The volume. A length of `None` is found; `contents` are zeros, whatever it says.
    pub format: FormatOptions,
    /// How much more than what the tree needs there is, where the length is found.
    pub room: Room,
}

/// Space that stays free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// So many hundredths of the volume, of blocks and of inodes.
    Free(u8),
    /// As little as can be: also a journal of the least size, and no room for the volume to grow.
    Least,
}

/// A volume that is laid out and not written yet.
pub trait BuildPlan: Send + Sync {
    /// What will be made.
    fn formatted(&self) -> &Formatted;

    /// Bytes that the device must have.
    fn device_len(&self) -> u64;

    /// Hands to `sink` where the bytes of the regular file `node` belong: a range of the file and the offset on the device, in
    /// order and apart. Nothing for what has no data, or whose bytes the driver writes.
    fn places(&self, node: NodeId, sink: &mut dyn FnMut(Range<u64>, u64));

    /// Writes all but the bytes of files to `device`, which reads as zeros wherever the caller has not put those. What makes
    /// it a volume is written last. Errors: those of the device.
    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError>;
}

/// Why a volume cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// The volume itself cannot be.
    Format(FormatError),
    /// The tree does not fit.
    TooSmall {
        /// The bytes there are.
        len: u64,
        /// The bytes that suffice.
        needed: u64,
    },
    /// These files cannot be held.
    Unfit(Vec<(NodeId, Unfit)>),
}

/// Why a format cannot hold a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its name has more bytes than this.
    Name(u32),
    /// It has more names, or directories in it, than this.
    Links(u32),
    /// It is longer than this.
    Size(u64),
    /// The target of a link has more bytes than this, or none.
    Target(u32),
    /// Its time.
    Time,
    /// The number of its device.
    Device,
    /// It has extended attributes in a name space that the format does not know, or an access control list that is none.
    XattrName,
    /// Its extended attributes are too large.
    Xattrs,
    /// Its extended attributes are too large without this feature.
    XattrsNeed(&'static str),
    /// A directory with too many names.
    Directory,
    /// Its name has characters that the format's names do not have.
    Characters,
    /// Its name ends with a dot or a space, which the format's names do not.
    LastCharacter,
    /// Its name is that of another file of the directory where case does not count.
    Twice,
    /// It is of a type that the format does not have.
    Kind,
    /// It has the name of a directory that the format has of its own, and is none.
    Reserved,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(max) => write!(f, "its name is longer than {max} bytes"),
            Self::Links(max) => write!(f, "it has more than {max} links"),
            Self::Size(max) => write!(f, "it is longer than {max} bytes"),
            Self::Target(max) => write!(f, "its target is empty or longer than {max} bytes"),
            Self::Time => f.write_str("its time cannot be stored"),
            Self::Device => f.write_str("its device number cannot be stored"),
            Self::XattrName => {
                f.write_str("one of its extended attributes has a name or value that cannot be stored")
            }
            Self::Xattrs => f.write_str("its extended attributes are too large"),
            Self::XattrsNeed(feature) => {
                write!(f, "its extended attributes are too large without the feature {feature}")
            }
            Self::Directory => f.write_str("the directory has too many names"),
            Self::Characters => f.write_str("its name has characters that cannot be stored"),
            Self::LastCharacter => f.write_str("its name ends with a dot or a space"),
            Self::Twice => f.write_str("its name is that of another file there, but for the case"),
            Self::Kind => f.write_str("files of its type cannot be stored"),
            Self::Reserved => f.write_str("its name is that of a directory which the format has of its own"),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(error) => error.fmt(f),
            Self::TooSmall { len, needed } => write!(f, "{len} bytes are too few, {needed} suffice"),
            Self::Unfit(files) => write!(f, "{} files cannot be held", files.len()),
        }
    }
}

impl core::error::Error for BuildError {}

impl From<FormatError> for BuildError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl From<obento_base::Error> for BuildError {
    fn from(error: obento_base::Error) -> Self {
        Self::Format(error.into())
    }
}
