//! A complete driver: ext4 with its journal, under `vfs`, with the thread that commits.
#![cfg(obento_env = "shuttle")]

use std::sync::{Arc, OnceLock};

use obento_base::{DeviceNumber, Error, FileKind, Mode, Name, Result};
use obento_block::MemDevice;
use obento_driver::{
    Access, Check, CheckOptions, Driver as _, FileSystem, Finding, Format, FormatOptions, NewNode,
    OpenOptions, RenameFlags,
};
use obento_env::thread::{Thread, spawn};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_ext4::Ext4Driver;
use obento_schedules::{explore, once};
use obento_vfs::{Caller, Node, Vfs};

const OWNER: Caller = Caller::Owner;

/// Returns the bytes of an empty volume with a journal of 1 MiB.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    once(|| {
        if BASE.get().is_none() {
            let device = MemDevice::new(vec![0; 3 << 20]);
            let mut options = FormatOptions::new("ext4", Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
            options.block_size = Some(1024);
            options.features = vec!["^resize_inode".into()];
            options.settings.push(("journal_size".into(), "1".into()));
            Format::format(&Ext4Driver, &device, &options).expect("a volume that can be");
            let _ = BASE.set(device.snapshot());
        }
    });
    BASE.get().expect("it was just made")
}

/// Runs `work` in parallel threads. The volume is closed and consistent afterwards.
fn at_once(base: &'static [u8], before: fn(&Vfs), work: &[fn(&Vfs)]) {
    let device = Arc::new(MemDevice::new(base.to_vec()));
    let options =
        OpenOptions { access: Access::ReadWrite, cache: 1 << 20, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs: Arc<dyn FileSystem> = Ext4Driver.open(device.clone(), &options).expect("it opens");
    let vfs = Vfs::new(fs);
    before(&vfs);
    let start = |&work: &fn(&Vfs)| {
        let vfs = vfs.clone();
        spawn("worker", move || work(&vfs)).expect("there are threads")
    };
    let threads: Vec<Thread> = work.iter().map(start).collect();
    threads.into_iter().for_each(Thread::join);
    vfs.close().expect("a sound device");
    drop(vfs);
    let mut found: Vec<Finding> = Vec::new();
    let check = CheckOptions { threads: 1, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    Check::check(&Ext4Driver, device, &check, &mut found).expect("a super block");
    assert!(found.is_empty(), "{found:?}");
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn make(vfs: &Vfs, dir: &Node, text: &str, kind: FileKind) -> Result<Node> {
    let (mode, rdev) = (Mode::new(0o755), DeviceNumber::default());
    vfs.create(&OWNER, dir, name(text), &NewNode { kind, mode, uid: 0, gid: 0, rdev, target: b"" })
}

#[track_caller]
fn expect_one_of<T>(done: Result<T>, others: &[Error]) {
    if let Err(error) = done {
        assert!(others.contains(&error), "{error:?}");
    }
}

#[test]
fn files_that_are_made_synced_and_removed_at_once_leave_a_consistent_volume() {
    let base = base();
    explore(move || {
        let make_and_sync = |vfs: &Vfs| {
            let file = make(vfs, &vfs.root(), "a", FileKind::Regular).expect("no other thread creates it");
            file.write_at(0, &[7; 3000]).expect("there is room");
            file.sync().expect("a sound device");
        };
        let make_and_remove = |vfs: &Vfs| {
            drop(make(vfs, &vfs.root(), "b", FileKind::Directory).expect("no other thread creates it"));
            vfs.rmdir(&OWNER, &vfs.root(), name("b")).expect("it is empty");
        };
        let remove = |vfs: &Vfs| {
            expect_one_of(vfs.unlink(&OWNER, &vfs.root(), name("a")), &[Error::NotFound]);
            vfs.sync().expect("a sound device");
        };
        at_once(base, |_| (), &[make_and_sync, make_and_remove, remove]);
    });
}

#[test]
fn renames_truncates_and_writes_at_once_leave_a_consistent_volume() {
    let base = base();
    explore(move || {
        let before = |vfs: &Vfs| {
            for dir in ["d", "e"] {
                let dir = make(vfs, &vfs.root(), dir, FileKind::Directory).expect("it is made");
                let file = make(vfs, &dir, "f", FileKind::Regular).expect("it is made");
                file.write_at(0, &[1; 5000]).expect("there is room");
            }
        };
        let rename = |vfs: &Vfs| {
            let [d, e] = ["d", "e"].map(|dir| vfs.root().lookup(name(dir)).expect("it exists"));
            vfs.rename(&OWNER, (&d, name("f")), (&e, name("f")), RenameFlags::empty())
                .expect("a file for a file");
        };
        let write = |vfs: &Vfs| {
            let e = vfs.root().lookup(name("e")).expect("it exists");
            let file = e.lookup(name("f")).expect("one of the two is");
            file.truncate(100).expect("it is a file");
            file.write_at(3000, &[2; 2000]).expect("there is room");
        };
        at_once(base, before, &[rename, write, write]);
    });
}
