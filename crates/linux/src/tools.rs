//! The programs that create, check and tune volumes of a type.
//!
//! Source: the manual page of each program, and its observed exit codes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Folders of programs for the administrator, which are not in every user's path.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// A program, and its Debian package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    /// The name of the program.
    pub program: &'static str,
    /// The package.
    pub package: &'static str,
}

impl Tool {
    /// Returns the path of the program: in `PATH`, or in the folders of programs for the administrator.
    pub fn find(&self) -> Option<PathBuf> {
        find_program(self.program)
    }

    /// Returns the command that installs the package.
    pub fn install(&self) -> String {
        format!("apt-get install {}", self.package)
    }
}

/// Finds the program `name` in `PATH`, or in the folders of programs for the administrator, which are not in
/// an ordinary user's path.
pub fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let folders = folders.chain(FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(&name)).find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A program that creates an empty volume over any existing data. Its last argument is the image.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// The program.
    pub tool: Tool,
    /// The arguments.
    pub arguments: &'static [&'static str],
    /// The option letter of a label, if the program supports labels.
    pub label: Option<&'static str>,
    /// The approximate size in bytes of the smallest volume that the program creates.
    pub least: u64,
    /// Whether the program locks the image itself, so that it must not be locked before.
    pub locks: bool,
    /// Whether the program looks up the name of the image, so that the image must have a name.
    pub asks_name: bool,
}

/// A program that checks a volume. Its last argument is the image.
#[derive(Clone, Copy, Debug)]
pub struct Checker {
    /// The program.
    pub tool: Tool,
    /// Returns the arguments that a volume with these first bytes needs in every mode.
    pub of_volume: fn(&[u8]) -> &'static [&'static str],
    /// The arguments for checking without changes.
    pub look: &'static [&'static str],
    /// Whether the program replays the log even without other changes.
    pub replays: bool,
    /// Whether the program ignores or rejects a volume with a dirty log, which the kernel must replay first.
    pub needs_replay: bool,
    /// The arguments for repairing only what is safe.
    pub safe: Option<&'static [&'static str]>,
    /// The arguments for repairing everything.
    pub all: Option<&'static [&'static str]>,
    /// Whether a second run may be necessary after a repair.
    pub again: bool,
    /// Whether a repair opens a block device exclusively, so that no other process may have it open.
    pub is_exclusive: bool,
    /// The reason why the program has no such mode.
    pub lacks: &'static str,
    /// Interprets the exit code.
    pub verdict: fn(i32) -> Verdict,
}

/// The programs that change settings of a volume that is not mounted.
#[derive(Clone, Copy, Debug)]
pub struct Tuner {
    /// Sets the label.
    pub label: Option<Setter>,
    /// Sets the UUID.
    pub uuid: Option<Setter>,
}

/// A program that sets one value.
#[derive(Clone, Copy, Debug)]
pub struct Setter {
    /// The program.
    pub tool: Tool,
    /// The arguments before the image and the value.
    pub arguments: &'static [&'static str],
    /// The text before the value, in the same argument.
    pub prefix: &'static str,
    /// The order of the image and the value.
    pub order: ArgumentOrder,
    /// The value that removes a label.
    pub none: &'static str,
    /// The most bytes of a value.
    pub max: usize,
    /// Whether a value can contain spaces and quotes.
    pub quotes: bool,
}

/// The order of the last two arguments of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentOrder {
    /// The value, and then the image.
    ValueImage,
    /// The image, and then the value.
    ImageValue,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No problem was found.
    Clean,
    /// All problems were repaired.
    Repaired,
    /// Problems remain.
    Left,
    /// The program failed.
    Failed,
}

const fn maker(
    program: &'static str,
    package: &'static str,
    arguments: &'static [&'static str],
    label: &'static str,
    least: u64,
) -> Maker {
    let label = if label.is_empty() { None } else { Some(label) };
    Maker { tool: Tool { program, package }, arguments, label, least, locks: false, asks_name: false }
}

const fn checker(program: &'static str, package: &'static str, look: &'static [&'static str]) -> Checker {
    let tool = Tool { program, package };
    Checker {
        tool,
        of_volume: |_| &[],
        look,
        replays: false,
        needs_replay: false,
        safe: None,
        all: None,
        again: false,
        is_exclusive: false,
        lacks: "does not repair volumes",
        verdict: of_fsck,
    }
}

const fn setter(
    program: &'static str,
    package: &'static str,
    arguments: &'static [&'static str],
    max: usize,
) -> Setter {
    Setter {
        tool: Tool { program, package },
        arguments,
        prefix: "",
        order: ArgumentOrder::ValueImage,
        none: "",
        max,
        quotes: true,
    }
}

/// 0 means a clean volume, any other code a damaged one.
fn of_a_look(code: i32) -> Verdict {
    if code == 0 { Verdict::Clean } else { Verdict::Left }
}

/// xfs_repair(8), with `-n` and with `-e`: 1 is damage or a failure, 2 a log that is not replayed, 4 a
/// repair.
fn of_xfs_repair(code: i32) -> Verdict {
    match code {
        0 => Verdict::Clean,
        1 => Verdict::Left,
        4 => Verdict::Repaired,
        _ => Verdict::Failed,
    }
}

/// Like fsck(8), but fsck.f2fs returns -1 if it found damage and did not repair all of it.
fn of_f2fs(code: i32) -> Verdict {
    if code == 255 { Verdict::Left } else { of_fsck(code) }
}

/// fsck(8): a mask of bits.
fn of_fsck(code: i32) -> Verdict {
    match code {
        0 => Verdict::Clean,
        _ if !(0..8).contains(&code) => Verdict::Failed,
        _ if code & 4 != 0 => Verdict::Left,
        _ => Verdict::Repaired,
    }
}

pub(crate) const MAKE_XFS: Maker = maker("mkfs.xfs", "xfsprogs", &["-q", "-f"], "-L", 300 << 20);
pub(crate) const MAKE_BTRFS: Maker = maker("mkfs.btrfs", "btrfs-progs", &["-q", "-f"], "-L", 128 << 20);
/// Without `-q`, which also hides the reason of a failure.
pub(crate) const MAKE_F2FS: Maker = maker("mkfs.f2fs", "f2fs-tools", &["-f"], "-l", 64 << 20);
pub(crate) const MAKE_JFS: Maker = maker("mkfs.jfs", "jfsutils", &["-q"], "-L", 16 << 20);
pub(crate) const MAKE_REISERFS: Maker =
    maker("mkfs.reiserfs", "reiserfsprogs", &["-q", "-f", "-f"], "-l", 40 << 20);
pub(crate) const MAKE_NILFS2: Maker = maker("mkfs.nilfs2", "nilfs-tools", &["-q", "-f"], "-L", 129 << 20);
pub(crate) const MAKE_HFS: Maker = Maker { locks: true, ..maker("hformat", "hfsutils", &[], "-l", 1 << 20) };
pub(crate) const MAKE_UDF: Maker = maker("mkudffs", "udftools", &[], "-l", 4 << 20);
pub(crate) const MAKE_BFS: Maker = maker("mkfs.bfs", "util-linux", &[], "-V", 1 << 20);
pub(crate) const MAKE_MINIX: Maker = maker("mkfs.minix", "util-linux", &["-3"], "", 1 << 20);

/// The options for a volume of a single machine with the smallest journal.
const OWN: &[&str] = &["-O", "-q", "-p", "lock_nolock", "-j", "1", "-J", "8"];
pub(crate) const MAKE_GFS2: Maker =
    Maker { asks_name: true, ..maker("mkfs.gfs2", "gfs2-utils", OWN, "-t", 16 << 20) };

/// A volume of one allocation group has no second super block to compare with, and xfs_repair(8) requires
/// this option for it.
/// Source: Linux 6.1, fs/xfs/libxfs/xfs_format.h `struct xfs_dsb`: `sb_agcount`, big-endian.
fn of_one_group(start: &[u8]) -> &'static [&'static str] {
    if start.get(88..92) == Some(&[0, 0, 0, 1]) { &["-o", "force_geometry"] } else { &[] }
}

pub(crate) const CHECK_XFS: Checker = Checker {
    of_volume: of_one_group,
    needs_replay: true,
    // With this option, the exit code reports whether anything was repaired.
    all: Some(&["-e"]),
    lacks: "repairs everything or nothing",
    is_exclusive: true,
    verdict: of_xfs_repair,
    ..checker("xfs_repair", "xfsprogs", &["-n"])
};
pub(crate) const CHECK_BTRFS: Checker = Checker {
    lacks: "has a repair, but its manual page btrfs-check(8) warns against it",
    verdict: of_a_look,
    ..checker("btrfs", "btrfs-progs", &["check", "--readonly"])
};
pub(crate) const CHECK_F2FS: Checker = Checker {
    all: Some(&["-f"]),
    lacks: "repairs everything or nothing",
    is_exclusive: true,
    verdict: of_f2fs,
    ..checker("fsck.f2fs", "f2fs-tools", &["--dry-run"])
};
/// Jfsutils 1.1.15 does not replay a log with an "invalid RedoPage record" (its error 274), which a killed
/// kernel sometimes leaves. It then repairs without the log, writes a wrong index of the `lost+found` that it
/// fills, and may end early with an internal error. The next run continues.
pub(crate) const CHECK_JFS: Checker = Checker {
    again: true,
    safe: Some(&["-f", "-p"]),
    all: Some(&["-f", "-p"]),
    ..checker("fsck.jfs", "jfsutils", &["-n"])
};
pub(crate) const CHECK_REISERFS: Checker = Checker {
    replays: true,
    safe: Some(&["--fix-fixable", "-q", "-y"]),
    lacks: "repairs with -p; further damage requires its --rebuild-tree on a copy of the image, see reiserfsck(8)",
    ..checker("reiserfsck", "reiserfsprogs", &["--check", "-q", "-y"])
};
pub(crate) const CHECK_GFS2: Checker =
    Checker { safe: Some(&["-p"]), all: Some(&["-y"]), ..checker("fsck.gfs2", "gfs2-utils", &["-n"]) };
pub(crate) const CHECK_MINIX: Checker = Checker {
    lacks: "is not reliable: it reports repairs that it does not perform",
    ..checker("fsck.minix", "util-linux", &["-f"])
};
pub(crate) const CHECK_EROFS: Checker =
    Checker { verdict: of_a_look, ..checker("fsck.erofs", "erofs-utils", &[]) };
pub(crate) const CHECK_CRAMFS: Checker = checker("fsck.cramfs", "util-linux", &[]);

/// The bytes of a UUID in its text form.
const UUID_MAX: usize = 36;

/// xfs_admin(8) is a shell script that passes its arguments to this program, without protection of spaces.
const XFS_DB: Setter = Setter {
    prefix: "label ",
    none: "--",
    quotes: false,
    ..setter("xfs_db", "xfsprogs", &["-x", "-p", "xfs_admin", "-c"], 12)
};
pub(crate) const TUNE_XFS: Tuner =
    Tuner { label: Some(XFS_DB), uuid: Some(Setter { prefix: "uuid ", max: UUID_MAX, ..XFS_DB }) };
pub(crate) const TUNE_BTRFS: Tuner = Tuner {
    label: Some(Setter {
        order: ArgumentOrder::ImageValue,
        ..setter("btrfs", "btrfs-progs", &["filesystem", "label"], 255)
    }),
    uuid: Some(setter("btrfstune", "btrfs-progs", &["-f", "-U"], UUID_MAX)),
};
pub(crate) const TUNE_F2FS: Tuner = Tuner {
    label: Some(Setter { order: ArgumentOrder::ImageValue, ..setter("f2fslabel", "f2fs-tools", &[], 255) }),
    uuid: None,
};
pub(crate) const TUNE_JFS: Tuner = Tuner {
    label: Some(setter("jfs_tune", "jfsutils", &["-L"], 16)),
    uuid: Some(setter("jfs_tune", "jfsutils", &["-U"], UUID_MAX)),
};
pub(crate) const TUNE_REISERFS: Tuner = Tuner {
    label: Some(setter("reiserfstune", "reiserfsprogs", &["-l"], 16)),
    uuid: Some(setter("reiserfstune", "reiserfsprogs", &["-u"], UUID_MAX)),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_fsck_are_bits() {
        let verdicts = [0, 1, 2, 3, 4, 5, 6, 8, 16, 255, -1].map(of_fsck);
        use Verdict::{Clean, Failed, Left, Repaired};
        let expected =
            [Clean, Repaired, Repaired, Repaired, Left, Left, Left, Failed, Failed, Failed, Failed];
        assert_eq!(verdicts, expected);
        assert_eq!([0, 1, 8, 255].map(of_f2fs), [Clean, Repaired, Failed, Left]);
    }

    #[test]
    fn a_missing_program_is_not_found_and_a_common_program_is() {
        let tool = |program| Tool { program, package: "any" };
        assert_eq!(tool("obento-has-no-such-program").find(), None);
        assert!(tool("sh").find().is_some());
    }
}
