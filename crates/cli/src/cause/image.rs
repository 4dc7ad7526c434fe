//! The hints for images and volumes that cannot be opened.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::address::PartSelector;
use obento::base::{Corrupt, DeviceError, EngineObstacle, Feature, Structure};
use obento::image::{
    Candidate, DataDescription, DataForm, FallbackOutcome, PartitionChoice, PartitionContents,
};
use obento::{Error, OpenError};

use super::{Cause, Complete};
use crate::report::{printable, shell_word, subject};

const CHECK_THE_NAME: &str = "check the name";
const OTHER_USER: &str = "check the owner and mode of the file with 'ls -l', or run as another user";

impl Complete for OpenError {}

impl Cause for OpenError {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Host(error) => Some(error),
            Self::Unrecorded { error, .. } => Some(&**error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Missing { .. } | Self::MissingJournal { .. } => CHECK_THE_NAME.to_owned(),
            Self::NotPermitted { .. } | Self::NotChangeable { .. } => OTHER_USER.to_owned(),
            Self::ReadOnlyHost { .. } => "copy the image, or remount the file system".to_owned(),
            Self::Packed { image, layer } => format!("convert the image first: {}", unpack(image, layer)),
            Self::ReadOnlySnapshot { .. } => {
                "change the present contents, or copy the snapshot with 'obento convert'".to_owned()
            }
            Self::NoSnapshot { file, .. } => {
                format!("run 'obento info {}' to list its snapshots", word(file))
            }
            Self::NotQcow2 { .. } => "omit the '%' and the name".to_owned(),
            Self::JournalNotUsed { .. } => "omit --journal".to_owned(),
            Self::Empty { image } => format!(
                "create a file system with 'obento mkfs {} SIZE', or set the size of the file with truncate(1)",
                word(image)
            ),
            Self::Nested { .. } => "unpack the outer containers with other tools".to_owned(),
            Self::Unreadable { .. } => {
                "get another copy of the image; if the disk of the host fails, copy the readable \
                                        part with ddrescue"
                    .to_owned()
            }
            Self::UnknownType { known, .. } => format!("the types are {}", known.join(", ")),
            Self::NoFileSystem { image, part, looks } => advice_on_data(looks, image, part.as_ref()),
            Self::NoneOfThese { image, list } => advice_on_partitions(image, list),
            Self::NoPartitions { image } => format!("add a partition: obento part {} add", word(image)),
            Self::Ambiguous { image, candidates, .. } => choice(image, candidates),
            Self::NoSuchPart { part: PartSelector::Any(text), .. } if selector(text).is_some() => format!(
                "{} is not a selector; use name=, label= or uuid=",
                subject(selector(text).unwrap_or_default())
            ),
            Self::NoSuchPart { list, .. } if list.is_empty() => {
                "omit '@' and the text after it, or use @+OFFSET for a volume at that byte".to_owned()
            }
            Self::Volume { fs_type, is_requested, error, .. } => match **error {
                Error::Corrupt(_) if *is_requested => {
                    "omit --fs-type if the type may be wrong; otherwise copy the \
                                                       readable files with 'obento recover'"
                }
                _ => advice(fs_type, error),
            }
            .to_owned(),
            Self::ShortPartition { image, number, can_grow: true, .. } => format!(
                "run 'obento part {} grow {number}', which changes only the partition table",
                word(image)
            ),
            Self::ShortPartition { .. } => "restore the partition table, or the missing end of the image; \
                                            'obento recover' copies the files that are present"
                .to_owned(),
            Self::SuperBlock { otherwise, .. } => on_super_block(*otherwise),
            _ => return self.inner()?.hint(),
        };
        Some(hint).filter(|hint| !hint.is_empty())
    }
}

/// Returns the advice on data that looks like `looks`, with the name of the image in place of `IMAGE`.
pub fn advice_on_data(looks: &DataDescription, image: &Path, part: Option<&PartSelector>) -> String {
    let (advice, image) = (looks.advice, image.as_os_str().as_bytes());
    let part = part.filter(|_| !advice.contains("IMAGE@"));
    let is_partition = part.is_some();
    let part = part.map_or_else(String::new, |part| format!("@{part}"));
    let place = shell_word([image, part.as_bytes()].concat());
    // Other programs do not support the form IMAGE@PART.
    if is_partition && looks.form == DataForm::Mapped {
        let advice = advice.replace("IMAGE", "partition.img");
        return format!("copy the partition with 'obento convert {place} partition.img'; then {advice}");
    }
    advice.replace("IMAGE", &place)
}

/// Returns the hint for partitions without a supported file system, or an empty string.
fn advice_on_partitions(image: &Path, list: &[PartitionChoice]) -> String {
    let is_cut = |choice: &PartitionChoice| {
        let PartitionContents::Unreadable(error) = &choice.holds else { return false };
        matches!(error, Error::Device(DeviceError::OutOfBounds { .. }))
    };
    if list.iter().any(is_cut) {
        return "get a complete copy of the image".to_owned();
    }
    let advice = list.iter().find_map(|choice| match &choice.holds {
        PartitionContents::Other(looks) if !looks.advice.is_empty() => {
            Some((choice.partition.as_ref()?.number, looks))
        }
        _ => None,
    });
    advice.map_or_else(String::new, |(number, looks)| {
        advice_on_data(looks, image, Some(&PartSelector::Number(number)))
    })
}

/// Returns the word before the first `=` in `text`, with the `=`.
fn selector(text: &[u8]) -> Option<&[u8]> {
    text.iter().position(|&byte| byte == b'=').map(|at| &text[..=at])
}

/// Returns the path of an image as a word of a command.
fn word(image: &Path) -> String {
    shell_word(image.as_os_str().as_bytes())
}

/// Returns the command that unpacks an image.
fn unpack(image: &Path, layer: &str) -> String {
    let image = word(image);
    match layer {
        "vhd" | "vhdx" | "vmdk" | "vdi" | "android-sparse" => format!("obento convert {image} plain.img"),
        layer => format!("{layer} -dc {image} > plain.img"),
    }
}

/// Returns one line for each candidate, with the way to name it.
fn choice(image: &Path, candidates: &[Candidate]) -> String {
    let part = |part: &PartSelector| format!("@{part}");
    let line = |candidate: &Candidate| {
        let at = candidate.part.as_ref().map(part).unwrap_or_default();
        let at = [image.as_os_str().as_bytes(), at.as_bytes()].concat();
        match candidate.fs_type {
            Some(fs_type) => format!("\n  --fs-type {fs_type} {}", shell_word(at)),
            None => format!("\n  {}: {}, which is not supported", printable(&at), candidate.name),
        }
    };
    let lines: String = candidates.iter().map(line).collect();
    format!("select a volume and its type:{lines}")
}

fn on_super_block(otherwise: FallbackOutcome) -> String {
    let omit = "omit the number of the super block: the volume opens";
    match otherwise {
        FallbackOutcome::Opens => format!("{omit} without it"),
        FallbackOutcome::OpensByCopy(block) => format!("{omit} with the copy at block {block}"),
        FallbackOutcome::Fails => {
            "copies are usually at blocks 32768, 98304 and 163840, or with blocks of 1 KiB at 8193, \
                                   24577 and 40961"
                .to_owned()
        }
    }
}

/// Returns the hint for a feature that is not supported, or an empty string.
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
        Feature::Named("journal_dev") => {
            "this is an external journal: open its volume, and name this file with --journal"
        }
        Feature::ExternalJournal => "name the file or device of the journal: --journal FILE",
        Feature::UnreplayedLog => "run 'obento check -p' first, which replays the log",
        Feature::Cluster => "run 'tunegfs2 -o lockproto=lock_nolock' on a volume that no cluster uses",
        // obento's own list of writable types names no other way.
        Feature::Writing => "",
        _ => "mount the volume with Linux instead",
    }
}

/// Returns the hint for an error of a driver at opening, or an empty string.
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
        let structure = Structure::Quota(obento::base::Ino(3));
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

    #[test]
    fn a_command_in_a_hint_quotes_a_name_that_the_shell_would_change() {
        let hint = |error: OpenError| error.hint().unwrap();
        let image = || "my disk.img".into();
        assert_eq!(
            hint(OpenError::Packed { image: image(), layer: "gzip" }),
            "convert the image first: gzip -dc 'my disk.img' > plain.img"
        );
        assert_eq!(
            hint(OpenError::NoPartitions { image: image() }),
            "add a partition: obento part 'my disk.img' add"
        );
        let part = Some(PartSelector::Number(1));
        let candidates = vec![Candidate { part, name: "ext4", fs_type: Some("ext4") }];
        assert_eq!(
            hint(OpenError::Ambiguous { image: image(), part: None, candidates }),
            "select a volume and its type:\n  --fs-type ext4 'my disk.img@1'"
        );
    }
}
