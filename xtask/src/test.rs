//! All tests of the workspace, with the oracles.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::corpus;
use crate::packages::{self, Package};
use crate::programs::{self, Program};
use crate::python;
use crate::timed::Taken;
use crate::{coverage, crates};

/// The programs that verify the data that obento reads and writes.
pub const ORACLES: &[Package] = &[
    ("/sbin/mke2fs", "e2fsprogs"),
    ("/sbin/mkfs.fat", "dosfstools"),
    ("/sbin/mkfs.exfat", "exfatprogs"),
    ("/sbin/mount.exfat-fuse", "exfat-fuse"),
    ("/usr/bin/mcopy", "mtools"),
    ("/usr/bin/linux.uml", "user-mode-linux"),
    ("/sbin/insmod", "kmod"),
    ("/usr/bin/fusermount3", "fuse3"),
    ("/usr/bin/git", "git"),
    ("/usr/bin/python3", "python3"),
    ("/usr/bin/setfattr", "attr"),
    ("/usr/bin/setfacl", "acl"),
    ("/usr/bin/qemu-img", "qemu-utils"),
    ("/usr/bin/img2simg", "android-sdk-libsparse-utils"),
    ("/sbin/sgdisk", "gdisk"),
    ("/sbin/sfdisk", "fdisk"),
    ("/sbin/veritysetup", "cryptsetup-bin"),
    ("/usr/bin/find", "findutils"),
    ("/usr/bin/script", "bsdutils"),
    ("/usr/bin/tree", "tree"),
    ("/usr/bin/bzip2", "bzip2"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/bin/fio", "fio"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/zstd", "zstd"),
    ("/usr/bin/zsh", "zsh"),
    ("/usr/bin/fish", "fish"),
    ("/sbin/mkfs.xfs", "xfsprogs"),
    ("/sbin/mkfs.btrfs", "btrfs-progs"),
    ("/sbin/mkfs.f2fs", "f2fs-tools"),
    ("/sbin/mkfs.jfs", "jfsutils"),
    ("/sbin/mkfs.reiserfs", "reiserfsprogs"),
    ("/sbin/mkfs.gfs2", "gfs2-utils"),
    ("/sbin/mkfs.nilfs2", "nilfs-tools"),
    ("/usr/sbin/mkudffs", "udftools"),
    ("/usr/bin/hformat", "hfsutils"),
    ("/usr/bin/xorriso", "xorriso"),
    ("/usr/bin/mksquashfs", "squashfs-tools"),
    ("/usr/bin/mkfs.erofs", "erofs-utils"),
    ("/usr/bin/genisoimage", "genisoimage"),
    ("/usr/bin/genromfs", "genromfs"),
    ("/usr/sbin/makefs", "makefs"),
    ("/sbin/mkfs.ntfs", "ntfs-3g"),
    ("/usr/bin/sshfs", "sshfs"),
    ("/usr/bin/ganesha.nfsd", "nfs-ganesha"),
    ("/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "nfs-ganesha-vfs"),
    ("/sbin/rpcbind", "rpcbind"),
    ("/usr/lib/openssh/sftp-server", "openssh-sftp-server"),
    ("/usr/bin/squashfuse", "squashfuse"),
    ("/usr/bin/fuse-overlayfs", "fuse-overlayfs"),
    ("/usr/bin/bindfs", "bindfs"),
    ("/usr/bin/fuse2fs", "fuse2fs"),
    ("/usr/bin/unionfs", "unionfs-fuse"),
    ("/usr/bin/archivemount", "archivemount"),
    ("/usr/bin/rclone", "rclone"),
    ("/usr/bin/gocryptfs", "gocryptfs"),
    ("/usr/sbin/mkfs.jffs2", "mtd-utils"),
    ("/usr/bin/7zz", "7zip"),
    ("/usr/bin/wimlib-imagex", "wimtools"),
    ("/sbin/mkfs.ocfs2", "ocfs2-tools"),
    ("/usr/sbin/make-bcache", "bcache-tools"),
    ("/sbin/mkfs.reiser4", "reiser4progs"),
    ("/sbin/cryptsetup", "cryptsetup-bin"),
    ("/usr/bin/pip3", "python3-pip"),
];

/// The programs in folders `tests` that run without `--full`, besides the tests in `src`: one or two for each layer.
const QUICK: &[&str] = &[
    "copy", "find", "help", "layers", "messages", "mkfs", "readme", "reading", "recovery", "text", "types",
    "walk",
];

/// Programs of the same names that are not quick, each with its package.
const LONGER: &[(&str, &str)] = &[("linux", "types")];

/// The extent of the tests.
#[derive(clap::Args)]
pub struct Options {
    /// Run all test programs and the examples in the documentation. Fail if an oracle is missing, instead of skipping
    /// tests, and use the full trees. Also print which lines the tests of drivers run, and fail if the coverage is too
    /// low. CI uses this.
    #[arg(long)]
    full: bool,
    /// Further arguments for the test programs.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs the oracles and runs the tests. Prints how many tests were skipped without an oracle, and how many cases
/// because a volume lacks a feature.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    let _corpus = corpus::ensure(shell)?.map(|folder| shell.push_env("OBENTO_CORPUS", folder));
    let _python = python::ensure(shell).map(|folder| shell.push_env("OBENTO_PYTHON_PACKAGES", folder));
    let log = shell.current_dir().join("target/skipped-tests.log");
    fs::create_dir_all(log.parent().unwrap_or(Path::new(".")))?;
    fs::write(&log, "")?;
    let _log = shell.push_env("OBENTO_SKIP_LOG", &log);
    let _full = options
        .full
        .then(|| (shell.push_env("OBENTO_REQUIRE_ORACLES", "1"), shell.push_env("OBENTO_MATRIX", "full")));
    let mut taken = Taken::default();
    let result = if options.full {
        all_and_coverage(shell, &options.arguments, &mut taken)
    } else {
        quick(shell, &options.arguments, &mut taken)
    };
    taken.report();
    let log = fs::read_to_string(&log)?;
    let (refused, skipped): (Vec<&str>, Vec<&str>) =
        log.lines().partition(|line| line.starts_with("refused: "));
    count("tests were skipped because an oracle is missing", &skipped);
    count("cases were refused because a volume lacks a feature", &refused);
    result
}

/// Prints the number, and the number for each reason.
fn count(what: &str, reasons: &[&str]) {
    eprintln!("{} {what}", reasons.len());
    let mut counts = BTreeMap::<_, usize>::new();
    reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
    counts.iter().for_each(|(reason, count)| eprintln!("  {count} {reason}"));
}

/// Runs the tests in `src` and the programs of [`QUICK`], and prints what `--full` adds.
fn quick(shell: &Shell, arguments: &[String], taken: &mut Taken) -> Result<()> {
    eprintln!("compiling and running the quick tests; the first time takes about 10 minutes");
    let chosen = QUICK.iter().flat_map(|name| ["--test", name]);
    let built = cmd!(
        shell,
        "cargo test --workspace --locked --profile try --lib --bins {chosen...} --no-run --message-format=json-render-diagnostics"
    );
    let mut programs = Program::built(&built.read()?)?;
    // The same names in other packages are longer tests.
    programs
        .retain(|program| !LONGER.contains(&(program.package().unwrap_or_default(), program.name.as_str())));
    let number = programs.len();
    let result = programs::run(shell, programs, arguments, taken);
    let all = all_programs(shell)?;
    eprintln!(
        "{number} of {all} test programs were run. `cargo xtask test --full` adds the other programs (power cuts, faulty devices,\n\
         damaged volumes, the kernel engine, mounts, comparisons with other tools), and the examples of the documentation.\n\
         It also measures the line coverage, and takes about an hour on 2 processors."
    );
    result
}

/// Returns the number of test programs of the workspace.
fn all_programs(shell: &Shell) -> Result<usize> {
    Ok(crates::all(shell)?.iter().map(|one| one.programs).sum())
}

/// Runs each test once: those of the drivers and of the crates around them with line counters.
fn all_and_coverage(shell: &Shell, arguments: &[String], taken: &mut Taken) -> Result<()> {
    let counted = coverage::packages(shell)?;
    let left_out: Vec<&str> = counted.iter().flat_map(|package| ["--exclude", package]).collect();
    let others = coverage::build_others(shell)?;
    let tested = coverage::run(shell, &coverage::Options::all(arguments), others, taken);
    let documented =
        taken.run(cmd!(shell, "cargo test --doc --workspace {left_out...} --locked --no-fail-fast"));
    tested.and(documented)
}
