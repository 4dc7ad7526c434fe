//! The instructions that recording adds to the operations of a mail server (`varmail` of Filebench), on an ext4 volume in
//! memory.
//!
//! ```text
//! cargo test --release -p obento-prov --test cost --no-run
//! for recorded in 0 1; do
//!     OBENTO_COST=$recorded valgrind --tool=callgrind --toggle-collect='*::measured_passes*' \
//!         target/release/deps/cost-HASH --ignored --exact passes_of_a_mail_server_are_measured
//! done
//! ```

mod common;

use std::sync::Arc;

use obento_base::{FileKind, Mode, Name, NameBuf};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver as _, FileSystem, NewNode, OpenOptions};
use obento_ext4::Ext4Driver;
use obento_prov::LogOptions;
use obento_vfs::{Caller, Node, Vfs};

/// Number of passes, and number of files.
const PASSES: u64 = 400;
const FILES: u64 = 200;

fn named(number: u64) -> NameBuf {
    Name::new(format!("mail{number}").as_bytes()).unwrap().to_buf()
}

fn create(vfs: &Vfs, number: u64) -> Node {
    let (mode, rdev, target) = (Mode::new(0o644), obento_base::DeviceNumber::default(), &b""[..]);
    let new = NewNode { kind: FileKind::Regular, mode, uid: 0, gid: 0, rdev, target };
    vfs.create(&Caller::Owner, &vfs.root(), &named(number), &new).unwrap()
}

fn append(file: &Node, len: usize) {
    let size = file.attr().unwrap().size;
    assert_eq!(file.write_at(size, &vec![7; len]).unwrap(), len);
}

fn read(file: &Node) {
    let mut bytes = vec![0; usize::try_from(file.attr().unwrap().size).unwrap()];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
}

/// Deletes a file, creates it, appends and syncs; appends to another file and syncs; reads a third one.
#[inline(never)]
fn measured_passes(vfs: &Vfs, passes: u64) {
    for pass in 0..passes {
        let [one, other, third] = [7, 11, 13].map(|step| pass * step % FILES);
        vfs.unlink(&Caller::Owner, &vfs.root(), &named(one)).unwrap();
        let file = create(vfs, one);
        append(&file, usize::try_from(1 + pass * 4099 % 16_384).unwrap());
        file.sync().unwrap();
        drop(file);
        let file = vfs.root().lookup(&named(other)).unwrap();
        read(&file);
        append(&file, usize::try_from(1 + pass * 2053 % 16_384).unwrap());
        file.sync().unwrap();
        drop(file);
        read(&vfs.root().lookup(&named(third)).unwrap());
    }
}

#[test]
#[ignore = "a measurement: OBENTO_COST=1 with a recorder, OBENTO_COST=0 without"]
fn passes_of_a_mail_server_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !common::make_ext4_with(&image, 256 << 20, 20_000) {
        return;
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(std::fs::read(&image).unwrap()));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(common::clock()) };
    let inner = Ext4Driver.open(device, &options).unwrap();
    let is_recorded = std::env::var("OBENTO_COST").as_deref() == Ok("1");
    let fs = match is_recorded {
        true => common::recorded(inner, LogOptions::default()) as Arc<dyn FileSystem>,
        false => inner,
    };
    let vfs = Vfs::new(Arc::clone(&fs));
    (0..FILES).for_each(|number| append(&create(&vfs, number), 16_384));
    vfs.sync().unwrap();
    measured_passes(&vfs, PASSES);
    vfs.close().unwrap();
    println!("{PASSES} passes, recorded: {is_recorded}");
}
