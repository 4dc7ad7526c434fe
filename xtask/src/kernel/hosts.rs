//! The host cases on mounts of the module: the results are a part of docs/matrix.md.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::Shell;

use super::guest::{GuestProgram, Start, empty};
use super::{DEFAULT_FOLDER, KernelOptions};

const MIB: u64 = 48;

/// A volume: its column on the page, the type of the mount, the type to create, and settings.
type Volume = (&'static str, &'static str, &'static str, &'static str);

const VOLUMES: [Volume; 8] = [
    ("ext2", "obento-ext4", "ext2", "inodes:4096"),
    ("ext3", "obento-ext4", "ext3", "inodes:4096"),
    ("ext4", "obento-ext4", "ext4", "inodes:4096"),
    ("FAT12", "obento-fat", "vfat", "fat:12,sectors_per_cluster:32"),
    ("FAT16", "obento-fat", "vfat", "fat:16"),
    ("FAT32", "obento-fat", "vfat", "fat:32,sectors_per_cluster:1"),
    ("exFAT", "obento-exfat", "exfat", ""),
    ("xv6", "obento-xv6", "xv6", ""),
];

/// Runs the cases in Debian's user-mode-linux. Returns the file with the results for the page.
pub fn page(shell: &Shell) -> Result<PathBuf> {
    let folder = DEFAULT_FOLDER.into();
    run(shell, &KernelOptions { uml: true, stock: false, release: None, folder }, None)
}

/// Runs the cases, prints those that fail, and writes a line `COLUMN<tab>CASE<tab>END` for each result.
pub(super) fn run(shell: &Shell, kernel: &KernelOptions, module: Option<&Path>) -> Result<PathBuf> {
    let (guest, target) = super::guest_with(shell, kernel, module, GuestProgram::Hosts)?;
    let image = target.join("images/hosts.img");
    shell.create_dir(target.join("images"))?;
    let (mut lines, mut failed) = (String::new(), 0);
    for (column, mounted, kind, settings) in VOLUMES {
        empty(&image, MIB)?;
        let words = [format!("type={mounted}"), format!("kind={kind}"), format!("set={settings}")];
        let mut start = Start::new("hosts", &[&image]);
        start.memory = 512;
        start.words.extend(words.iter().map(|word| format!("obento.{word}")));
        let output = guest.run(&start)?;
        let ends = output.lines().filter_map(|line| line.trim().strip_prefix("host: ")?.split_once(": "));
        for (case, end) in ends {
            if end.starts_with("FAILED") {
                println!("{column}: {case}: {end}");
                failed += 1;
            }
            lines.push_str(&format!("{column}\t{case}\t{end}\n"));
        }
        println!("{column}: done");
    }
    let results = target.join("hosts");
    fs::write(&results, lines)?;
    ensure!(failed == 0, "{failed} cases failed");
    Ok(results)
}
