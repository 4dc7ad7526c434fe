//! Why an image or a volume in it could not be opened: what failed, on what, why, and what to do.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{Corrupt, DeviceError, Error, Feature};
use obento_driver::Probe;
use obento_host::HostError;

use super::Looks;
use crate::partition::Partition;
use crate::text::{Escaped, escaped};
use crate::{Part, human_size};

/// Why an image or a volume in it could not be opened. Each message says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file.
    #[error("{}: no such image file; check the name", shown(image))]
    Missing {
        /// The image.
        image: PathBuf,
    },
    /// The host does not let it be read.
    #[error(
        "{}: not allowed to read it; check who owns it (`ls -l`), or ask as a user who may",
        shown(image)
    )]
    NotPermitted {
        /// The image.
        image: PathBuf,
    },
    /// The host lets it be read at most.
    #[error(
        "{}: not allowed to change it; check who owns it and its permissions (`ls -l`), or ask as a user who may",
        shown(image)
    )]
    NotChangeable {
        /// The image.
        image: PathBuf,
    },
    /// The host's file system is mounted read-only.
    #[error(
        "{}: lies on a file system that is mounted read-only; copy it to another place, or remount that one",
        shown(image)
    )]
    ReadOnlyHost {
        /// The image.
        image: PathBuf,
    },
    /// It is packed in what can only be read.
    #[error(
        "{}: is packed as {layer}, which obento reads but does not change; unpack it first: {}",
        shown(image),
        Unpack(image, layer)
    )]
    Packed {
        /// The image.
        image: PathBuf,
        /// In what.
        layer: &'static str,
    },
    /// This process has the volume, or a part of it, open in a way that excludes what was asked.
    #[error(
        "{}: is in use in this process: what is changed can be open only once; close it first",
        At(image, part)
    )]
    InUse {
        /// The image.
        image: PathBuf,
        /// Which part of it.
        part: Option<Part>,
    },
    /// The host cannot open it, or what contains it cannot be unpacked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// It has no bytes at all.
    #[error("{}: the file is empty; perhaps it was never written", shown(image))]
    Empty {
        /// The image.
        image: PathBuf,
    },
    /// Containers within containers, without an end.
    #[error("{}: more than {limit} containers inside each other; unpack it by other means", shown(image))]
    Nested {
        /// The image.
        image: PathBuf,
        /// How many are unpacked.
        limit: usize,
    },
    /// Reading failed before anything was known.
    #[error("{}: {error}; check the medium, and copy what can be read with ddrescue", shown(image))]
    Unreadable {
        /// The image.
        image: PathBuf,
        /// What failed.
        error: Error,
    },
    /// No driver has the name that was asked for.
    #[error("there is no file system type `{name}`; known are: {}", known.join(", "))]
    UnknownType {
        /// The name.
        name: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// Nothing that a driver recognises.
    #[error("{}: {}", At(image, part), Unknown(looks))]
    NoFileSystem {
        /// The image.
        image: PathBuf,
        /// Which part of it.
        part: Option<Part>,
        /// What it looks like instead.
        looks: Looks,
    },
    /// There are partitions, but none that a driver recognises.
    #[error("{}: no partition holds a file system that obento knows:{}", shown(image), List(image, list))]
    NoneOfThese {
        /// The image.
        image: PathBuf,
        /// What the partitions hold.
        list: Vec<Content>,
    },
    /// Several partitions hold a file system and none was named.
    #[error("{}: several partitions hold a file system; name one:{}", shown(image), List(image, list))]
    SeveralFileSystems {
        /// The image.
        image: PathBuf,
        /// What the partitions hold.
        list: Vec<Content>,
    },
    /// Several types claim the same bytes, or one claims the whole image and others its partitions.
    #[error(
        "{}: ambiguous: {}; name one with `@` or `-t TYPE`:{}",
        At(image, part),
        Names(candidates),
        Candidates(image, candidates)
    )]
    Ambiguous {
        /// The image.
        image: PathBuf,
        /// The part that was named, if one was.
        part: Option<Part>,
        /// What claims it.
        candidates: Vec<Candidate>,
    },
    /// No partition is called so.
    #[error("{}: there is no such partition{}", At(image, &Some(part.clone())), Choices(image, list))]
    NoSuchPart {
        /// The image.
        image: PathBuf,
        /// What was asked for.
        part: Part,
        /// What there is.
        list: Vec<Content>,
    },
    /// More than one partition is called so.
    #[error("{}: more than one partition is called so; name one by its number:{}", At(image, &Some(part.clone())), List(image, list))]
    AmbiguousPart {
        /// The image.
        image: PathBuf,
        /// What was asked for.
        part: Part,
        /// Those that fit.
        list: Vec<Content>,
    },
    /// The driver could not open it.
    #[error("{}: cannot open the {fs_type} file system: {error}{}", At(image, part), advice(fs_type, error))]
    Volume {
        /// The image.
        image: PathBuf,
        /// Which part of it.
        part: Option<Part>,
        /// The type.
        fs_type: &'static str,
        /// What is wrong.
        error: Box<Error>,
    },
    /// The place that was named lies outside.
    #[error("{}@+{offset}: starts past the end of the image, which has {len} bytes", shown(image))]
    PastTheEnd {
        /// The image.
        image: PathBuf,
        /// The place, in bytes.
        offset: u64,
        /// The length of the image in bytes.
        len: u64,
    },
    /// The driver could not open it by the super block that was asked for.
    #[error(
        "{}: cannot open the {fs_type} file system by the super block at block {block}: {}; {otherwise}",
        At(image, part),
        Why { error, ends: *ends }
    )]
    SuperBlock {
        /// The image.
        image: PathBuf,
        /// Which part of it.
        part: Option<Part>,
        /// The type.
        fs_type: &'static str,
        /// Where it was to be.
        block: u64,
        /// The length of the volume in bytes, if that block lies past its end.
        ends: Option<u64>,
        /// What is wrong there.
        error: Box<Error>,
        /// What happens without asking for it.
        otherwise: Otherwise,
    },
}

/// One of several formats that claim an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// How the bytes are named.
    pub part: Option<Part>,
    /// The type, as a message shows it.
    pub name: &'static str,
    /// The name for `-t TYPE`, if a driver opens the type.
    pub fs_type: Option<&'static str>,
}

/// The candidates, each type once.
struct Names<'a>(&'a [Candidate]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = Vec::new();
        for candidate in self.0 {
            if !names.contains(&candidate.name) {
                names.push(candidate.name);
            }
        }
        match &names[..] {
            [name] => write!(f, "{name} is both on the whole image and in a partition"),
            [names @ .., last] => write!(f, "it may be {} or {last}", names.join(", ")),
            [] => Ok(()),
        }
    }
}

/// One line for each candidate, with how to name it.
struct Candidates<'a>(&'a Path, &'a [Candidate]);

impl fmt::Display for Candidates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for candidate in self.1 {
            let at = At(self.0, &candidate.part);
            match candidate.fs_type {
                Some(fs_type) => write!(f, "\n  -t {fs_type} {at}")?,
                None => write!(f, "\n  {at}: {}, which is not supported", candidate.name)?,
            }
        }
        Ok(())
    }
}

/// Why there is no file system.
struct Unknown<'a>(&'a Looks);

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks = self.0;
        if looks.is_unsupported() {
            return write!(f, "{} is not supported; {}", looks.name, looks.advice);
        }
        write!(f, "no file system that obento knows; it looks like {looks}")
    }
}

/// What becomes of a volume if no super block is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// It opens.
    Opens,
    /// It opens by the copy at this block.
    OpensByCopy(u64),
    /// It does not open either.
    Fails,
}

impl fmt::Display for Otherwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opens => f.write_str("without `--superblock` it opens"),
            Self::OpensByCopy(block) => {
                write!(f, "without `--superblock` it opens, by the copy at block {block}")
            }
            Self::Fails => f.write_str(
                "copies are usually at blocks 32768, 98304 and 163840, or with blocks of 1 KiB at 8193, 24577 and 40961",
            ),
        }
    }
}

/// What is wrong with a super block that was asked for.
struct Why<'a> {
    error: &'a Error,
    ends: Option<u64>,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends {
            Some(len) => {
                write!(f, "that is past the end of the volume, which has {} ({len} bytes)", human_size(len))
            }
            None => self.error.fmt(f),
        }
    }
}

/// What a driver finds wrong that finds nothing of its type.
const NO_MAGIC: &str = "magic number";

/// What to do about an error of a driver at opening.
fn advice(fs_type: &str, error: &Error) -> &'static str {
    match error {
        Error::Corrupt(Corrupt::Field { field: NO_MAGIC, .. }) => {
            "; it is no volume of this type: without `--fs-type` it is told what it is"
        }
        Error::Corrupt(_) if ["vfat", "exfat", "xv6"].contains(&fs_type) => {
            "; `obento check -y` can repair some damage"
        }
        // No driver of obento checks other types: a program of the type's own does, if it is installed.
        Error::Corrupt(_) if !fs_type.starts_with("ext") => {
            "; `obento check` reports the damage if a program checks this type"
        }
        Error::Corrupt(_) => {
            "; `obento check -y` can mend it, by a copy of the super block if there is one; to look at it, try such a copy: \
             `--superblock 32768` (or 8193, 98304, 163840)"
        }
        Error::Device(DeviceError::Write { .. } | DeviceError::Flush { .. }) => {
            "; see to the disk that the image lies on: it may be full"
        }
        // What the kernel engine says of itself says nothing of the image.
        Error::Device(DeviceError::Engine(_)) => "",
        Error::Device(_) => {
            "; the image or its partition may end too early: compare the size with that of the original"
        }
        Error::Unsupported(Feature::Named(name)) if name.contains("external journal") => {
            "; name the file or device that holds it: --journal FILE"
        }
        // That names what is missing, and there is no other Linux that would help.
        Error::Unsupported(Feature::Named(name))
            if ["kernel engine", "which Linux only reads", "`obento check"]
                .iter()
                .any(|told| name.contains(told)) =>
        {
            ""
        }
        Error::Unsupported(_) => "; mount it with Linux instead",
        Error::Refused(_) => "",
    }
}

/// How to unpack an image.
struct Unpack<'a>(&'a Path, &'a str);

impl fmt::Display for Unpack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = shown(self.0);
        match self.1 {
            "qcow2" => write!(f, "qemu-img convert -O raw {image} plain.img"),
            "gzip" => write!(f, "gzip -dc {image} > plain.img"),
            layer => write!(f, "{layer} -dc {image} > plain.img"),
        }
    }
}

/// What a partition holds, for choosing one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// The partition; `None` for the whole device.
    pub partition: Option<Partition>,
    /// What is in it.
    pub holds: Holds,
}

/// What is in a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A file system that a driver recognises.
    FileSystem(Probe),
    /// Several types that claim the same bytes.
    Ambiguous(Vec<&'static str>),
    /// Something else.
    Other(Looks),
    /// Other partitions.
    Partitions,
    /// It could not be read.
    Unreadable(Error),
}

impl Content {
    /// The file system, if there is one that a driver recognises.
    pub fn probe(&self) -> Option<&Probe> {
        match &self.holds {
            Holds::FileSystem(probe) => Some(probe),
            _ => None,
        }
    }
}

fn shown(path: &Path) -> Escaped<'_> {
    escaped(path.as_os_str().as_bytes())
}

/// An image or a part of it.
struct At<'a>(&'a Path, &'a Option<Part>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0).fmt(f)?;
        self.1.as_ref().map_or(Ok(()), |part| write!(f, "@{part}"))
    }
}

/// One line for each partition, beginning with how to name it.
struct List<'a>(&'a Path, &'a [Content]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for content in self.1 {
            let Some(partition) = &content.partition else { continue };
            let (size, kind) = (human_size(partition.len), partition.kind);
            write!(f, "\n  {}@{}  {size:>8}  {kind}", shown(self.0), partition.number)?;
            if !partition.name.is_empty() {
                write!(f, " \"{}\"", escaped(&partition.name))?;
            }
            write!(f, ": {}", content.holds)?;
        }
        Ok(())
    }
}

struct Choices<'a>(&'a Path, &'a [Content]);

impl fmt::Display for Choices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => f.write_str("; the image has no partition table that can be used: leave out the `@`, or write @+OFFSET for what starts at that byte"),
            list => write!(f, "; there are:{}", List(self.0, list)),
        }
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem(probe) if probe.label.is_empty() => f.write_str(probe.fs_type),
            Self::FileSystem(probe) => write!(f, "{} labelled \"{}\"", probe.fs_type, escaped(&probe.label)),
            Self::Ambiguous(names) => write!(f, "ambiguous ({})", names.join(", ")),
            Self::Other(looks) => f.write_str(looks.like),
            Self::Partitions => f.write_str("other partitions"),
            Self::Unreadable(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_failed_is_not_taken_for_an_image_that_ends_too_early() {
        let write = DeviceError::Write { offset: 0, len: 512, errno: 28 };
        assert!(advice("ext4", &write.into()).contains("may be full"));
        let read = DeviceError::Read { offset: 0, len: 512, errno: 5 };
        assert!(advice("ext4", &read.into()).contains("end too early"));
        assert_eq!(advice("xfs", &DeviceError::Engine("did not start").into()), "");
    }
}
