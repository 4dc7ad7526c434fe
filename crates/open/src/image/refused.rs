//! The reasons why a driver does not open a volume, as sentences with the next step for the user.

use std::fmt;

use obento_base::{Corrupt, DeviceError, EngineObstacle, Error, Feature, OpenOption, Structure};

use super::error::At;

/// The reason why a driver cannot open a volume, and the next step for the user.
pub(super) struct CannotOpen<'a> {
    pub at: At<'a>,
    pub fs_type: &'a str,
    /// Whether the caller requested the type.
    pub is_requested: bool,
    pub error: &'a Error,
}

impl fmt::Display for CannotOpen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fs_type, error, .. } = self;
        match error {
            Error::Unsupported(feature) => self.unsupported(feature, f),
            error => write!(f, "cannot open the {fs_type} file system of '{at}': {error}"),
        }?;
        match self.advice() {
            "" => Ok(()),
            advice => write!(f, "\n  help: {advice}"),
        }
    }
}

impl CannotOpen<'_> {
    fn unsupported(&self, feature: &Feature, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fs_type, .. } = self;
        match feature {
            Feature::Writing => {
                write!(f, "cannot change '{at}': obento reads {fs_type}, but does not write it")
            }
            Feature::MarkedReadOnly => write!(f, "cannot change '{at}': the volume is marked read-only"),
            Feature::ExternalJournal => {
                write!(f, "cannot change '{at}': the journal of the volume is on another device")
            }
            Feature::UnreplayedLog => {
                write!(
                    f,
                    "cannot change '{at}': the volume was not unmounted, and its log must be replayed first"
                )
            }
            Feature::Cluster => write!(f, "cannot change '{at}': machines of a cluster may use the volume"),
            Feature::NoSignature => write!(f, "cannot open '{at}': the volume has no signature of {fs_type}"),
            Feature::Engine(EngineObstacle::NoDriver) => {
                write!(f, "cannot open '{at}': the kernel engine does not support {fs_type}")
            }
            Feature::Engine(EngineObstacle::NotInKernel) => {
                write!(f, "cannot open '{at}': the kernel of the kernel engine was built without {fs_type}")
            }
            Feature::Engine(obstacle) => {
                write!(f, "cannot open '{at}': {fs_type} volumes need the kernel engine{}", reason(*obstacle))
            }
            Feature::EngineOption(option) => {
                let option = flag(*option);
                write!(
                    f,
                    "cannot open '{at}': the kernel engine, which opens {fs_type} volumes, does not support {option}"
                )
            }
            feature => {
                write!(f, "cannot open the {fs_type} file system of '{at}': {feature} is not supported")
            }
        }
    }

    /// Returns the next step for the user, or an empty string.
    fn advice(&self) -> &'static str {
        match self.error {
            Error::Unsupported(feature) => advice_on_feature(*feature),
            error if self.is_requested && matches!(error, Error::Corrupt(_)) => {
                "omit --fs-type if the type may be wrong; otherwise copy the readable files with 'obento recover'"
            }
            error => advice(self.fs_type, error),
        }
    }
}

/// Returns the reason why the kernel engine is unavailable, as text that follows the name of the engine.
fn reason(obstacle: EngineObstacle) -> &'static str {
    match obstacle {
        EngineObstacle::Excluded | EngineObstacle::NoDriver | EngineObstacle::NotInKernel => "",
        EngineObstacle::NotInstalled => ", which is not installed",
        EngineObstacle::NoSuchKernel => ", and OBENTO_LINUX names no program",
        EngineObstacle::Processor => ", which runs only on x86-64",
    }
}

/// Returns the option of the command line.
fn flag(option: OpenOption) -> &'static str {
    match option {
        OpenOption::SuperBlock => "--superblock",
        OpenOption::NoReplay => "--no-replay",
        OpenOption::IgnoreChecksums => "--ignore-checksums",
        OpenOption::Journal => "--journal",
    }
}

/// Returns the next step for a feature that is not supported, or an empty string.
fn advice_on_feature(feature: Feature) -> &'static str {
    match feature {
        Feature::Engine(EngineObstacle::Excluded) => "omit --engine native",
        Feature::Engine(EngineObstacle::NoDriver) => "omit --engine linux",
        Feature::Engine(EngineObstacle::NotInstalled) => "install it: apt-get install user-mode-linux",
        Feature::Engine(EngineObstacle::NoSuchKernel) => {
            "correct OBENTO_LINUX, or unset it and install the kernel: apt-get install user-mode-linux"
        }
        Feature::Engine(EngineObstacle::NotInKernel) => {
            "set OBENTO_LINUX to a kernel that supports this type"
        }
        Feature::EngineOption(_) => "omit this option",
        Feature::NoSignature => "omit --fs-type: the volume is not of this type",
        Feature::MarkedReadOnly => "remove the mark with 'obento tune -O ^read-only'",
        Feature::ExternalJournal => "name the file or device of the journal: --journal FILE",
        Feature::UnreplayedLog => "run 'obento check -p' first, which replays the log",
        Feature::Cluster => "run 'tunegfs2 -o lockproto=lock_nolock' on a volume that no cluster uses",
        // obento's own list of writable types names no other way.
        Feature::Writing => "",
        _ => "mount the volume with Linux instead",
    }
}

/// Returns the next step after an error of a driver at opening, or an empty string.
fn advice(fs_type: &str, error: &Error) -> &'static str {
    match error {
        Error::Corrupt(_) if ["vfat", "exfat", "xv6"].contains(&fs_type) => {
            "run 'obento check' to list the damage, and 'obento check -y' to repair it"
        }
        // No driver of obento checks other types: a program of the type's own does, if it is installed.
        Error::Corrupt(_) if !fs_type.starts_with("ext") => {
            "run 'obento check' to list the damage, if 'obento types' lists a check for this type"
        }
        // A copy of the super block does not help.
        Error::Corrupt(
            Corrupt::Magic {
                structure: Structure::Journal | Structure::Inode(_) | Structure::Quota(_), ..
            }
            | Corrupt::Checksum { structure: Structure::Journal | Structure::Inode(_), .. }
            | Corrupt::Field {
                structure: Structure::Journal | Structure::Inode(_) | Structure::Quota(_), ..
            }
            | Corrupt::BlockRange { structure: Structure::Quota(_), .. }
            | Corrupt::RootKind { .. },
        ) => "run 'obento check -y' to repair the volume",
        // The image is shorter than the volume, or than the super block.
        Error::Corrupt(Corrupt::Truncated { structure: Structure::SuperBlock, .. }) => {
            "get a complete copy of the image; 'obento recover' copies the files that are present"
        }
        Error::Corrupt(_) => {
            "run 'obento check -y' to repair the volume with a copy of the super block, or read it with a copy: \
             --superblock 32768 (or 8193, 98304, 163840)"
        }
        Error::Device(DeviceError::Write { .. } | DeviceError::Flush { .. }) => {
            "check the disk of the image: it may be full"
        }
        Error::Device(DeviceError::OutOfBounds { .. }) => {
            "get a complete copy of the image; 'obento recover' copies the files that are present"
        }
        // An error of the kernel engine itself has no help about the image.
        Error::Device(DeviceError::Engine(_)) => "",
        Error::Device(_) => {
            "compare the size of the image with that of the original: the image or its partition may be truncated"
        }
        Error::Unsupported(feature) => advice_on_feature(*feature),
        Error::Refused(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_super_block_is_no_remedy_for_a_damaged_quota_file() {
        let structure = Structure::Quota(obento_base::Ino(3));
        let magic = Corrupt::Magic { structure, block: 0, found: 1, expected: 2 };
        let tree = Corrupt::Field { structure, field: "quota tree", block: 0, offset: 0, found: 9 };
        let hole = Corrupt::BlockRange { structure, at: 0, start: 0, len: 1 };
        for damage in [magic, tree, hole] {
            assert_eq!(advice("ext4", &damage.into()), "run 'obento check -y' to repair the volume");
        }
    }

    #[test]
    fn a_write_that_failed_is_not_taken_for_an_image_that_ends_too_early() {
        let write = DeviceError::Write { offset: 0, len: 512, errno: 28 };
        assert!(advice("ext4", &write.into()).contains("may be full"));
        let read = DeviceError::Read { offset: 0, len: 512, errno: 5 };
        assert!(advice("ext4", &read.into()).contains("may be truncated"));
        assert_eq!(advice("xfs", &DeviceError::Engine("did not start").into()), "");
    }
}
