//! The words after `-o`, as mount(8), ext4(5) and libfuse have them.
//!
//! Invariant: a word that nobody knows is refused by name; one that stands for what is done anyway is taken.

use std::ffi::OsString;
use std::time::Duration;

use obento::{DataMode, Journalling, Mode, Shown};
use rustix::mount::MountFlags;

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Whether it is to be changed; `None`: if the image can be.
    pub access: Option<ReadWrite>,
    /// How the journal is used.
    pub journalling: Journalling,
    /// When reading stamps access times.
    pub atime: AccessTimes,
    /// Every change is durable before it is answered.
    pub sync: bool,
    /// The journal is not replayed.
    pub no_replay: bool,
    /// Other users may look, and do what permissions say.
    pub allow_other: bool,
    /// What mount(8) shows as the source, in place of the image.
    pub fs_name: Option<OsString>,
    /// What stands behind `fuse.` in the type; empty for a type `fuse`.
    pub subtype: String,
    /// Set-user-ID programs count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs can be started.
    pub exec: bool,
    /// How many requests may wait for the disk at once.
    pub threads: Option<usize>,
    /// The kernel gathers writes.
    pub writeback: bool,
    /// Use the super block at this block.
    pub super_block: Option<u64>,
    /// What a format like FAT does not say.
    pub shown: Shown,
}

/// Whether a mount can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadWrite {
    /// `ro`.
    Read,
    /// `rw`.
    Write,
}

/// When reading stamps access times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessTimes {
    /// `noatime`.
    Never,
    /// `relatime`.
    Relative,
    /// `strictatime`.
    Always,
}

impl Default for MountOptions {
    /// As root, all that mount(8) does by default; others get neither set-user-ID nor devices.
    fn default() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            access: None,
            journalling: Journalling::default(),
            atime: AccessTimes::Relative,
            sync: false,
            no_replay: false,
            allow_other: false,
            fs_name: None,
            subtype: "obento".into(),
            suid: is_root,
            dev: is_root,
            exec: true,
            threads: None,
            writeback: true,
            super_block: None,
            shown: Shown::default(),
        }
    }
}

/// A word that cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error("there is no mount option `{word}`{}", Similar(word))]
    Unknown {
        /// The word.
        word: String,
    },
    /// It takes a value of another kind.
    #[error("the mount option `{name}` wants {wanted}, not `{value}`")]
    Value {
        /// Which.
        name: String,
        /// What it wants.
        wanted: &'static str,
        /// What it was given.
        value: String,
    },
    /// It is known, and cannot be done.
    #[error("the mount option `{0}` is not possible: {1}")]
    Impossible(String, &'static str),
}

/// Words that stand for what is done anyway, or that are for others who read the same line.
const TAKEN: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "loop",
    "acl",
    "user_xattr",
    "default_permissions",
    "nodiratime",
    "nolazytime",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "delalloc",
    "nodelalloc",
    "auto_da_alloc",
    "noauto_da_alloc",
    "journal_checksum",
    "big_writes",
    "async",
    "norelatime",
    "nostrictatime",
    "diratime",
    "atime",
    "errors=remount-ro",
    "utf8",
    "utf8=1",
    "shortname=mixed",
];

/// Words with a meaning, for those who mistype one.
const KNOWN: &[&str] = &[
    "ro",
    "rw",
    "sync",
    "dirsync",
    "noatime",
    "relatime",
    "strictatime",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "allow_other",
    "norecovery",
    "noload",
    "barrier",
    "nobarrier",
    "data",
    "commit",
    "fsname",
    "subtype",
    "threads",
    "sb",
    "uid",
    "gid",
    "umask",
    "fmask",
    "dmask",
    "codepage",
    "iocharset",
    "tz",
    "time_offset",
    "keep_last_dots",
    "discard",
    "nodiscard",
    "subvolid",
    "writeback_cache",
    "no_writeback_cache",
];

/// `BTRFS_FS_TREE_OBJECTID`, the subvolume that all others are in. Source: Linux 6.1, include/uapi/linux/btrfs_tree.h.
const FIRST_SUBVOLUME: u64 = 5;

impl MountOptions {
    /// Takes the words of one `-o`, later ones over earlier.
    pub fn take(&mut self, words: &str) -> Result<(), OptionError> {
        split(words).iter().filter(|word| !word.is_empty()).try_for_each(|word| self.take_word(word))
    }

    /// [`take`](Self::take), but leaves out words that nobody knows.
    pub fn take_known(&mut self, words: &str) -> Result<(), OptionError> {
        split(words).iter().filter(|word| !word.is_empty()).try_for_each(|word| match self.take_word(word) {
            Err(OptionError::Unknown { .. }) => Ok(()),
            taken => taken,
        })
    }

    fn take_word(&mut self, word: &str) -> Result<(), OptionError> {
        if TAKEN.contains(&word)
            || word.starts_with("x-")
            || word.starts_with("X-")
            || word.starts_with("comment=")
        {
            return Ok(());
        }
        match word.split_once('=') {
            Some((name, value)) => self.take_value(name, value, word),
            None => self.take_flag(word),
        }
    }

    fn take_flag(&mut self, word: &str) -> Result<(), OptionError> {
        match word {
            "ro" => self.access = Some(ReadWrite::Read),
            "rw" => self.access = Some(ReadWrite::Write),
            "sync" | "dirsync" => self.sync = true,
            "noatime" => self.atime = AccessTimes::Never,
            "relatime" => self.atime = AccessTimes::Relative,
            "strictatime" => self.atime = AccessTimes::Always,
            "suid" | "nosuid" => self.suid = word == "suid",
            "dev" | "nodev" => self.dev = word == "dev",
            "exec" | "noexec" => self.exec = word == "exec",
            "allow_other" => self.allow_other = true,
            "norecovery" | "noload" => self.no_replay = true,
            "barrier" | "nobarrier" => self.journalling.barrier = word == "barrier",
            "writeback_cache" | "no_writeback_cache" => self.writeback = word == "writeback_cache",
            "keep_last_dots" => self.shown.keep_last_dots = true,
            "discard" | "nodiscard" => self.shown.discard = word == "discard",
            "sys_tz" => return Err(impossible(word, "the kernel's time zone is its own: use time_offset")),
            "allow_root" => return Err(impossible(word, "the kernel knows only allow_other")),
            "auto_unmount" => {
                return Err(impossible(word, "a mount whose server was killed waits for umount"));
            }
            "remount" => return Err(impossible(word, "unmount it, and mount it again")),
            "bind" | "rbind" | "move" => return Err(impossible(word, "that is for mount(8) alone")),
            _ => return Err(OptionError::Unknown { word: word.into() }),
        }
        Ok(())
    }

    fn take_value(&mut self, name: &str, value: &str, word: &str) -> Result<(), OptionError> {
        let wanted = |wanted| OptionError::Value { name: name.into(), wanted, value: value.into() };
        let number = || value.parse::<u64>().map_err(|_| wanted("a number"));
        match name {
            "data" => {
                self.journalling.mode = match value {
                    "ordered" => DataMode::Ordered,
                    "journal" => DataMode::Journal,
                    "writeback" => DataMode::Writeback,
                    _ => return Err(wanted("ordered, journal or writeback")),
                }
            }
            "barrier" => self.journalling.barrier = number()? != 0,
            // As ext4: 0 stands for the default.
            "commit" => {
                let secs = Some(number()?).filter(|&secs| secs > 0).unwrap_or(5);
                self.journalling.commit_interval = Duration::from_secs(secs);
            }
            "threads" => {
                let count = usize::try_from(number()?).ok().filter(|count| (1..=256).contains(count));
                self.threads = Some(count.ok_or_else(|| wanted("a number from 1 to 256"))?);
            }
            "uid" => self.shown.uid = Some(value.parse().map_err(|_| wanted("a number"))?),
            "gid" => self.shown.gid = Some(value.parse().map_err(|_| wanted("a number"))?),
            "umask" | "fmask" | "dmask" => {
                let mask = u16::from_str_radix(value, 8).ok().filter(|&mask| mask <= 0o777);
                let mask = Some(Mode::new(mask.ok_or_else(|| wanted("a number of base 8, up to 777"))?));
                if name != "dmask" {
                    self.shown.file_mask = mask;
                }
                if name != "fmask" {
                    self.shown.dir_mask = mask;
                }
            }
            "codepage" => {
                let page = value.parse().ok().filter(|page| [437, 850, 1252].contains(page));
                self.shown.code_page = Some(page.ok_or_else(|| wanted("437, 850 or 1252"))?);
            }
            // Names are always UTF-8.
            "iocharset" if ["utf8", "utf-8"].contains(&value) => {}
            "iocharset" => return Err(wanted("utf8")),
            "tz" if value == "UTC" => self.shown.time_offset = Some(0),
            "tz" => return Err(wanted("UTC")),
            "time_offset" => {
                let minutes = value.parse().ok().filter(|minutes| (-1440..=1440).contains(minutes));
                self.shown.time_offset = Some(minutes.ok_or_else(|| wanted("minutes, from -1440 to 1440"))?);
            }
            "subvolid" => {
                let number = value.parse().ok().filter(|number| *number >= FIRST_SUBVOLUME);
                self.shown.subvolume =
                    Some(number.ok_or_else(|| wanted("the number of a subvolume, 5 for the top"))?);
            }
            "streams" => {
                self.shown.hide_streams = match value {
                    "user" => false,
                    "none" => true,
                    _ => return Err(wanted("user or none")),
                }
            }
            "subvol" => return Err(impossible(word, "a subvolume is named by its number: use subvolid")),
            "allow_utime" => return Err(impossible(word, "permissions say who may set times")),
            "sb" => self.super_block = Some(number()?),
            "fsname" => self.fs_name = Some(value.into()),
            "subtype" => self.subtype = value.into(),
            "errors" => return Err(impossible(word, "after an error a volume is always read-only")),
            _ => return Err(OptionError::Unknown { word: word.into() }),
        }
        Ok(())
    }

    /// The type that the kernel shows.
    pub fn fs_type(&self) -> String {
        if self.subtype.is_empty() { "fuse".into() } else { format!("fuse.{}", self.subtype) }
    }

    /// What the kernel itself sees to.
    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.access == Some(ReadWrite::Read));
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::NOATIME, self.atime == AccessTimes::Never);
        flags
    }

    /// The same for `fusermount3`.
    pub(crate) fn words_for_helper(&self) -> String {
        let mut words = vec!["default_permissions"];
        let mut add = |condition: bool, word| words.extend(condition.then_some(word));
        add(self.access == Some(ReadWrite::Read), "ro");
        add(!self.suid, "nosuid");
        add(!self.dev, "nodev");
        add(!self.exec, "noexec");
        add(self.sync, "sync");
        add(self.atime == AccessTimes::Never, "noatime");
        add(self.allow_other, "allow_other");
        let subtype = format!("subtype={}", self.subtype);
        add(!self.subtype.is_empty(), &subtype);
        words.join(",")
    }
}

fn impossible(word: &str, why: &'static str) -> OptionError {
    OptionError::Impossible(word.into(), why)
}

/// Splits at commas; a backslash takes a comma's meaning away.
fn split(words: &str) -> Vec<String> {
    let mut list = vec![String::new()];
    let mut chars = words.chars();
    while let Some(char) = chars.next() {
        match (char, list.last_mut()) {
            (',', _) => list.push(String::new()),
            ('\\', Some(last)) => last.extend(chars.next()),
            (char, Some(last)) => last.push(char),
            (_, None) => {}
        }
    }
    list
}

/// `; did you mean`, if one is close.
struct Similar<'a>(&'a str);

impl std::fmt::Display for Similar<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.split('=').next().unwrap_or_default();
        let close = KNOWN.iter().chain(TAKEN).map(|known| (distance(name, known), known)).min();
        match close.filter(|&(distance, _)| distance <= 2) {
            Some((_, known)) => write!(f, "; did you mean `{known}`?"),
            None => Ok(()),
        }
    }
}

/// How many letters to put in, take out or change to come from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(words: &str) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        options.take(words).map(|()| options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_words_of_a_line_of_fstab_are_taken() {
        let options =
            taken("defaults,ro,noatime,data=journal,commit=7,nosuid,x-systemd.automount,nofail").unwrap();
        assert_eq!(options.access, Some(ReadWrite::Read));
        assert_eq!(options.atime, AccessTimes::Never);
        assert_eq!(options.journalling.mode, DataMode::Journal);
        assert_eq!(options.journalling.commit_interval, Duration::from_secs(7));
        assert!(!options.suid);
    }

    #[test]
    fn the_words_of_vfat_are_taken() {
        let shown = taken("uid=1000,gid=100,umask=077,fmask=133,codepage=850,iocharset=utf8,time_offset=-60");
        let expected = Shown {
            uid: Some(1000),
            gid: Some(100),
            file_mask: Some(Mode::new(0o133)),
            dir_mask: Some(Mode::new(0o077)),
            code_page: Some(850),
            time_offset: Some(-60),
            ..Shown::default()
        };
        assert_eq!(shown.unwrap().shown, expected);
        assert_eq!(taken("tz=UTC").unwrap().shown.time_offset, Some(0));
        assert_eq!(taken("subvolid=256").unwrap().shown.subvolume, Some(256));
        assert!(taken("streams=none").unwrap().shown.hide_streams);
        assert!(!taken("streams=none,streams=user").unwrap().shown.hide_streams);
        assert!(taken("subvol=home").unwrap_err().ends_with("use subvolid"));
        for (word, wanted) in [
            ("codepage=932", "437, 850 or 1252"),
            ("umask=9", "a number of base 8, up to 777"),
            ("uid=me", "a number"),
            ("tz=CET", "UTC"),
            ("iocharset=koi8-r", "utf8"),
            ("time_offset=2000", "minutes, from -1440 to 1440"),
            ("streams=windows", "user or none"),
            ("subvolid=4", "the number of a subvolume, 5 for the top"),
        ] {
            let (name, value) = word.split_once('=').unwrap();
            assert_eq!(
                taken(word).unwrap_err(),
                format!("the mount option `{name}` wants {wanted}, not `{value}`")
            );
        }
    }

    #[test]
    fn the_words_of_exfat_are_taken() {
        let words = "uid=7,dmask=022,iocharset=utf8,errors=remount-ro,discard,keep_last_dots,time_offset=90";
        let expected = Shown {
            uid: Some(7),
            dir_mask: Some(Mode::new(0o022)),
            time_offset: Some(90),
            keep_last_dots: true,
            discard: true,
            ..Shown::default()
        };
        assert_eq!(taken(words).unwrap().shown, expected);
        assert!(!taken("discard,nodiscard").unwrap().shown.discard);
        assert_eq!(
            taken("sys_tz").unwrap_err(),
            "the mount option `sys_tz` is not possible: the kernel's time zone is its own: use time_offset"
        );
        assert!(taken("errors=panic").unwrap_err().contains("always read-only"));
        assert!(taken("allow_utime=022").is_err());
    }

    #[test]
    fn the_last_word_wins() {
        assert_eq!(taken("ro,rw").unwrap().access, Some(ReadWrite::Write));
    }

    #[test]
    fn a_mistyped_word_is_refused_by_its_name() {
        assert_eq!(
            taken("noatme").unwrap_err(),
            "there is no mount option `noatme`; did you mean `noatime`?"
        );
        assert_eq!(
            taken("dta=journal").unwrap_err(),
            "there is no mount option `dta=journal`; did you mean `data`?"
        );
        assert_eq!(taken("frobnicate").unwrap_err(), "there is no mount option `frobnicate`");
        assert_eq!(
            taken("data=jounral").unwrap_err(),
            "the mount option `data` wants ordered, journal or writeback, not `jounral`"
        );
    }

    #[test]
    fn the_type_is_fuse_with_the_subtype() {
        assert_eq!(taken("").unwrap().fs_type(), "fuse.obento");
        assert_eq!(taken("subtype=").unwrap().fs_type(), "fuse");
        assert_eq!(taken(r"fsname=a\,b").unwrap().fs_name.unwrap(), "a,b");
    }
}
