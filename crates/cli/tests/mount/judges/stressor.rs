//! A stressor: random operations of four processes at once, with the same seeds on a mount of obento and on the kernel's
//! ext4. Each operation has the same result on both. After each round the server is killed, and the mount that replays
//! the journal has the same tree as the kernel's.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

const PROGRAM: &str = include_str!("stressor.py");
const PROCESSES: usize = 4;

fn python(args: &[&str], at: &Path) -> Command {
    let mut command = program("python3");
    command.args(["-c", PROGRAM]).args(args).current_dir(at).stdin(Stdio::null());
    command
}

/// Runs a round. Returns the lines of each process.
fn round(at: &Path, round: usize, count: usize) -> Vec<String> {
    let start = |process: usize| {
        let seed = format!("{round}-{process}");
        let mut command = python(&[&format!("w{process}"), &seed, &count.to_string()], at);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect();
    let outputs = processes.into_iter().map(|process| process.wait_with_output().unwrap());
    outputs
        .inspect(|output| assert!(output.status.success(), "{output:?}"))
        .map(|output| text(&output.stdout))
        .collect()
}

fn tree(at: &Path) -> String {
    text(&run(&mut python(&["--tree", "."], at)).unwrap().stdout)
}

/// Compares line by line, so that the first difference is shown.
#[track_caller]
fn expect_same(what: &str, ours: &str, kernels: &str) {
    let pairs = ours.lines().zip(kernels.lines());
    let different = pairs.filter(|(ours, kernels)| ours != kernels).take(5).collect::<Vec<_>>();
    assert!(
        different.is_empty() && ours.lines().count() == kernels.lines().count(),
        "{what}: {different:#?}"
    );
}

#[test]
fn a_stressor_finds_the_same_as_on_the_kernels_ext4_after_each_kill_of_the_server() {
    if !require(&[Oracle::LoopMount, Oracle::Fuse, Oracle::Program("python3"), Oracle::Root]) {
        return;
    }
    let is_whole = std::env::var("OBENTO_STRESS").is_ok_and(|scale| scale == "whole");
    let (rounds, count) = if is_whole { (20, 20_000) } else { (2, 400) };
    let (Some(disk), Some(other)) = (Disk::sized("1G", &[]), Disk::sized("1G", &[])) else { return };
    disk.mount("rw");
    let kernel = LoopMount::new(&other.image(), "").unwrap();
    for number in 0..rounds {
        let (ours, kernels) = (round(&disk.at(), number, count), round(kernel.path(), number, count));
        for (process, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            expect_same(&format!("round {number}, process {process}"), ours, kernels);
        }
        let expected = tree(kernel.path());
        expect_same(&format!("the tree of round {number}"), &tree(&disk.at()), &expected);
        let root = File::open(disk.at()).unwrap();
        // The kernel writes the data of all files. A commit for a directory covers all changes before its own last one.
        rustix::fs::syncfs(&root).unwrap();
        fs::create_dir(disk.at().join("last")).unwrap();
        fs::remove_dir(disk.at().join("last")).unwrap();
        root.sync_all().unwrap();
        drop(root);
        disk.kill();
        disk.mount_after_kill();
        expect_same(&format!("the tree after the kill of round {number}"), &tree(&disk.at()), &expected);
    }
    disk.umount();
    kernel.unmount().unwrap();
}
