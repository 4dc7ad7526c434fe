//! The cases of the module in user-mode-linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::guest::{Guest, Start, e2fsck, empty};
use super::{KernelOptions, TestOptions, history, upgrade};
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
    ("calls: results of calls as the kernel's own ext4 returns them", calls),
    ("mounts: access times, read-only devices, labels and trims as those of the kernel's own ext4", mounts),
    ("listings: memory of open directories", listings),
    ("model: operations against a model in memory, ext4", |bench| bench.model("obento-ext4", &[])),
    ("model-1k: blocks smaller than a page", model_1k),
    ("model-journal: data=journal, through the driver", model_journal),
    ("model-inline: inline data", model_inline),
    ("model-fat: FAT32", model_fat),
    ("model-fat-16k: FAT16 with clusters larger than a page", model_fat_16k),
    ("model-exfat: exFAT with clusters larger than a page", model_exfat),
    ("model-xv6: xv6", model_xv6),
    ("parallel: models, moved trees and syncs at once", parallel),
    ("parallel-fat: the same for FAT32", parallel_fat),
    ("parallel-exfat: the same for exFAT", parallel_exfat),
    ("full: a full volume", full),
    ("memory: less memory than data", memory),
    ("quota: usage of users, groups and projects", quota),
    ("quota-cut: the same, with power off", quota_cut),
    ("cut: power off with open files without a name, and replay", cut),
    ("cut-xv6: the same for xv6", cut_xv6),
    ("fast: replay of fast commits that the kernel's own ext4 has written", fast),
    ("history: -o provenance, which obento prov reads", history_of_processes),
    ("history-model: a model on a recorded volume, ext4", |bench| bench.recorded("model", 96)),
    ("history-model-exfat: the same for exFAT", history_model_exfat),
    ("history-parallel: models, moved trees and syncs at once, recorded", |bench| {
        bench.recorded("parallel", 96)
    }),
    ("history-full: a full volume, recorded", |bench| bench.recorded("full", 32)),
    ("history-memory: less memory than data, recorded", history_memory),
    ("history-cut: power off and replay, recorded", history_cut),
    ("history-long: more records than the log has room for", |bench| bench.recorded("history-long", 32)),
    ("upgrade: the driver is replaced while programs use the volume, ext4", upgrade::ext4),
    ("upgrade-1k: the same with small blocks and inline data", upgrade::ext4_1k),
    ("upgrade-recorded: the same on a recorded volume", upgrade::recorded),
    ("upgrade-fat: the same for FAT32", upgrade::fat),
    ("upgrade-exfat: the same for exFAT", upgrade::exfat),
    ("upgrade-xv6: the same for xv6", upgrade::xv6),
    ("upgrade-busy: drivers of volumes that a sync uses for long", upgrade::busy),
    ("volumes: two at once", volumes),
    ("brief: mounts that end at once", brief),
];

/// The cases that CI runs.
const SHORT: &[&str] =
    &["tree", "listings", "model", "parallel", "full", "memory", "cut", "history", "history-long"];

/// Selects the mount option for recording.
pub(super) const RECORDED: &str = "obento.options=provenance";

pub(super) struct Bench<'a> {
    pub(super) shell: &'a Shell,
    pub(super) kernel: &'a KernelOptions,
    guest: Guest,
    folder: PathBuf,
    command: Option<&'a Path>,
}

/// Builds the module, and runs the cases that `options` select.
pub fn run(shell: &Shell, options: &TestOptions) -> Result<()> {
    packages::ensure(shell, CHECKS)?;
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let (kernel, command) = (&options.kernel, options.command.as_deref());
    let bench = Bench { shell, kernel, guest, folder, command };
    let selected = |name: &str| {
        let word = name.split(':').next().unwrap_or_default();
        match options.short {
            true => SHORT.contains(&word),
            false => options.cases.is_empty() || options.cases.iter().any(|case| case == word),
        }
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
    if options.short {
        ensure!(passed == SHORT.len(), "a case of the short form does not exist");
        let built = target.join("obento.ko");
        super::stack::run(shell, options.module.as_deref().unwrap_or(&built))?;
    }
    Ok(())
}

impl Bench<'_> {
    pub(super) fn image(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn ext4(&self, name: &str, mib: u64, arguments: &[&str]) -> Result<PathBuf> {
        let image = self.image(name);
        empty(&image, mib)?;
        cmd!(self.shell, "mke2fs -q -F -t ext4 {arguments...} {image}").quiet().run()?;
        Ok(image)
    }

    /// Runs a case, and checks the stack that it needed.
    fn start(&self, start: &Start<'_>) -> Result<String> {
        self.start_in(&self.guest, start)
    }

    /// The same in another guest.
    pub(super) fn start_in(&self, guest: &Guest, start: &Start<'_>) -> Result<String> {
        let output = guest.run(start)?;
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

    /// Runs a case on an ext4 volume whose history is recorded.
    fn recorded(&self, case: &str, mib: u64) -> Result<()> {
        let image = self.ext4("history.img", mib, &[])?;
        self.start(&Start::new(case, &[&image]).word(RECORDED))?;
        e2fsck(self.shell, &image)
    }

    /// Returns the program that reads histories.
    fn command(&self) -> Result<PathBuf> {
        match self.command {
            Some(command) => Ok(command.canonicalize()?),
            None => {
                cmd!(self.shell, "cargo build --quiet --locked -p obento-cli").run()?;
                Ok(self.shell.current_dir().join("target/debug/obento"))
            }
        }
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

/// Two volumes of the same format, one for the module and one for the kernel.
fn calls(bench: &Bench<'_>) -> Result<()> {
    let two = [bench.ext4("ours.img", 96, &[])?, bench.ext4("theirs.img", 96, &[])?];
    let output = bench.start(&Start::new("calls", &[&two[0], &two[1]]))?;
    output.lines().filter(|line| line.ends_with(" results")).for_each(|line| println!("    {line}"));
    two.iter().try_for_each(|image| e2fsck(bench.shell, image))
}

fn mounts(bench: &Bench<'_>) -> Result<()> {
    let format = ["-b", "1024", "-U", "6f62656e-746f-4000-8000-000000000032"];
    let two = [bench.ext4("ours.img", 96, &format)?, bench.ext4("theirs.img", 96, &format)?];
    let output = bench.start(&Start::new("mounts", &[&two[0], &two[1]]))?;
    output.lines().filter(|line| line.ends_with(" results")).for_each(|line| println!("    {line}"));
    let image = &two[0];
    let label = cmd!(bench.shell, "e2label {image}").quiet().read()?;
    ensure!(label == "last", "e2label reads the label '{label}'");
    two.iter().try_for_each(|image| e2fsck(bench.shell, image))
}

/// Formats a volume with quota files of users, groups and projects.
fn with_quotas(bench: &Bench<'_>) -> Result<PathBuf> {
    bench.ext4("quota.img", 96, &["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"])
}

fn quota(bench: &Bench<'_>) -> Result<()> {
    let image = with_quotas(bench)?;
    bench.start(&Start::new("quota", &[&image]))?;
    e2fsck(bench.shell, &image)?;
    let image = with_quotas(bench)?;
    bench.start(&Start::new("parallel", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn quota_cut(bench: &Bench<'_>) -> Result<()> {
    let image = with_quotas(bench)?;
    bench.start(&Start::new("cut", &[&image]))?;
    bench.start(&Start::new("replay", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn listings(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("listings.img", 64, &[])?;
    let output = bench.start(&Start::new("listings", &[&image]))?;
    output.lines().filter(|line| line.starts_with("bytes ")).for_each(|line| println!("    {line}"));
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

/// The program in the guest creates and checks the volume.
fn model_xv6(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("model.img");
    empty(&image, 32)?;
    bench.start(&Start::new("model", &[&image]).word("obento.type=obento-xv6").word("obento.format=xv6"))?;
    Ok(())
}

fn parallel(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("parallel.img", 96, &[])?;
    bench.start(&Start::new("parallel", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn parallel_fat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("parallel.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.fat -F 32 -s 1 {image}").quiet().ignore_stdout().run()?;
    bench.start(&Start::new("parallel", &[&image]).word("obento.type=obento-fat"))?;
    cmd!(bench.shell, "fsck.fat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
}

fn parallel_exfat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("parallel.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.exfat -c 4K {image}").quiet().ignore_stdout().run()?;
    bench.start(&Start::new("parallel", &[&image]).word("obento.type=obento-exfat"))?;
    cmd!(bench.shell, "fsck.exfat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
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
    let bytes = fs::read(&image)?;
    bench.start(&Start::new("replay-read-only", &[&image]))?;
    ensure!(fs::read(&image)? == bytes, "a mount of a read-only device changed the volume");
    bench.start(&Start::new("replay", &[&image]))?;
    let after = cmd!(bench.shell, "dumpe2fs -h {image}").quiet().ignore_stderr().read()?;
    ensure!(!after.contains("First orphan inode"), "a file without a name was not freed");
    e2fsck(bench.shell, &image)
}

fn fast(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("fast.img", 64, &["-O", "fast_commit"])?;
    bench.start(&Start::new("fast-write", &[&image]))?;
    bench.start(&Start::new("fast-replay", &[&image]))?;
    e2fsck(bench.shell, &image)
}

fn cut_xv6(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("cut.img");
    empty(&image, 32)?;
    let start = |case| Start::new(case, &[&image]).word("obento.type=obento-xv6");
    bench.start(&start("cut").word("obento.format=xv6"))?;
    bench.start(&start("replay"))?;
    Ok(())
}

fn history_of_processes(bench: &Bench<'_>) -> Result<()> {
    let command = bench.command()?;
    let image = bench.ext4("history.img", 64, &[])?;
    let output = bench.start(&Start::new("history", &[&image]))?;
    history::check(bench.shell, &command, &image, &output)?;
    e2fsck(bench.shell, &image)
}

fn history_model_exfat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("history.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.exfat -c 4K {image}").quiet().ignore_stdout().run()?;
    bench.start(&Start::new("model", &[&image]).word("obento.type=obento-exfat").word(RECORDED))?;
    cmd!(bench.shell, "fsck.exfat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
}

fn history_memory(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("history.img", 128, &[])?;
    let mut start = Start::new("memory", &[&image]).word(RECORDED);
    start.memory = 64;
    bench.start(&start)?;
    e2fsck(bench.shell, &image)
}

fn history_cut(bench: &Bench<'_>) -> Result<()> {
    let command = bench.command()?;
    let image = bench.ext4("history.img", 64, &[])?;
    bench.start(&Start::new("cut", &[&image]).word(RECORDED))?;
    bench.start(&Start::new("replay", &[&image]).word(RECORDED))?;
    history::check_cut(bench.shell, &command, &image)?;
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
