//! Every test of the workspace, with the oracles.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::corpus;
use crate::coverage;
use crate::packages::{self, Package};
use crate::programs::Program;
use crate::timed::Taken;

/// The programs that judge what obento reads and writes.
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
    ("/sbin/sgdisk", "gdisk"),
    ("/sbin/sfdisk", "fdisk"),
    ("/usr/bin/find", "findutils"),
    ("/usr/bin/script", "bsdutils"),
    ("/usr/bin/tree", "tree"),
    ("/usr/bin/bzip2", "bzip2"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/bin/fio", "fio"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/zstd", "zstd"),
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
    ("/usr/bin/7zz", "7zip"),
    ("/usr/bin/wimlib-imagex", "wimtools"),
    ("/sbin/mkfs.ocfs2", "ocfs2-tools"),
    ("/usr/sbin/make-bcache", "bcache-tools"),
    ("/sbin/mkfs.reiser4", "reiser4progs"),
    ("/sbin/cryptsetup", "cryptsetup-bin"),
];

/// How thoroughly to test.
#[derive(clap::Args)]
pub struct Options {
    /// Fail where an oracle is missing, in place of skipping; use the full trees; and say which lines the tests of drivers run, and fail where
    /// those are few. What CI does.
    #[arg(long)]
    full: bool,
    /// Further arguments for `cargo test`; with `--full` for the programs of tests.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs the oracles, runs the tests, and says how many were skipped for want of one, and how many cases a volume had too little for.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    let _corpus = corpus::ensure(shell)?.map(|folder| shell.push_env("OBENTO_CORPUS", folder));
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
        all(shell, &options.arguments, &mut taken)
    };
    taken.tell();
    let log = fs::read_to_string(&log)?;
    let (refused, skipped): (Vec<&str>, Vec<&str>) =
        log.lines().partition(|line| line.starts_with("refused: "));
    count("tests were skipped for want of an oracle", &skipped);
    count("cases were refused for what a volume lacks", &refused);
    result
}

/// Says how many there were, and how many for each reason.
fn count(what: &str, reasons: &[&str]) {
    eprintln!("{} {what}", reasons.len());
    let mut counts = BTreeMap::<_, usize>::new();
    reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
    counts.iter().for_each(|(reason, count)| eprintln!("  {count} {reason}"));
}

/// The tests of the workspace, but for what `cargo test` is told to leave out.
fn all(shell: &Shell, arguments: &[String], taken: &mut Taken) -> Result<()> {
    taken.run(cmd!(shell, "cargo test --workspace --locked --no-fail-fast {arguments...}"))
}

/// Every test once: those of drivers and of what is below and above them with counters of lines.
fn all_and_coverage(shell: &Shell, arguments: &[String], taken: &mut Taken) -> Result<()> {
    let counted = coverage::packages();
    let left_out: Vec<_> = counted.iter().flat_map(|package| ["--exclude", package]).collect();
    let left_out = &left_out;
    let others = cmd!(
        shell,
        "cargo test --workspace {left_out...} --locked --no-run --message-format=json-render-diagnostics"
    );
    let others = Program::built(&others.read()?)?;
    let tested = coverage::run(shell, &coverage::Options::all(arguments), others, taken);
    let documented =
        taken.run(cmd!(shell, "cargo test --doc --workspace {left_out...} --locked --no-fail-fast"));
    tested.and(documented)
}
