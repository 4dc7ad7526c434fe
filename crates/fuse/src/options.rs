//! The mount options of `-o`, with the names of mount(8), ext4(5) and libfuse.
//!
//! Invariant: an unknown option is an error that names the option. An option that requests the fixed behaviour is
//! accepted.

use std::ffi::OsString;
use std::time::Duration;

use obento_base::Mode;
use obento_driver::{DataMode, Journalling, QuotaLimits, VolumeOptions};
use rustix::mount::MountFlags;
use strsim::levenshtein;

use crate::session_options::RingChoice;

/// The options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Read-only or read-write; `None`: read-write if the image is writable.
    pub access: Option<ReadWrite>,
    /// Whether to change the options of an existing mount.
    pub remount: bool,
    /// The use of the journal.
    pub journalling: Journalling,
    /// The quota limits to enforce.
    pub limits: QuotaLimits,
    /// An option for quota files of the old format.
    pub old_quota: Option<String>,
    /// The rule by which a read updates the access time.
    pub atime: AccessTimes,
    /// The same, if an option chose it.
    pub chosen_atime: Option<AccessTimes>,
    /// Every change is durable before the system call returns.
    pub sync: bool,
    /// The journal is not replayed.
    pub no_replay: bool,
    /// Other users may use the mount, as the permissions of its files allow.
    pub allow_other: bool,
    /// The user who mounts the volume has the rights of root on it.
    pub fakeroot: bool,
    /// The source that mount(8) shows instead of the image.
    pub fs_name: Option<OsString>,
    /// The text after `fuse.` in the file system type; empty for the type `fuse`.
    pub subtype: String,
    /// The set-user-ID and set-group-ID bits of programs are in force.
    pub suid: bool,
    /// Device nodes can be opened.
    pub dev: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// The number of requests that may wait for the disk at the same time.
    pub threads: Option<usize>,
    /// The kernel caches writes in its page cache.
    pub writeback: bool,
    /// Whether requests arrive through `io_uring`.
    pub io_uring: RingChoice,
    /// The block of the super block to use.
    pub super_block: Option<u64>,
    /// Attributes that a format such as FAT does not store.
    pub shown: VolumeOptions,
    /// The history of the files is recorded.
    pub provenance: bool,
    /// The directory of the recorded history is visible, but cannot be changed.
    pub show_provenance: bool,
    /// If the server fails, another one continues.
    pub failover: Option<Restarter>,
}

/// Starts another server of a mount after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restarter {
    /// A process of this program, until there were this number of failures within ten seconds.
    Keeper(u32),
    /// The service manager systemd.
    Systemd,
}

/// The access that a mount allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadWrite {
    /// `ro`.
    Read,
    /// `rw`.
    Write,
}

/// The rule by which a read updates the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessTimes {
    /// `noatime`.
    Never,
    /// `relatime`.
    #[default]
    Relative,
    /// `strictatime`.
    Always,
}

impl AccessTimes {
    /// The name of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Never => "noatime",
            Self::Relative => "relatime",
            Self::Always => "strictatime",
        }
    }
}

impl Default for MountOptions {
    /// Returns the defaults of mount(8). For users other than root, `suid` and `dev` are off.
    fn default() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            access: None,
            remount: false,
            chosen_atime: None,
            journalling: Journalling::default(),
            limits: QuotaLimits::empty(),
            old_quota: None,
            atime: AccessTimes::Relative,
            sync: false,
            no_replay: false,
            allow_other: false,
            fakeroot: false,
            fs_name: None,
            subtype: "obento".into(),
            suid: is_root,
            dev: is_root,
            exec: true,
            threads: None,
            writeback: true,
            io_uring: RingChoice::Auto,
            super_block: None,
            shown: VolumeOptions::default(),
            provenance: false,
            show_provenance: false,
            failover: None,
        }
    }
}

/// The reason why an option is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// The option is unknown.
    #[error("unknown mount option '{word}'")]
    Unknown {
        /// The option.
        word: String,
    },
    /// The value is invalid.
    #[error("invalid value '{value}' for the mount option '{name}': expected {wanted}")]
    Value {
        /// The name of the option.
        name: String,
        /// The valid values.
        wanted: &'static str,
        /// The given value.
        value: String,
    },
    /// The option is known but not supported, for this reason.
    #[error("cannot use the mount option '{0}': {1}")]
    Impossible(String, &'static str),
}

impl OptionError {
    /// Returns the option that is similar to the unknown one, if an option is.
    pub fn similar(&self) -> Option<&'static str> {
        let Self::Unknown { word } = self else { return None };
        let name = word.split('=').next().unwrap_or_default();
        let close = KNOWN.iter().chain(TAKEN).map(|known| (levenshtein(name, known), *known)).min();
        let is_similar = |distance| distance <= 2 && distance * 2 <= name.chars().count();
        close.filter(|&(distance, _)| is_similar(distance)).map(|(_, known)| known)
    }
}

/// Options that request the fixed behaviour, and options for other programs that read the same line of fstab.
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

/// Options with an effect, from which an error suggests a similar one.
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
    "fakeroot",
    "norecovery",
    "noload",
    "barrier",
    "nobarrier",
    "data",
    "commit",
    "quota",
    "noquota",
    "usrquota",
    "grpquota",
    "prjquota",
    "usrjquota",
    "grpjquota",
    "jqfmt",
    "remount",
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
    "streams",
    "tz",
    "time_offset",
    "keep_last_dots",
    "discard",
    "nodiscard",
    "subvolid",
    "writeback_cache",
    "no_writeback_cache",
    "io_uring",
    "provenance",
    "show_provenance",
    "failover",
];

/// The number of failures of a server within ten seconds after which no other one is started.
const FAILURES: u32 = 3;

impl MountOptions {
    /// Sets the options that `failover` implies: the kernel caches no writes, which would be lost with the state of the
    /// gate of a full volume, and requests do not arrive through `io_uring`, which is tied to a process. Fails for an
    /// option that contradicts them.
    ///
    /// `fakeroot` excludes `allow_other`, because other users would also have the rights of root. With quota limits, the
    /// kernel caches no writes either.
    pub fn settle(&mut self) -> Result<(), OptionError> {
        if self.fakeroot && self.allow_other {
            return Err(impossible("allow_other", "with fakeroot, all users would have the rights of root"));
        }
        if self.no_replay && self.access != Some(ReadWrite::Read) && !self.remount {
            return Err(impossible(
                "norecovery",
                "it requires ro: without its journal, the volume is in a past state",
            ));
        }
        if !self.limits.is_empty() {
            // A write must fail before its data is accepted, and the kernel does not name the writer of cached data.
            self.writeback = false;
        }
        if self.failover.is_none() {
            return Ok(());
        }
        const EXCLUDED: &str = "it cannot be combined with failover";
        let contradictions = [
            (self.sync, "sync", "with failover, call fsync(2) instead"),
            (self.provenance, self.provenance_name(), EXCLUDED),
            (self.access == Some(ReadWrite::Read), "ro", EXCLUDED),
            (self.io_uring == RingChoice::On, "io_uring=on", EXCLUDED),
        ];
        if let Some((_, word, why)) = contradictions.into_iter().find(|(is_so, ..)| *is_so) {
            return Err(impossible(word, why));
        }
        (self.writeback, self.io_uring, self.access) = (false, RingChoice::Off, Some(ReadWrite::Write));
        Ok(())
    }

    /// Returns the name of the option that records the history of the files.
    pub fn provenance_name(&self) -> &'static str {
        if self.show_provenance { "show_provenance" } else { "provenance" }
    }

    /// Applies a comma-separated list of options. A later option overrides an earlier one.
    pub fn take(&mut self, words: &str) -> Result<(), OptionError> {
        let words = split(words);
        // Other options depend on it.
        self.remount |= words.iter().any(|word| word == "remount");
        words.iter().filter(|word| !word.is_empty()).try_for_each(|word| self.take_word(word))
    }

    /// Applies options like [`take`](Self::take), but ignores unknown ones.
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

    fn choose_atime(&mut self, atime: AccessTimes) {
        self.atime = atime;
        self.chosen_atime = Some(atime);
    }

    fn take_flag(&mut self, word: &str) -> Result<(), OptionError> {
        match word {
            "ro" => self.access = Some(ReadWrite::Read),
            "rw" => self.access = Some(ReadWrite::Write),
            "sync" | "dirsync" => self.sync = true,
            "noatime" => self.choose_atime(AccessTimes::Never),
            "relatime" => self.choose_atime(AccessTimes::Relative),
            "strictatime" => self.choose_atime(AccessTimes::Always),
            "suid" | "nosuid" => self.suid = word == "suid",
            "dev" | "nodev" => self.dev = word == "dev",
            "exec" | "noexec" => self.exec = word == "exec",
            "allow_other" => self.allow_other = true,
            "fakeroot" => self.fakeroot = true,
            "quota" | "usrquota" => self.limits |= QuotaLimits::USERS,
            "grpquota" => self.limits |= QuotaLimits::GROUPS,
            "prjquota" => self.limits |= QuotaLimits::PROJECTS,
            "noquota" => self.limits = QuotaLimits::empty(),
            "norecovery" | "noload" => self.no_replay = true,
            "barrier" | "nobarrier" => self.journalling.barrier = word == "barrier",
            "writeback_cache" | "no_writeback_cache" => self.writeback = word == "writeback_cache",
            "provenance" => self.provenance = true,
            "show_provenance" => (self.provenance, self.show_provenance) = (true, true),
            "failover" => self.failover = Some(Restarter::Keeper(FAILURES)),
            "keep_last_dots" => self.shown.keep_last_dots = true,
            "discard" | "nodiscard" => self.shown.discard = word == "discard",
            "sys_tz" => {
                return Err(impossible(
                    word,
                    "obento does not use the time zone of the kernel; use time_offset",
                ));
            }
            "allow_root" => return Err(impossible(word, "use allow_other")),
            "auto_unmount" => {
                return Err(impossible(word, "run umount after the server was killed"));
            }
            "remount" => self.remount = true,
            "bind" | "rbind" | "move" => return Err(impossible(word, "use mount(8)")),
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
            // As for ext4, 0 means the default.
            "commit" => {
                let secs = Some(number()?).filter(|&secs| secs > 0).unwrap_or(5);
                self.journalling.commit_interval = Duration::from_secs(secs);
            }
            "threads" => {
                let count = usize::try_from(number()?).ok().filter(|count| (1..=256).contains(count));
                self.threads = Some(count.ok_or_else(|| wanted("a number from 1 to 256"))?);
            }
            "io_uring" => {
                self.io_uring = match value {
                    "auto" => RingChoice::Auto,
                    "on" => RingChoice::On,
                    "off" => RingChoice::Off,
                    _ => return Err(wanted("auto, on or off")),
                }
            }
            "failover" => {
                let count = value.parse().ok().filter(|count| (2..=1000).contains(count));
                self.failover = Some(match count {
                    _ if value == "systemd" => Restarter::Systemd,
                    Some(count) => Restarter::Keeper(count),
                    None => return Err(wanted("a number from 2 to 1000, or systemd")),
                });
            }
            "uid" => self.shown.uid = Some(value.parse().map_err(|_| wanted("a number"))?),
            "gid" => self.shown.gid = Some(value.parse().map_err(|_| wanted("a number"))?),
            "umask" | "fmask" | "dmask" => {
                let mask = u16::from_str_radix(value, 8).ok().filter(|&mask| mask <= 0o777);
                let mask = Some(Mode::new(mask.ok_or_else(|| wanted("an octal number up to 777"))?));
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
                self.shown.time_offset = Some(minutes.ok_or_else(|| wanted("minutes from -1440 to 1440"))?);
            }
            "subvolid" => {
                // Subvolumes of Btrfs have other numbers than those of bcachefs: the driver finds out whether one exists.
                let number = value.parse().ok().filter(|number| *number > 0);
                self.shown.subvolume = Some(number.ok_or_else(|| wanted("the number of a subvolume"))?);
            }
            "streams" => {
                self.shown.hide_streams = match value {
                    "user" => false,
                    "none" => true,
                    _ => return Err(wanted("user or none")),
                }
            }
            "usrjquota" | "grpjquota" => {
                self.old_quota.get_or_insert_with(|| word.into());
            }
            "jqfmt" if ["vfsold", "vfsv0", "vfsv1"].contains(&value) => {
                self.old_quota.get_or_insert_with(|| word.into());
            }
            "jqfmt" => return Err(wanted("vfsold, vfsv0 or vfsv1")),
            "subvol" => return Err(impossible(word, "use subvolid with the number of the subvolume")),
            "allow_utime" => {
                return Err(impossible(word, "the permissions of a file decide who may set its times"));
            }
            "sb" => self.super_block = Some(number()?),
            "fsname" => self.fs_name = Some(value.into()),
            // `mount -o remount` would run mount.fuse(8), which starts the image as a program.
            "subtype" if value.is_empty() => {
                return Err(impossible(word, "mount(8) would start the image as a program"));
            }
            "subtype" => self.subtype = value.into(),
            // mount(8) passes the options that the kernel shows.
            "user_id" | "group_id" | "max_read" if self.remount => drop(number()?),
            "errors" => return Err(impossible(word, "a volume always becomes read-only after an error")),
            _ => return Err(OptionError::Unknown { word: word.into() }),
        }
        Ok(())
    }

    /// Returns the file system type that the kernel shows.
    pub fn fs_type(&self) -> String {
        format!("fuse.{}", self.subtype)
    }

    /// Returns the flags of the options that the kernel implements.
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

    /// Returns the same options in the syntax of `fusermount3`.
    pub(crate) fn words_for_helper(&self) -> String {
        let mut words = Vec::new();
        let mut add = |condition: bool, word| words.extend(condition.then_some(word));
        add(!self.fakeroot, "default_permissions");
        add(self.access == Some(ReadWrite::Read), "ro");
        add(!self.suid, "nosuid");
        add(!self.dev, "nodev");
        add(!self.exec, "noexec");
        add(self.sync, "sync");
        add(self.atime == AccessTimes::Never, "noatime");
        add(self.allow_other, "allow_other");
        let subtype = format!("subtype={}", self.subtype);
        add(true, &subtype);
        words.join(",")
    }
}

fn impossible(word: &str, why: &'static str) -> OptionError {
    OptionError::Impossible(word.into(), why)
}

/// Splits at commas. A backslash escapes a comma.
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
        let expected = VolumeOptions {
            uid: Some(1000),
            gid: Some(100),
            file_mask: Some(Mode::new(0o133)),
            dir_mask: Some(Mode::new(0o077)),
            code_page: Some(850),
            time_offset: Some(-60),
            ..VolumeOptions::default()
        };
        assert_eq!(shown.unwrap().shown, expected);
        assert_eq!(taken("tz=UTC").unwrap().shown.time_offset, Some(0));
        for number in [1, 256] {
            assert_eq!(taken(&format!("subvolid={number}")).unwrap().shown.subvolume, Some(number));
        }
        assert!(taken("streams=none").unwrap().shown.hide_streams);
        assert!(!taken("streams=none,streams=user").unwrap().shown.hide_streams);
        assert!(taken("subvol=home").unwrap_err().contains("use subvolid"));
        for (word, wanted) in [
            ("codepage=932", "437, 850 or 1252"),
            ("umask=9", "an octal number up to 777"),
            ("uid=me", "a number"),
            ("tz=CET", "UTC"),
            ("iocharset=koi8-r", "utf8"),
            ("time_offset=2000", "minutes from -1440 to 1440"),
            ("streams=windows", "user or none"),
            ("subvolid=0", "the number of a subvolume"),
            ("subvolid=home", "the number of a subvolume"),
        ] {
            let (name, value) = word.split_once('=').unwrap();
            assert_eq!(
                taken(word).unwrap_err(),
                format!("invalid value '{value}' for the mount option '{name}': expected {wanted}")
            );
        }
    }

    #[test]
    fn a_mount_without_a_replay_must_be_read_only() {
        for words in ["norecovery", "noload", "rw,norecovery", "ro,noload,rw"] {
            let text = taken(words).unwrap().settle().unwrap_err().to_string();
            assert!(text.starts_with("cannot use the mount option 'norecovery': it requires ro"), "{text}");
        }
        for words in ["ro,norecovery", "noload,ro", "norecovery,remount"] {
            taken(words).unwrap().settle().unwrap();
        }
    }

    #[test]
    fn an_option_that_contradicts_failover_is_reported_by_the_name_that_was_given() {
        for word in ["ro", "provenance", "show_provenance", "io_uring=on"] {
            let mut options = taken(&format!("failover,{word}")).unwrap();
            let reported =
                format!("cannot use the mount option '{word}': it cannot be combined with failover");
            assert_eq!(options.settle().unwrap_err().to_string(), reported);
        }
    }

    #[test]
    fn the_words_of_exfat_are_taken() {
        let words = "uid=7,dmask=022,iocharset=utf8,errors=remount-ro,discard,keep_last_dots,time_offset=90";
        let expected = VolumeOptions {
            uid: Some(7),
            dir_mask: Some(Mode::new(0o022)),
            time_offset: Some(90),
            keep_last_dots: true,
            discard: true,
            ..VolumeOptions::default()
        };
        assert_eq!(taken(words).unwrap().shown, expected);
        assert!(!taken("discard,nodiscard").unwrap().shown.discard);
        assert_eq!(
            taken("sys_tz").unwrap_err(),
            "cannot use the mount option 'sys_tz': obento does not use the time zone of the kernel; use time_offset"
        );
        assert!(taken("errors=panic").unwrap_err().contains("always becomes read-only"));
        assert!(taken("allow_utime=022").is_err());
    }

    #[test]
    fn quota_limits_are_chosen_as_for_ext4_and_exclude_the_write_back_cache() {
        let limits = |words| taken(words).unwrap().limits;
        assert_eq!(limits("quota"), QuotaLimits::USERS);
        assert_eq!(limits("usrquota,grpquota,prjquota"), QuotaLimits::all());
        assert_eq!(limits("usrquota,noquota,grpquota"), QuotaLimits::GROUPS);
        let mut options = taken("grpquota").unwrap();
        assert!(options.writeback);
        options.settle().unwrap();
        assert!(!options.writeback);
        let old = taken("usrjquota=aquota.user,jqfmt=vfsv0").unwrap();
        assert_eq!(
            (old.old_quota.as_deref(), old.limits),
            (Some("usrjquota=aquota.user"), QuotaLimits::empty())
        );
        assert!(taken("jqfmt=vfsv9").unwrap_err().contains("vfsold, vfsv0 or vfsv1"));
    }

    #[test]
    fn the_transport_of_requests_is_chosen_by_name() {
        assert_eq!(taken("").unwrap().io_uring, RingChoice::Auto);
        assert_eq!(taken("io_uring=on").unwrap().io_uring, RingChoice::On);
        assert_eq!(taken("io_uring=on,io_uring=off").unwrap().io_uring, RingChoice::Off);
        assert!(taken("io_uring=yes").unwrap_err().contains("expected auto, on or off"));
    }

    #[test]
    fn with_fakeroot_the_kernel_checks_no_permissions_and_other_users_are_excluded() {
        assert!(taken("").unwrap().words_for_helper().contains("default_permissions"));
        assert!(!taken("fakeroot").unwrap().words_for_helper().contains("default_permissions"));
        assert!(taken("fakeroot").unwrap().settle().is_ok());
        let refused = taken("fakeroot,allow_other").unwrap().settle().unwrap_err().to_string();
        assert!(refused.contains("all users would have the rights of root"), "{refused}");
    }

    #[test]
    fn the_last_word_wins() {
        assert_eq!(taken("ro,rw").unwrap().access, Some(ReadWrite::Write));
    }

    #[test]
    fn a_mistyped_word_is_refused_by_its_name() {
        let similar = |words| MountOptions::default().take(words).unwrap_err().similar();
        assert_eq!(similar("noatme"), Some("noatime"));
        assert_eq!(taken("dta=journal").unwrap_err(), "unknown mount option 'dta=journal'");
        assert_eq!(similar("dta=journal"), Some("data"));
        for (word, known) in [
            ("stream=none", "streams"),
            ("userjquota=aquota.user", "usrjquota"),
            ("grpjqouta=aquota.group", "grpjquota"),
            ("jqfmts=vfsv0", "jqfmt"),
            ("remont", "remount"),
        ] {
            assert_eq!(similar(word), Some(known));
        }
        assert_eq!(similar("frobnicate"), None);
        assert_eq!(taken("frobnicate").unwrap_err(), "unknown mount option 'frobnicate'");
        assert_eq!(
            taken("data=jounral").unwrap_err(),
            "invalid value 'jounral' for the mount option 'data': expected ordered, journal or writeback"
        );
    }

    #[test]
    fn the_type_is_fuse_with_the_subtype() {
        assert_eq!(taken("").unwrap().fs_type(), "fuse.obento");
        assert_eq!(taken("subtype=x").unwrap().fs_type(), "fuse.x");
        assert!(taken("subtype=").is_err());
        assert_eq!(taken(r"fsname=a\,b").unwrap().fs_name.unwrap(), "a,b");
    }
}
