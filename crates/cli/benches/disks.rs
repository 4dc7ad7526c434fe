//! Converting and resizing disks beside qemu-img and resize2fs: `cargo bench -p obento-cli --bench disks`.
//!
//! Each line is a ratio of whole commands, up to the end of a sync of the new image. The disk holds a copy of
//! `OBENTO_BENCH_TREE` (by default /usr/share). `OBENTO_BENCH_DIR` sets the folder, which needs about six times the size
//! of the tree, and `OBENTO_BENCH_ROUNDS` the number of rounds. Arguments select lines: `convert`, `packed`, `grow`,
//! `shrink`. `resize2fs` demands a check by `e2fsck -f` before it, so a second line for each change of a size includes it.

mod pairs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use obento_testkit::oracle::{Oracle, call, program};
use obento_testkit::require;
use pairs::{Run, chosen, compare, head, number, obento, run, scratch};

const MIB: u64 = 1 << 20;

fn main() -> Result<()> {
    let programs = ["mke2fs", "e2fsck", "qemu-img", "resize2fs", "zstd", "gzip", "cmp", "du", "sync"];
    if !require(&programs.map(Oracle::Program)) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    let disks = Disks::new(folder.path())?;
    head();
    if chosen("convert") {
        disks.convert()?;
    }
    if chosen("packed") {
        disks.packed()?;
    }
    if chosen("grow") {
        disks.grow()?;
    }
    if chosen("shrink") {
        disks.shrink()?;
    }
    Ok(())
}

/// The folder with `disk.img`, an ext4 volume that holds the tree.
struct Disks<'a> {
    folder: &'a Path,
    tree: PathBuf,
    /// The size of the tree in MiB.
    size: u64,
}

impl<'a> Disks<'a> {
    fn new(folder: &'a Path) -> Result<Self> {
        let tree = std::env::var_os("OBENTO_BENCH_TREE").map_or_else(|| "/usr/share".into(), PathBuf::from);
        let used = call("du", ["-sm".as_ref(), tree.as_os_str()])?.stdout;
        let used = String::from_utf8(used)?;
        let size = used.split_whitespace().next().context("du prints a size")?.parse()?;
        let disks = Self { folder, tree, size };
        disks.shell(&format!("mke2fs -q -F -t ext4 -d \"$TREE\" disk.img {}M", size * 3 / 2 + 64))?;
        Ok(disks)
    }

    /// Runs a command of the shell in the folder.
    fn command(&self, line: &str) -> Command {
        let mut shell = program("sh");
        shell.args(["-ec", line]).current_dir(self.folder).env("TREE", &self.tree);
        shell.env("OBENTO", obento().get_program());
        shell
    }

    fn shell(&self, line: &str) -> Result<Run> {
        run(&mut self.command(line), || Ok(()))
    }

    /// Compares `ours` and `theirs`, which create `out` again.
    fn lines(&self, what: &str, peer: &str, ours: &str, theirs: &str, judge: &str) -> Result<()> {
        // `obento` writes to stable storage itself.
        let ours = || self.shell(&format!("rm -f out; exec \"$OBENTO\" {ours}"));
        let theirs = || self.shell(&format!("rm -f out; {theirs}; sync out"));
        compare(what, peer, ours, theirs, || self.shell(judge).map(drop))
    }

    fn convert(&self) -> Result<()> {
        self.shell("qemu-img convert -O qcow2 disk.img plain.qcow2")?;
        self.shell("qemu-img convert -c -O qcow2 disk.img packed.qcow2")?;
        for (what, ours, theirs, format) in [
            ("raw to qcow2", "-O qcow2 disk.img out", "-O qcow2 disk.img out", "qcow2"),
            ("qcow2 to raw", "-O raw plain.qcow2 out", "-O raw plain.qcow2 out", "raw"),
            ("raw to compressed qcow2", "-c -O qcow2 disk.img out", "-c -O qcow2 disk.img out", "qcow2"),
            ("compressed qcow2 to raw", "-O raw packed.qcow2 out", "-O raw packed.qcow2 out", "raw"),
        ] {
            self.lines(
                &format!("`convert`, {what}, {} MiB", self.size),
                "qemu-img convert",
                &format!("convert -q {ours}"),
                &format!("qemu-img convert {theirs}"),
                &format!("qemu-img compare -q -f raw -F {format} disk.img out"),
            )?;
        }
        Ok(())
    }

    fn packed(&self) -> Result<()> {
        self.shell("zstd -q disk.img -o disk.img.zst; gzip -1 -k disk.img")?;
        for (name, unpack) in [("disk.img.zst", "zstd -dqc"), ("disk.img.gz", "gzip -dc")] {
            self.lines(
                &format!("`convert`, {name} to raw"),
                unpack,
                &format!("convert -q -O raw {name} out"),
                &format!("{unpack} {name} > out"),
                "cmp disk.img out",
            )?;
            self.lines(
                &format!("`convert`, {name} to qcow2"),
                &format!("{unpack} and qemu-img convert"),
                &format!("convert -q -O qcow2 {name} out"),
                &format!("{unpack} {name} > raw; qemu-img convert -f raw -O qcow2 raw out; rm raw"),
                "qemu-img compare -q -f raw -F qcow2 disk.img out",
            )?;
        }
        Ok(())
    }

    /// Compares a change of the size of a copy of `pristine` to `len` bytes. `grown` is the step before resize2fs.
    fn resize(&self, what: &str, pristine: &str, len: u64, grown: &str) -> Result<()> {
        let prepare = || self.shell(&format!("cp --sparse=always {pristine} image; sync image"));
        let ours = || {
            prepare()?;
            self.shell(&format!("exec \"$OBENTO\" resize -q image {len}"))
        };
        let theirs = || {
            prepare()?;
            self.shell(&format!("{grown}resize2fs image {}K; truncate -s {len} image; sync image", len >> 10))
        };
        let judge = || self.shell("e2fsck -fn image").map(drop);
        compare(what, "resize2fs", ours, theirs, judge)?;
        let checked = || {
            prepare()?;
            let line = format!(
                "e2fsck -fy image; {grown}resize2fs image {}K; truncate -s {len} image; sync image",
                len >> 10
            );
            self.shell(&line)
        };
        compare(what, "e2fsck -f and resize2fs", ours, checked, judge)
    }

    fn grow(&self) -> Result<()> {
        let gib = number("GROWN_GIB", 256);
        let (len, what) = (gib << 30, format!("`resize`, {} MiB to {gib} GiB", self.size * 3 / 2 + 64));
        self.resize(&what, "disk.img", len, &format!("truncate -s {len} image; "))
    }

    /// Shrinks a volume whose files are after the new end: a large file was before them.
    fn shrink(&self) -> Result<()> {
        let (ballast, len) = (self.size * 5 / 4 + 64, self.size * 3 + 256);
        let file = File::create(self.folder.join("ballast"))?;
        let block = vec![0x5a; 1 << 20];
        for _ in 0..ballast {
            std::io::Write::write_all(&mut &file, &block)?;
        }
        self.shell(&format!("mke2fs -q -F -t ext4 moved.img {len}M"))?;
        self.shell("\"$OBENTO\" cp ballast moved.img:/; \"$OBENTO\" cp -r \"$TREE\" moved.img:/files")?;
        // resize2fs refuses a volume that was changed after its last check.
        self.shell("\"$OBENTO\" rm moved.img:/ballast; e2fsck -fy moved.img")?;
        fs::remove_file(self.folder.join("ballast"))?;
        let new = ballast * MIB;
        let what = format!("`resize`, {len} MiB to {ballast} MiB, {} MiB of files", self.size);
        self.resize(&what, "moved.img", new, "")
    }
}
