//! The options that show volumes without owners, permissions, code page or time zone, or with several trees: words of
//! `mount -o` for every command.

use std::str::FromStr;

use obento::Volume;
use obento::driver::{StoredProperties, VolumeOptions};
use obento_fuse::options::MountOptions;

use crate::options::GlobalOptions;
use crate::report::Report;

/// The supported words, for messages.
pub const WORDS: &str =
    "uid, gid, umask, dmask, fmask, codepage, tz, time_offset, keep_last_dots, discard, streams and subvolid";
/// The reason why the words have no effect on a volume.
pub const KEPT: &str = "the file system stores owners, permissions and times itself";
/// The reason why `discard` has no effect.
const ONLY_FAT: &str = "discard is supported only on FAT and exFAT";
/// The reason why `streams` has no effect.
const ONLY_NTFS: &str = "only NTFS has alternate data streams";
/// The reason why `subvolid` has no effect.
pub const ONE_TREE: &str = "subvolid requires a Btrfs or bcachefs volume";

/// Words of `mount -o`, parsed.
#[derive(Clone, Debug)]
pub struct PresentationOptions {
    /// The words as they were given.
    pub words: String,
    pub shown: VolumeOptions,
}

impl FromStr for PresentationOptions {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let mut options = MountOptions::default();
        options.take(words).map_err(|error| Report::plain(error).to_string())?;
        let shown = options.shown;
        match options == (MountOptions { shown, ..MountOptions::default() }) {
            true => Ok(Self { words: words.into(), shown }),
            false => Err(format!("without a mount only {WORDS} are supported")),
        }
    }
}

/// The options that are given.
pub trait GivenNames {
    /// Returns the names of the options that differ from the default.
    fn names(&self) -> Vec<&'static str>;
}

impl GivenNames for VolumeOptions {
    fn names(&self) -> Vec<&'static str> {
        let masks = match (self.file_mask, self.dir_mask) {
            (None, None) => None,
            (Some(_), None) => Some("fmask"),
            (None, Some(_)) => Some("dmask"),
            (Some(files), Some(dirs)) if files == dirs => Some("umask"),
            (Some(_), Some(_)) => Some("fmask and dmask"),
        };
        let given = [
            self.uid.map(|_| "uid"),
            self.gid.map(|_| "gid"),
            masks,
            self.code_page.map(|_| "codepage"),
            self.time_offset.map(|_| "the option of the time zone"),
            self.keep_last_dots.then_some("keep_last_dots"),
            self.discard.then_some("discard"),
            self.hide_streams.then_some("streams"),
            self.subvolume.map(|_| "subvolid"),
        ];
        given.into_iter().flatten().collect()
    }
}

/// Returns the options of `shown` that have no effect on `volume`, and the reason.
pub fn in_vain(shown: VolumeOptions, volume: &Volume) -> Option<(VolumeOptions, &'static str)> {
    let none = VolumeOptions::default();
    let fs_type = volume.info().probe.fs_type;
    let keeps_owners = volume.vfs().limits().keeps.contains(StoredProperties::OWNERS);
    let discard = VolumeOptions { discard: shown.discard, ..none };
    let streams = VolumeOptions { hide_streams: shown.hide_streams, ..none };
    let subvolume = VolumeOptions { subvolume: shown.subvolume, ..none };
    let of_files = VolumeOptions { discard: false, hide_streams: false, subvolume: None, ..shown };
    let has_trees = matches!(fs_type, "btrfs" | "bcachefs");
    let checked = [
        (of_files, keeps_owners, KEPT),
        (discard, keeps_owners, ONLY_FAT),
        (streams, fs_type != "ntfs", ONLY_NTFS),
        (subvolume, !has_trees, ONE_TREE),
    ];
    let found = checked.into_iter().find(|(given, is_vain, _)| *is_vain && *given != none);
    found.map(|(given, _, why)| (given, why))
}

/// The options of opening that the native driver of `fs_type` ignores. The kernel engine refuses them.
pub fn ignored(options: &GlobalOptions, fs_type: &str) -> Vec<&'static str> {
    let is_ext = fs_type.starts_with("ext");
    let given = [
        (options.superblock.is_some() && !is_ext, "--superblock"),
        (options.ignore_checksums && !is_ext && fs_type != "vfat", "--ignore-checksums"),
        (options.no_replay && !is_ext && !matches!(fs_type, "bcachefs" | "lfs" | "xv6"), "--no-replay"),
    ];
    given.into_iter().filter_map(|(is_ignored, name)| is_ignored.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_options_are_named() {
        let names = |words: &str| words.parse::<PresentationOptions>().unwrap().shown.names();
        assert_eq!(names("uid=7,umask=22"), ["uid", "umask"]);
        assert_eq!(names("fmask=1,subvolid=256"), ["fmask", "subvolid"]);
        assert_eq!(VolumeOptions::default().names().len(), 0);
    }

    #[test]
    fn words_that_change_how_files_are_shown_are_accepted_and_others_are_rejected() {
        let taken = |words: &str| words.parse::<PresentationOptions>().map(|taken| taken.shown);
        let expected = VolumeOptions { uid: Some(7), code_page: Some(850), ..VolumeOptions::default() };
        assert_eq!(taken("uid=7,iocharset=utf8,codepage=850"), Ok(expected));
        let error = "invalid value 'me' for the mount option 'uid': expected a number";
        assert_eq!(taken("uid=me"), Err(error.into()));
        for mounting in ["ro", "allow_other", "uid=1,threads=2"] {
            assert!(taken(mounting).is_err_and(|error| error.starts_with("without a mount")), "{mounting}");
        }
    }
}
