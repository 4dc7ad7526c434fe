//! Compares obento with other tools on the test files of other projects.
//!
//! The clients of the registries download the packages, which are pinned by SHA-256 and stored in `target/world`.
//! They are not committed. Each image and archive in them is an *item*, and each compared property is an *aspect*. A
//! difference requires a row with a reason in `docs/campaigns/world.md`. The campaign fails on a difference without a
//! row, and on a row without a difference.

mod archive;
mod fetch;
mod harvest;
mod image;
mod names;
mod run;
mod table;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::Shell;

use crate::packages::{self, Package};
use fetch::Source;
use harvest::{Item, Kind};
use run::ItemFolder;
use table::{Difference, Table};

/// The programs with which obento is compared, and those that unpack files.
const PACKAGES: &[Package] = &[
    ("/sbin/mke2fs", "e2fsprogs"),
    ("/sbin/fsck.fat", "dosfstools"),
    ("/sbin/fsck.exfat", "exfatprogs"),
    ("/sbin/mount.exfat-fuse", "exfat-fuse"),
    ("/sbin/mount.ntfs-3g", "ntfs-3g"),
    ("/usr/bin/fsntfsinfo", "libfsntfs-utils"),
    ("/usr/bin/mcopy", "mtools"),
    ("/usr/bin/bsdtar", "libarchive-tools"),
    ("/usr/bin/getfattr", "attr"),
    ("/usr/bin/linux.uml", "user-mode-linux"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/bin/zstd", "zstd"),
    ("/usr/bin/xxd", "xxd"),
];

/// The options of a comparison.
#[derive(clap::Args)]
pub struct Options {
    /// Include only the packages that are downloaded and compared within a minute.
    #[arg(long)]
    short: bool,
    /// Include only this package.
    #[arg(long)]
    package: Option<String>,
    /// Compare only items whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// The obento program [default: a new build].
    #[arg(long)]
    command: Option<PathBuf>,
}

/// Downloads the packages, compares all items in them, and prints each difference that the table does not list.
/// Requires root.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        return within();
    }
    packages::ensure(shell, PACKAGES)?;
    let command = match &options.command {
        Some(command) => command.canonicalize()?,
        None => {
            xshell::cmd!(shell, "cargo build -q -p obento-cli").run()?;
            shell.current_dir().join("target/debug/obento").canonicalize()?
        }
    };
    let page = shell.current_dir().join("docs/campaigns/world.md");
    let cache = shell.current_dir().join("target/world");
    shell.create_dir(&cache)?;
    let table = Table::read(&page)?;
    let items = items(&cache.canonicalize()?, options)?;
    ensure!(!items.is_empty(), "there is no item to compare");
    let folder = ItemFolder::new(command)?;
    let mut found = Vec::new();
    for item in &items {
        found.extend(compare(&folder, item).with_context(|| item.name.clone())?);
    }
    let names = items.iter().map(|item| item.name.as_str()).collect();
    let (unlisted, gone) = table.judge(&found, &names);
    for difference in &unlisted {
        println!("| {} | {} | {} |", difference.item, difference.aspect, difference.detail);
    }
    for (item, aspect) in &gone {
        println!("no difference remains: {item}, {aspect}");
    }
    let archives = items.iter().filter(|item| item.kind == Kind::Archive).count();
    println!(
        "{} archives and {} images compared: {} differences are listed, {} are not; {} rows no longer differ",
        archives,
        items.len() - archives,
        found.len() - unlisted.len(),
        unlisted.len(),
        gone.len()
    );
    // A fixed fault must not fail the change that fixes it.
    let is_stale = |(item, aspect): &(&str, &str)| !(options.short && table.is_open(item, aspect));
    ensure!(unlisted.is_empty() && !gone.iter().any(is_stale), "{} and the items disagree", page.display());
    Ok(())
}

/// An environment variable that is set in the process with private mounts.
const INSIDE: &str = "OBENTO_WORLD_INSIDE";

/// Runs the same command in a mount namespace, so that its mounts always end with it.
fn within() -> Result<()> {
    let mut command =
        run::command("unshare", &["-m".as_ref(), "--".as_ref(), std::env::current_exe()?.as_os_str()]);
    let status = command.args(std::env::args_os().skip(1)).env(INSIDE, "1").status()?;
    ensure!(status.success(), "the comparison failed");
    Ok(())
}

fn items(cache: &Path, options: &Options) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let is_asked = |source: &&Source| match &options.package {
        Some(package) => source.name == package,
        None => source.is_short || !options.short,
    };
    for source in fetch::SOURCES.iter().filter(is_asked) {
        items.extend(harvest::items(source, cache)?);
    }
    items.retain(|item| options.only.as_ref().is_none_or(|only| item.name.contains(only.as_str())));
    Ok(items)
}

fn compare(folder: &ItemFolder, item: &Item) -> Result<Vec<Difference>> {
    let found = match item.kind {
        Kind::Archive => archive::compare(folder, item)?,
        Kind::Image => image::compare(folder, item)?,
    };
    let of_item = |(aspect, detail)| Difference { item: item.name.clone(), aspect, detail };
    Ok(found.into_iter().map(of_item).collect())
}
