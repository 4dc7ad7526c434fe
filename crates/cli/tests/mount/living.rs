//! Programs that run on a mount while its server is replaced or killed: archives, clones of repositories, files that are
//! renamed and synced, a comparison with a model, and fsx with mappings if it is installed. A file without a name stays
//! open. No program fails.
//!
//! `cargo xtask upgrade` and `cargo xtask failover` repeat this a thousand and two hundred times.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
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

/// Returns whether fsx is installed. The campaigns require it.
fn has_fsx() -> bool {
    let is_installed = program("fsx").arg("--version").output().is_ok();
    let mut campaigns = ["OBENTO_UPGRADES", "OBENTO_FAILOVERS"].into_iter();
    let is_campaign = campaigns.any(|count| std::env::var_os(count).is_some());
    assert!(is_installed || !is_campaign, "fsx is missing: cargo install fsx@0.3.2");
    is_installed
}

/// Creates a file, writes `begin`, and removes its name.
fn nameless(disk: &Disk) -> File {
    let path = disk.path("nameless");
    let mut file = File::options().read(true).append(true).create_new(true).open(&path).unwrap();
    file.write_all(b"begin").unwrap();
    fs::remove_file(path).unwrap();
    file
}

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
    let (mut mapped, mut nameless) = (mapping(disk), nameless(disk));
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
                    return round + 1;
                }
            }
            0
        };
        let mut loads = Vec::new();
        for (name, one) in LOADS {
            let folder = folder(name);
            loads.push((name, scope.spawn(move || until_over(&|round| one(&folder, round)))));
        }
        if has_fsx() {
            let (folder, own) = (folder("fsx"), disk.folder());
            loads.push(("fsx", scope.spawn(move || until_over(&|round| fsx(&folder, own, round + 1)))));
        }
        let (named, written) = (disk.path("names"), disk.path("load"));
        let model = scope.spawn(move || names(&named, is_over));
        let contents = scope.spawn(move || load(&written, is_over));
        let end = End(is_over);
        disturb(rounds);
        drop(end);
        for (name, load) in loads {
            println!("{name}: {} rounds", load.join().unwrap());
        }
        (model.join().unwrap(), contents.join().unwrap())
    });
    fs::write(disk.folder().join("end"), "").unwrap();
    assert!(mapped.wait().unwrap().success());
    nameless.write_all(b", end").unwrap();
    let mut bytes = String::new();
    nameless.seek(SeekFrom::Start(0)).unwrap();
    nameless.read_to_string(&mut bytes).unwrap();
    assert_eq!((bytes.as_str(), nameless.metadata().unwrap().nlink()), ("begin, end", 0));
    drop(nameless);
    compare(&disk.path("names"), &model);
    let (one, other) = (disk.path("load/one"), disk.path("load/other"));
    assert!(fs::read(if one.exists() { one } else { other }).unwrap() == contents);
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
    programs_continue(&disk, |_| (0..upgrades()).for_each(|_| upgrade(&disk)));
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
