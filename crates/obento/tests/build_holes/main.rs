//! Random files of data, zeros and holes keep their bytes and holes, from every kind of source and in every
//! kind of volume.
//!
//! `OBENTO_TREES` is the number of trees and `OBENTO_SEED` the first seed; `cargo xtask build-campaign
//! --random` sets both. With `OBENTO_KEEP` the images are not removed.

mod files;
mod sources;
mod volumes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use obento::Registry;
use obento::address::PartSelector;
use obento::build::{
    BuildSettings, BuildSource, DiskSettings, PartitionContent, PartitionSettings, Pipes, build, build_disk,
};
use obento::copy::Quiet;
use obento::driver::FreeSpace;
use obento::partition::{PartitionType, Scheme};
use obento_testkit::mutants::Random;
use sources::{Expected, KINDS, Made};
use volumes::SHAPES;

/// The number of trees of a normal run.
const TREES: u64 = 400;
/// The format's own check verifies one volume in this many.
const JUDGED: u64 = 20;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Builds the tree of a seed, and compares the volume with it.
fn try_seed(seed: u64, folder: &Path) {
    let mut random = Random::new(seed);
    let shape = &SHAPES[random.below(SHAPES.len() as u64) as usize];
    let mut made = Vec::new();
    let mut kinds = Vec::new();
    // A later source replaces files of an earlier one.
    for layer in 0..=u64::from(random.below(4) == 0) {
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let tree = files::tree(&mut random, shape.unit);
        let folder = folder.join(layer.to_string());
        fs::create_dir(&folder).unwrap();
        made.push(sources::make(&mut random, kind, &tree, &folder));
        kinds.push(kind);
    }
    let mut settings = shape.settings();
    let room = [FreeSpace::Free(10), FreeSpace::Free(0), FreeSpace::Least][random.below(3) as usize];
    settings.room = room;
    settings.size = (random.below(6) == 0).then_some(24 << 20);
    settings.threads = 1;
    settings.pipes = [Pipes::Spool, Pipes::Stream][random.below(2) as usize];
    let is_disk = random.below(8) == 0;
    let what = format!(
        "seed {seed}: {kinds:?}, {room:?}, {:?}, {:?}, disk {is_disk}, {shape:?}",
        settings.size, settings.pipes
    );
    let (mut sources, mut expected, mut feeders) = (Vec::new(), BTreeMap::new(), Vec::new());
    for Made { sources: some, expected: files, feeder } in made {
        sources.extend(some);
        expected.extend(files.into_iter().map(|file| (file.path.clone(), file)));
        feeders.extend(feeder);
    }
    let expected: Vec<Expected> = expected.into_values().collect();
    let image = folder.join("out.img");
    let registry = Registry::default();
    let is_pipe = !feeders.is_empty();
    if is_disk {
        build_on_disk(&image, sources.clone(), settings.clone(), &what);
    } else {
        build(&image, &sources, &settings, &registry, &mut Quiet::default())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    feeders.into_iter().for_each(|feeder| feeder.join().unwrap());
    // The sources of a pipe were consumed.
    if room == FreeSpace::Least && settings.size.is_none() && !is_disk && !is_pipe {
        let loose = folder.join("loose.img");
        let settings = BuildSettings { room: FreeSpace::Free(0), ..settings };
        build(&loose, &sources, &settings, &registry, &mut Quiet::default()).unwrap();
        let len = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(len(&image) <= len(&loose), "{what}: {} and {} bytes", len(&image), len(&loose));
    }
    shape.expect(&image, is_disk.then_some(&PartSelector::Number(2)), &expected, &what);
    if seed.is_multiple_of(JUDGED) && !is_disk {
        shape.judge(&image, &what);
    }
}

/// Builds the second partition of a disk.
fn build_on_disk(image: &Path, sources: Vec<BuildSource>, settings: BuildSettings, what: &str) {
    let mut disk = DiskSettings::new(Scheme::Gpt);
    let kind = PartitionType::parse("linux-generic", Scheme::Gpt).unwrap();
    let empty = PartitionSettings {
        size: obento::build::PartitionSize::Bytes(1 << 20),
        ..PartitionSettings::new(kind, PartitionContent::Empty)
    };
    let content = PartitionContent::Volume { sources, settings: Box::new(settings) };
    disk.partitions.extend([empty, PartitionSettings::new(kind, content)]);
    build_disk(image, &disk, &Registry::default(), &mut Quiet::default())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn files_of_data_zeros_and_holes_keep_their_bytes_and_holes_in_every_volume() {
    let (first, count) = (number("OBENTO_SEED", 1), number("OBENTO_TREES", TREES));
    println!("OBENTO_SEED={first} OBENTO_TREES={count}");
    let next = AtomicU64::new(first);
    let keep = std::env::var_os("OBENTO_KEEP").is_some();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    let folder = tempfile::Builder::new().disable_cleanup(keep).tempdir().unwrap();
                    try_seed(seed, folder.path());
                    if seed.is_multiple_of(10_000) {
                        println!("{seed}");
                    }
                }
            });
        }
    });
}
