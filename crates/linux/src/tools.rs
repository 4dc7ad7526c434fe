//! The programs of a type's own that make and check its volumes.
//!
//! Source: the manual page of each, and what each was seen to answer with.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where programs for the administrator are, which are not in everybody's path.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// A program, and the package of Debian that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The package.
    pub package: &'static str,
}

impl Tool {
    /// Where it is on this machine: in the path, or where programs for the administrator are.
    pub fn find(&self) -> Option<PathBuf> {
        find_program(self.program)
    }

    /// The line that installs it.
    pub fn install(&self) -> String {
        format!("apt-get install {}", self.package)
    }
}

/// Finds the program `name` in the path, or in the folders of programs for the administrator, which are not in an ordinary user's path.
pub fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let folders = folders.chain(FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(&name)).find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What makes an empty volume, over whatever is there; its last argument is the image.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// It.
    pub tool: Tool,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// The letter that a label follows, if it takes one.
    pub label: Option<&'static str>,
    /// Bytes of the smallest volume that it makes, or near them.
    pub least: u64,
    /// Whether it locks the image itself, so that it cannot have one that is locked.
    pub locks: bool,
    /// Whether it asks under which name the image lies, so that it cannot have one without a name.
    pub asks_name: bool,
}

/// What checks a volume; its last argument is the image.
#[derive(Clone, Copy, Debug)]
pub struct Checker {
    /// It.
    pub tool: Tool,
    /// The arguments that a volume needs which begins with these bytes, however it is checked.
    pub of_volume: fn(&[u8]) -> &'static [&'static str],
    /// Its arguments for looking only.
    pub look: &'static [&'static str],
    /// Whether it replays the log even then.
    pub replays: bool,
    /// Whether it looks past a log, which the kernel replays, or refuses to look at all.
    pub needs_replay: bool,
    /// Its arguments for mending what is safe.
    pub safe: Option<&'static [&'static str]>,
    /// Its arguments for mending all.
    pub all: Option<&'static [&'static str]>,
    /// Whether what it mended, or left, may need it once more.
    pub again: bool,
    /// Why it has no such.
    pub lacks: &'static str,
    /// What its exit code means.
    pub verdict: fn(i32) -> Verdict,
}

/// What a checker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing wrong.
    Clean,
    /// All that was wrong was mended.
    Mended,
    /// Something is wrong.
    Left,
    /// It could not do its work.
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
        lacks: "only looks",
        verdict: of_fsck,
    }
}

/// 0 for a clean volume, anything else for one that is not.
fn of_a_look(code: i32) -> Verdict {
    if code == 0 { Verdict::Clean } else { Verdict::Left }
}

/// xfs_repair(8), with `-n` and with `-e`: 1 is damage or a failure, 2 a log that is not replayed, 4 what was mended.
fn of_xfs_repair(code: i32) -> Verdict {
    match code {
        0 => Verdict::Clean,
        1 => Verdict::Left,
        4 => Verdict::Mended,
        _ => Verdict::Failed,
    }
}

/// fsck(8), but that fsck.f2fs ends with -1 where it found damage and did not mend all of it.
fn of_f2fs(code: i32) -> Verdict {
    if code == 255 { Verdict::Left } else { of_fsck(code) }
}

/// fsck(8): bits.
fn of_fsck(code: i32) -> Verdict {
    match code {
        0 => Verdict::Clean,
        _ if !(0..8).contains(&code) => Verdict::Failed,
        _ if code & 4 != 0 => Verdict::Left,
        _ => Verdict::Mended,
    }
}

pub(crate) const MAKE_XFS: Maker = maker("mkfs.xfs", "xfsprogs", &["-q", "-f"], "-L", 300 << 20);
pub(crate) const MAKE_BTRFS: Maker = maker("mkfs.btrfs", "btrfs-progs", &["-q", "-f"], "-L", 128 << 20);
pub(crate) const MAKE_F2FS: Maker = maker("mkfs.f2fs", "f2fs-tools", &["-q", "-f"], "-l", 64 << 20);
pub(crate) const MAKE_JFS: Maker = maker("mkfs.jfs", "jfsutils", &["-q"], "-L", 16 << 20);
pub(crate) const MAKE_REISERFS: Maker =
    maker("mkfs.reiserfs", "reiserfsprogs", &["-q", "-f", "-f"], "-l", 40 << 20);
pub(crate) const MAKE_NILFS2: Maker = maker("mkfs.nilfs2", "nilfs-tools", &["-q", "-f"], "-L", 129 << 20);
pub(crate) const MAKE_HFS: Maker = Maker { locks: true, ..maker("hformat", "hfsutils", &[], "-l", 1 << 20) };
pub(crate) const MAKE_UDF: Maker = maker("mkudffs", "udftools", &[], "-l", 4 << 20);
pub(crate) const MAKE_BFS: Maker = maker("mkfs.bfs", "util-linux", &[], "-V", 1 << 20);
pub(crate) const MAKE_MINIX: Maker = maker("mkfs.minix", "util-linux", &["-3"], "", 1 << 20);

/// Of one machine, whose journal is the smallest that there is.
const OWN: &[&str] = &["-O", "-q", "-p", "lock_nolock", "-j", "1", "-J", "8"];
pub(crate) const MAKE_GFS2: Maker =
    Maker { asks_name: true, ..maker("mkfs.gfs2", "gfs2-utils", OWN, "-t", 16 << 20) };

/// A volume of one allocation group has no other super block to compare its own with, without which xfs_repair(8) takes it only by this option.
/// Source: Linux 6.1, fs/xfs/libxfs/xfs_format.h `struct xfs_dsb`: `sb_agcount`, big-endian.
fn of_one_group(start: &[u8]) -> &'static [&'static str] {
    if start.get(88..92) == Some(&[0, 0, 0, 1]) { &["-o", "force_geometry"] } else { &[] }
}

pub(crate) const CHECK_XFS: Checker = Checker {
    of_volume: of_one_group,
    needs_replay: true,
    // With this it tells by its exit code whether it mended something.
    all: Some(&["-e"]),
    lacks: "mends all or nothing: -y",
    verdict: of_xfs_repair,
    ..checker("xfs_repair", "xfsprogs", &["-n"])
};
pub(crate) const CHECK_BTRFS: Checker = Checker {
    lacks: "has a repair that its manual page warns of: see btrfs-check(8)",
    verdict: of_a_look,
    ..checker("btrfs", "btrfs-progs", &["check", "--readonly"])
};
pub(crate) const CHECK_F2FS: Checker = Checker {
    all: Some(&["-f"]),
    lacks: "mends all or nothing: -y",
    verdict: of_f2fs,
    ..checker("fsck.f2fs", "f2fs-tools", &["--dry-run"])
};
/// Jfsutils 1.1.15 replays no log in which it finds what it calls an invalid RedoPage record (its error 274), as a kernel that is killed leaves one now and then. It mends
/// without the log then, leaves the index of the `lost+found` that it fills wrong, and may end early by an error of its own, after which the next run goes on.
pub(crate) const CHECK_JFS: Checker = Checker {
    again: true,
    safe: Some(&["-f", "-p"]),
    all: Some(&["-f", "-p"]),
    ..checker("fsck.jfs", "jfsutils", &["-n"])
};
pub(crate) const CHECK_REISERFS: Checker = Checker {
    replays: true,
    safe: Some(&["--fix-fixable", "-q", "-y"]),
    lacks: "mends by -p; what that leaves needs its --rebuild-tree and a copy of the image: see reiserfsck(8)",
    ..checker("reiserfsck", "reiserfsprogs", &["--check", "-q", "-y"])
};
pub(crate) const CHECK_GFS2: Checker =
    Checker { safe: Some(&["-p"]), all: Some(&["-y"]), ..checker("fsck.gfs2", "gfs2-utils", &["-n"]) };
pub(crate) const CHECK_MINIX: Checker = Checker {
    lacks: "was seen to leave what it says it mended",
    ..checker("fsck.minix", "util-linux", &["-f"])
};
pub(crate) const CHECK_EROFS: Checker =
    Checker { verdict: of_a_look, ..checker("fsck.erofs", "erofs-utils", &[]) };
pub(crate) const CHECK_CRAMFS: Checker = checker("fsck.cramfs", "util-linux", &[]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_fsck_are_bits() {
        let verdicts = [0, 1, 2, 3, 4, 5, 6, 8, 16, 255, -1].map(of_fsck);
        use Verdict::{Clean, Failed, Left, Mended};
        let expected = [Clean, Mended, Mended, Mended, Left, Left, Left, Failed, Failed, Failed, Failed];
        assert_eq!(verdicts, expected);
        assert_eq!([0, 1, 8, 255].map(of_f2fs), [Clean, Mended, Failed, Left]);
    }

    #[test]
    fn a_program_that_is_nowhere_is_not_found_and_one_is_that_everybody_has() {
        let tool = |program| Tool { program, package: "any" };
        assert_eq!(tool("obento-has-no-such-program").find(), None);
        assert!(tool("sh").find().is_some());
    }
}
