//! How volumes are shown whose format keeps no owners, permissions, code page or time zone, or has several trees: by words of `mount -o`,
//! for every command.

use std::str::FromStr;

use obento::{Keeps, Shown, Volume};
use obento_fuse::options::MountOptions;

/// The words that say it, for those who are to leave them out.
pub const WORDS: &str =
    "uid, gid, umask, dmask, fmask, codepage, tz, time_offset, keep_last_dots, discard, streams and subvolid";
/// Why they say nothing of a volume.
pub const KEPT: &str = "the file system keeps owners, permissions and times itself";
/// Why one of them says nothing.
pub const ONE_TREE: &str = "subvolid says nothing of a file system that is no Btrfs";

/// Such words, and what they say.
#[derive(Clone, Debug)]
pub struct ShownWords {
    /// As they were given.
    pub words: String,
    pub shown: Shown,
}

impl FromStr for ShownWords {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let mut options = MountOptions::default();
        options.take(words).map_err(|error| error.to_string())?;
        let shown = options.shown;
        match options == (MountOptions { shown, ..MountOptions::default() }) {
            true => Ok(Self { words: words.into(), shown }),
            false => Err(format!("without a mount only {WORDS} have a meaning")),
        }
    }
}

/// Why some of `shown` says nothing of `volume`.
pub fn in_vain(shown: Shown, volume: &Volume) -> Option<&'static str> {
    let of_files = Shown { subvolume: None, ..shown };
    if of_files != Shown::default() && volume.vfs().limits().keeps.contains(Keeps::OWNERS) {
        return Some(KEPT);
    }
    (shown.subvolume.is_some() && volume.info().probe.fs_type != "btrfs").then_some(ONE_TREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_say_how_files_are_shown_are_taken_and_those_of_a_mount_alone_are_not() {
        let taken = |words: &str| words.parse::<ShownWords>().map(|taken| taken.shown);
        let expected = Shown { uid: Some(7), code_page: Some(850), ..Shown::default() };
        assert_eq!(taken("uid=7,iocharset=utf8,codepage=850"), Ok(expected));
        assert_eq!(taken("uid=me"), Err("the mount option `uid` wants a number, not `me`".into()));
        for mounting in ["ro", "allow_other", "uid=1,threads=2"] {
            assert!(taken(mounting).is_err_and(|error| error.starts_with("without a mount")), "{mounting}");
        }
    }
}
