//! The cases of the module in user-mode-linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::TestOptions;
use super::guest::{Guest, Start, e2fsck, empty};
use crate::packages;

/// The deepest stack that a case may reach, of 16 KiB that a kernel thread has. This limit may only decrease.
const STACK_MAX: u64 = 13 << 10;

const CHECKS: &[packages::Package] =
    &[("/sbin/mke2fs", "e2fsprogs"), ("/sbin/mkfs.fat", "dosfstools"), ("/sbin/mkfs.exfat", "exfatprogs")];

/// A test case: its name and its actions.
type Case = (&'static str, fn(&Bench<'_>) -> Result<()>);

const CASES: &[Case] = &[
    ("tree: every file as the kernel's own ext4 shows it", tree),
    ("features: every call on a mounted volume", features),
    ("model: operations against a model in memory, ext4", |bench| bench.model("obento-ext4", &[])),
    ("model-1k: blocks smaller than a page", model_1k),
    ("model-journal: data=journal, through the driver", model_journal),
    ("model-inline: inline data", model_inline),
    ("model-fat: FAT32", model_fat),
    ("model-fat-16k: FAT16 with clusters larger than a page", model_fat_16k),
    ("model-exfat: exFAT with clusters larger than a page", model_exfat),
    ("parallel: models, moved trees and syncs at once", parallel),
    ("full: a full volume", full),
    ("memory: less memory than data", memory),
    ("cut: power off with open files without a name, and replay", cut),
    ("volumes: two at once", volumes),
    ("brief: mounts that end at once", brief),
];

struct Bench<'a> {
    shell: &'a Shell,
    guest: Guest,
    folder: PathBuf,
}

/// Builds the module, and runs the cases that `options` select.
pub fn run(shell: &Shell, options: &TestOptions) -> Result<()> {
    packages::ensure(shell, CHECKS)?;
    let began = Instant::now();
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    println!("built in {} s", began.elapsed().as_secs());
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let bench = Bench { shell, guest, folder };
    let selected = |name: &str| {
        options.cases.is_empty() || options.cases.iter().any(|case| name.starts_with(&format!("{case}:")))
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, case) in CASES.iter().filter(|(name, _)| selected(name)) {
        let began = Instant::now();
        let outcome = case(&bench);
        let shown = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{shown} {name} ({:.1} s)", began.elapsed().as_secs_f32());
        match outcome {
            Ok(()) => passed += 1,
            Err(error) => {
                println!("    {error:#}");
                failed.push(*name);
            }
        }
    }
    println!("{passed} passed, {} failed", failed.len());
    ensure!(failed.is_empty(), "these cases failed: {}", failed.join(", "));
    ensure!(passed > 0, "no case has this name");
    Ok(())
}

impl Bench<'_> {
    fn image(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn ext4(&self, name: &str, mib: u64, arguments: &[&str]) -> Result<PathBuf> {
        let image = self.image(name);
        empty(&image, mib)?;
        cmd!(self.shell, "mke2fs -q -F -t ext4 {arguments...} {image}").quiet().run()?;
        Ok(image)
    }

    /// Runs a case, and checks the stack that it needed.
    fn start(&self, start: &Start<'_>) -> Result<String> {
        let output = self.guest.run(start)?;
        if let Some(line) = output.lines().find(|line| line.starts_with("deepest stack")) {
            let (_, depths) = line.split_once(": ").context("no depths")?;
            let deepest = depths.trim().split(',').filter_map(|depth| depth.parse::<u64>().ok()).max();
            let deepest = deepest.context("no depth")?;
            println!("    {line}");
            ensure!(deepest <= STACK_MAX, "the stack reached {deepest} bytes, and {STACK_MAX} are permitted");
        }
        Ok(output)
    }

    fn model(&self, kind: &str, arguments: &[&str]) -> Result<()> {
        let image = self.ext4("model.img", 96, arguments)?;
        self.start(&Start::new("model", &[&image]).word(format!("obento.type={kind}")))?;
        e2fsck(self.shell, &image)
    }

    fn fat(&self, arguments: &[&str]) -> Result<()> {
        let image = self.image("model.img");
        empty(&image, 96)?;
        cmd!(self.shell, "mkfs.fat {arguments...} {image}").quiet().ignore_stdout().run()?;
        self.start(&Start::new("model", &[&image]).word("obento.type=obento-fat"))?;
        cmd!(self.shell, "fsck.fat -n {image}").quiet().ignore_stdout().run()?;
        Ok(())
    }
}

fn tree(bench: &Bench<'_>) -> Result<()> {
    let source = Path::new("crates");
    let image = bench.image("tree.img");
    empty(&image, 128)?;
    cmd!(bench.shell, "mke2fs -q -F -t ext4 -d {source} {image}").quiet().run()?;
    bench.start(&Start::new("tree", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn features(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("features.img", 96, &["-L", "testing", "-I", "256", "-O", "project"])?;
    let output = bench.start(&Start::new("features", &[&image]))?;
    output.lines().filter(|line| line.starts_with("ok: ")).for_each(|line| println!("    {line}"));
    e2fsck(bench.shell, &image)
}

fn model_1k(bench: &Bench<'_>) -> Result<()> {
    bench.model("obento-ext4", &["-b", "1024"])
}

fn model_journal(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("model.img", 96, &[])?;
    bench.start(&Start::new("model", &[&image]).word("obento.options=data=journal"))?;
    e2fsck(bench.shell, &image)
}

fn model_inline(bench: &Bench<'_>) -> Result<()> {
    bench.model("obento-ext4", &["-O", "inline_data"])
}

fn model_fat(bench: &Bench<'_>) -> Result<()> {
    bench.fat(&["-F", "32", "-s", "1"])
}

fn model_fat_16k(bench: &Bench<'_>) -> Result<()> {
    bench.fat(&["-F", "16", "-s", "32"])
}

fn model_exfat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("model.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.exfat -c 32K {image}").quiet().ignore_stdout().run()?;
    bench.start(&Start::new("model", &[&image]).word("obento.type=obento-exfat"))?;
    cmd!(bench.shell, "fsck.exfat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
}

fn parallel(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("parallel.img", 96, &[])?;
    bench.start(&Start::new("parallel", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn full(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("full.img", 32, &[])?;
    bench.start(&Start::new("full", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn memory(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("memory.img", 128, &[])?;
    let mut start = Start::new("memory", &[&image]);
    start.memory = 64;
    bench.start(&start)?;
    e2fsck(bench.shell, &image)
}

fn cut(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("cut.img", 64, &[])?;
    bench.start(&Start::new("cut", &[&image]))?;
    let before = cmd!(bench.shell, "dumpe2fs -h {image}").quiet().ignore_stderr().read()?;
    ensure!(
        before.contains("needs_recovery"),
        "the volume is clean after a power cut: the case proves nothing"
    );
    bench.start(&Start::new("replay", &[&image]))?;
    let after = cmd!(bench.shell, "dumpe2fs -h {image}").quiet().ignore_stderr().read()?;
    ensure!(!after.contains("First orphan inode"), "a file without a name was not freed");
    e2fsck(bench.shell, &image)
}

fn volumes(bench: &Bench<'_>) -> Result<()> {
    let (one, two) = (bench.ext4("one.img", 64, &[])?, bench.ext4("two.img", 64, &["-b", "1024"])?);
    bench.start(&Start::new("volumes", &[&one, &two]))?;
    e2fsck(bench.shell, &one)?;
    e2fsck(bench.shell, &two)
}

fn brief(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("brief.img", 32, &[])?;
    bench.start(&Start::new("brief", &[&image]))?;
    e2fsck(bench.shell, &image)
}
