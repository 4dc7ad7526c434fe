//! Databases on a mount whose server is killed: each transaction that was committed is there after the next mount.

mod postgres;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

const SQLITE: &str = include_str!("sqlite.py");
/// The journal modes of SQLite that survive a power failure. The others are `memory` and `off`.
const MODES: [&str; 4] = ["delete", "truncate", "persist", "wal"];

/// Returns whether the campaign runs, and not its short form.
fn is_whole() -> bool {
    std::env::var("OBENTO_STRESS").is_ok_and(|scale| scale == "whole")
}

fn sqlite(disk: &Disk, what: &str, mode: &str, first: u64) -> Command {
    let mut command = program("python3");
    command.args(["-c", SQLITE, what]).arg(disk.path("data.db")).args([mode, &first.to_string()]);
    command.stdin(Stdio::null());
    command
}

/// Changes the database, kills the server after `count` transactions, and returns the number of the last one that was
/// committed.
fn change_until_killed(disk: &Disk, mode: &str, last: u64, count: usize) -> u64 {
    let mut command = sqlite(disk, "change", mode, last + 1);
    let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let before = lines.by_ref().take(count).last();
    let server = disk.server();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    let committed = lines.last().or(before);
    let mut errors = String::new();
    program.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(!program.wait().unwrap().success());
    let Some(committed) = committed else { panic!("no transaction was committed: {errors}") };
    committed.unwrap().parse().unwrap()
}

#[test]
fn transactions_of_sqlite_survive_a_kill_of_the_server_in_each_journal_mode() {
    if !require(&[Oracle::Fuse, Oracle::Program("python3")]) {
        return;
    }
    let kills = if is_whole() { 20 } else { 2 };
    for mode in MODES {
        let Some(disk) = Disk::mounted("rw") else { return };
        let mut last = 0;
        for kill in 1..=kills {
            let committed = change_until_killed(&disk, mode, last, 20 * kill);
            disk.clear_killed();
            disk.mount_after_kill();
            let verified = run(&mut sqlite(&disk, "verify", mode, 0)).unwrap();
            last = text(&verified.stdout).trim().parse().unwrap();
            assert!(last >= committed, "{mode}: transaction {committed} is lost, the last one is {last}");
        }
        println!("{mode}: {kills} kills, {last} transactions, none lost");
        disk.umount();
    }
}
