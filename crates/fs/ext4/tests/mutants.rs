//! Randomly damaged images, the same in every run. Reading and inspecting them ends for all bytes. `OBENTO_MUTANTS`
//! sets the number of mutants of each kind, for a longer search.

mod common;

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use obento_base::Ino;
use obento_block::MemDevice;
use obento_driver::{Inspect, Target};
use obento_ext4::{Ext4, open_volume};
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::oracle::{program, run};
use obento_testkit::tree::{self, TreeSpec};
use obento_testkit::{Oracle, require};

/// Without checksums, so that damage reaches the decoders; and once with checksums.
const SHAPES: &[&[&str]] = &[
    &["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"],
    &["-t", "ext4", "-O", "^metadata_csum,inline_data,ea_inode", "-b", "1024", "-I", "512"],
    &["-t", "ext3", "-O", "^resize_inode", "-b", "1024"],
    &["-t", "ext4", "-O", "^metadata_csum,bigalloc,^resize_inode", "-b", "1024"],
    &["-t", "ext4", "-O", "metadata_csum,^resize_inode", "-b", "2048", "-g", "4096"],
];

fn image(args: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&source).unwrap();
    let spec = TreeSpec {
        files: 20,
        wide: 60,
        sparse_len: 1 << 22,
        xattr_len: 300,
        root: rustix::process::geteuid().is_root(),
        raw_names: true,
    };
    tree::write(&source, &spec).unwrap();
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    run(program("mke2fs").args(["-q", "-F", "-J", "size=1"]).args(args).arg("-d").arg(&source).arg(&image))
        .or_else(|_| run(program("mke2fs").args(["-q", "-F"]).args(args).arg("-d").arg(&source).arg(&image)))
        .unwrap();
    fs::read(&image).unwrap()
}

fn use_all(bytes: Vec<u8>) {
    let Ok(volume) = open_volume(Arc::new(MemDevice::read_only(bytes)), &common::options()) else { return };
    let fs = Ext4::new(volume);
    let _ = common::read_everything(&fs);
    let inodes = (1..64).flat_map(|ino| [Target::Inode(Ino(ino)), Target::Directory(Ino(ino))]);
    let others =
        [Target::SuperBlock(0), Target::SuperBlock(1), Target::Group(0), Target::Block(9), Target::Journal];
    for target in inodes.chain(others) {
        let _ = Inspect::inspect(&fs, target, &mut |_| ());
    }
}

#[test]
fn mutants_are_read_and_inspected_to_the_end() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let count = std::env::var("OBENTO_MUTANTS").map_or(24, |count| count.parse().unwrap());
    for (shape, args) in SHAPES.iter().enumerate() {
        let sound = image(args);
        for seed in 0..count {
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut Random::new(seed << 8 | shape as u64));
            let start = Instant::now();
            let outcome = std::panic::catch_unwind(|| use_all(bytes));
            assert!(outcome.is_ok(), "{args:?} seed {seed} panics");
            assert!(start.elapsed().as_secs() < 30, "{args:?} seed {seed} takes {:?}", start.elapsed());
        }
    }
}
