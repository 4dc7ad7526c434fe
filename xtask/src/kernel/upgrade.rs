//! The cases that replace the driver of a mounted volume: a guest with further modules that contain drivers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use xshell::{Shell, cmd};

use super::guest::{Guest, GuestProgram, Start, e2fsck, empty};
use super::test::Bench;
use super::{KernelOptions, build, setup, stock};

/// The modules: the same drivers under two names, and drivers that fail.
const MODULES: [&str; 3] = ["one", "two", "faulty"];

/// A guest with a module and [`MODULES`] of the same build.
fn guest(shell: &Shell, options: &KernelOptions) -> Result<Guest> {
    let kernel = setup::kernel(shell, options)?;
    let (module, drivers) = build::with_drivers(shell, &kernel, None, &MODULES)?;
    let stock = match kernel.is_uml {
        true => None,
        false => Some(stock::Stock::new(shell, &options.folder, &kernel.name, &module)?),
    };
    let target = kernel.target(&shell.current_dir()).join("upgrade");
    Guest::new(shell, &module, &drivers, &target, stock, GuestProgram::Cases)
}

/// Runs the case on a volume, and prints the pauses.
fn run(bench: &Bench<'_>, image: &Path, words: &[&str]) -> Result<()> {
    let mut start = Start::new("upgrade", &[image]);
    start.limit = Duration::from_secs(900);
    let start = words.iter().fold(start, |start, &word| start.word(word));
    let output = bench.start_in(&guest(bench.shell, bench.kernel)?, &start)?;
    let is_shown = |line: &&str| line.starts_with("pauses ") || line.starts_with("ok: ");
    output.lines().filter(is_shown).for_each(|line| println!("    {line}"));
    Ok(())
}

pub fn ext4(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("upgrade.img", 128, &["-b", "4096"])?;
    run(bench, &image, &[])?;
    e2fsck(bench.shell, &image)
}

pub fn ext4_1k(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("upgrade.img", 128, &["-b", "1024", "-O", "inline_data"])?;
    run(bench, &image, &[])?;
    e2fsck(bench.shell, &image)
}

pub fn recorded(bench: &Bench<'_>) -> Result<()> {
    let image = bench.ext4("upgrade.img", 128, &[])?;
    run(bench, &image, &[super::test::RECORDED])?;
    e2fsck(bench.shell, &image)
}

pub fn fat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("upgrade.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.fat -F 32 -s 1 {image}").quiet().ignore_stdout().run()?;
    run(bench, &image, &["obento.type=obento-fat"])?;
    cmd!(bench.shell, "fsck.fat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
}

pub fn exfat(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("upgrade.img");
    empty(&image, 96)?;
    cmd!(bench.shell, "mkfs.exfat -c 4K {image}").quiet().ignore_stdout().run()?;
    run(bench, &image, &["obento.type=obento-exfat"])?;
    cmd!(bench.shell, "fsck.exfat -n {image}").quiet().ignore_stdout().run()?;
    Ok(())
}

/// The program in the guest creates and checks the volume.
pub fn xv6(bench: &Bench<'_>) -> Result<()> {
    let image = bench.image("upgrade.img");
    empty(&image, 32)?;
    run(bench, &image, &["obento.type=obento-xv6", "obento.format=xv6"])
}

/// Two volumes are busy, and one is free.
pub fn busy(bench: &Bench<'_>) -> Result<()> {
    let images = ["busy-a.img", "busy-b.img", "busy-c.img"].map(|name| bench.ext4(name, 32, &["-b", "4096"]));
    let images = images.into_iter().collect::<Result<Vec<_>>>()?;
    let disks: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let output = bench.start_in(&guest(bench.shell, bench.kernel)?, &Start::new("upgrade-busy", &disks))?;
    output.lines().filter(|line| line.starts_with("ok: ")).for_each(|line| println!("    {line}"));
    images.iter().try_for_each(|image| e2fsck(bench.shell, image))
}
