//! The reasons why a driver does not open a volume, as sentences.

use std::fmt;

use obento_base::{EngineObstacle, Error, Feature, OpenOption};

use super::error::At;

/// The reason why a driver cannot open a volume.
pub(super) struct CannotOpen<'a> {
    pub at: At<'a>,
    pub fs_type: &'a str,
    pub error: &'a Error,
}

impl fmt::Display for CannotOpen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fs_type, error } = self;
        match error {
            Error::Unsupported(feature) => self.unsupported(feature, f),
            error => write!(f, "cannot open the {fs_type} file system of '{at}': {error}"),
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
