//! Programs that run on a mount while its server is replaced or killed: archives, clones of repositories, files that are
//! renamed and synced, a comparison with a model, and fsx with mappings if it is installed. No program fails.
//!
//! `cargo xtask upgrade` and `cargo xtask failover` repeat this a thousand and two hundred times.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::failover::{compare, failures, kill_server, names};
use crate::judges::FSX;
use crate::stress::{finish, witnesses};
use crate::support::{Disk, text, wait_until};
use crate::together::{archives, clones, tables};
use crate::upgrade::{End, load, mapping, serving, upgrade, upgrades};

/// One round of a load in a folder of its own, which is empty afterwards.
type Round = fn(&Path, usize);

/// The loads. The first two remove the trees that they have created.
const LOADS: [(&str, Round); 3] = [("archives", archives), ("clones", clones), ("tables", tables)];

/// Compares a file with a model in memory, for one seed (fsx).
fn fsx(folder: &Path, own: &Path, seed: usize) {
    let mut fsx = program("fsx");
    fsx.args(["-q", "-N", "2000", "-S", &seed.to_string(), "-f"])
        .arg(own.join("fsx.toml"))
        .arg("-P")
        .arg(own);
    run(fsx.arg(folder.join("file"))).unwrap();
    fs::remove_file(folder.join("file")).unwrap();
}

/// Runs all programs on `disk` until `disturb` has returned. `disturb` is called with the number of rounds that the
/// programs have ended so far.
fn programs_continue(disk: &Disk, disturb: impl FnOnce(&AtomicU64)) {
    witnesses(disk);
    let mut mapped = mapping(disk);
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let folder = |name: &str| {
        let folder = disk.path(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    fs::write(disk.folder().join("fsx.toml"), FSX).unwrap();
    let (model, contents) = std::thread::scope(|scope| {
        let (is_over, rounds) = (&is_over, &rounds);
        let until_over = |one: &dyn Fn(usize)| {
            for round in 0.. {
                one(round);
                rounds.fetch_add(1, Ordering::Relaxed);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        for (name, one) in LOADS {
            let folder = folder(name);
            scope.spawn(move || until_over(&|round| one(&folder, round)));
        }
        if program("fsx").arg("--version").output().is_ok() {
            let (folder, own) = (folder("fsx"), disk.folder());
            scope.spawn(move || until_over(&|round| fsx(&folder, own, round + 1)));
        }
        let (named, written) = (disk.path("names"), disk.path("load"));
        let model = scope.spawn(move || names(&named, is_over));
        let contents = scope.spawn(move || load(&written, is_over));
        let end = End(is_over);
        disturb(rounds);
        drop(end);
        (model.join().unwrap(), contents.join().unwrap())
    });
    fs::write(disk.folder().join("end"), "").unwrap();
    assert!(mapped.wait().unwrap().success());
    compare(&disk.path("names"), &model);
    let (one, other) = (disk.path("load/one"), disk.path("load/other"));
    assert!(fs::read(if one.exists() { one } else { other }).unwrap() == contents);
    println!("the programs have ended {} rounds", rounds.into_inner());
    finish(disk);
    disk.mount("ro");
    compare(&disk.path("names"), &model);
    disk.umount();
}

fn disk(options: &str) -> Option<Disk> {
    let needed = ["git", "tar", "python3"].map(Oracle::Program);
    if !require(&needed) {
        return None;
    }
    let disk = Disk::sized("1G", &[])?;
    disk.mount(options);
    Some(disk)
}

#[test]
fn programs_continue_while_the_server_is_replaced() {
    let Some(disk) = disk("io_uring=off") else { return };
    let count = upgrades().div_ceil(2);
    programs_continue(&disk, |_| (0..count).for_each(|_| upgrade(&disk)));
}

#[test]
fn programs_continue_while_the_server_is_killed() {
    let Some(disk) = disk("failover=1000") else { return };
    programs_continue(&disk, |rounds| {
        for _ in 0..failures() {
            let before = rounds.load(Ordering::Relaxed);
            let killed = kill_server(&disk);
            wait_until("the next server", || serving(disk.folder()) != killed);
            // The programs are at another place each time.
            wait_until("progress of the programs", || rounds.load(Ordering::Relaxed) > before);
        }
        let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
        assert!(status.contains(&format!("\"failovers\":{}", failures())), "{status}");
    });
}
