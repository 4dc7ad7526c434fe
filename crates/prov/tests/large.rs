//! A log of ten million records: creates it, and measures queries.
//!
//! The figures of decision 81 are of `obento prov` on the image that the first test creates.

mod common;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

use obento_base::Name;
use obento_prov::{Entries, FileId, Graph, IndexedLog, Lineage, LogOptions, Segments, Version};
use obento_vfs::Vfs;

#[test]
#[ignore = "creates a log of 300 MB at OBENTO_LARGE_LOG"]
fn a_log_of_ten_million_records_is_created() {
    let Some(image) = std::env::var_os("OBENTO_LARGE_LOG").map(PathBuf::from) else { return };
    let records = std::env::var("OBENTO_LARGE_RECORDS").map_or(10_000_000, |text| text.parse().unwrap());
    if !common::make_ext4_with(&image, 16 << 30, 300_000) {
        return;
    }
    let options = LogOptions { segments: 255, ..LogOptions::default() };
    common::farm::Farm::new(common::open_ext4(&image), options).work(records);
}

#[test]
#[ignore = "measures queries of the log at OBENTO_LARGE_LOG"]
fn queries_of_ten_million_records_are_measured() {
    let Some(image) = std::env::var_os("OBENTO_LARGE_LOG").map(PathBuf::from) else { return };
    let vfs = Vfs::new(common::open_ext4(&image));
    let segments = Segments::of(&vfs).unwrap().unwrap();
    let find = |path: &str| {
        let node =
            path.split('/').try_fold(vfs.root(), |dir, name| dir.lookup(Name::new(name.as_bytes()).unwrap()));
        let attr = node.unwrap().attr().unwrap();
        FileId { ino: attr.ino, generation: attr.generation }
    };
    let (app, object, source) = (find("bin/app3"), find("obj/source700.o"), find("src/source700.c"));
    let header = find("include/header7.h");
    let open = || IndexedLog::open(&segments, &mut |number, error| panic!("segment {number}: {error}"));
    measure("open", || open().len());
    measure("open without indexes", || {
        let all = segments.numbers().iter();
        all.map(|&number| Entries::new(&segments.read(number).unwrap()).flatten().count()).sum()
    });
    for (name, file) in [("app", app), ("object", object), ("source", source), ("header", header)] {
        measure(&format!("back from {name}"), || {
            let mut lineage = Lineage::new(open());
            let newest = lineage.newest(file);
            reached(newest, |version| lineage.sources(version))
        });
        measure(&format!("forward from {name}"), || {
            let mut lineage = Lineage::new(open());
            let newest = lineage.newest(file);
            reached(newest, |version| lineage.products(version))
        });
    }
    measure("back from app, by all records", || {
        let mut graph = Graph::new();
        for &number in segments.numbers() {
            Entries::new(&segments.read(number).unwrap()).flatten().for_each(|entry| graph.add(&entry));
        }
        reached(graph.newest(app), |version| graph.sources(version))
    });
}

fn measure(what: &str, query: impl FnOnce() -> usize) {
    let start = Instant::now();
    let found = query();
    println!("{what}: {found} in {:.3} s", start.elapsed().as_secs_f64());
}

/// Returns the number of versions that `next` reaches.
fn reached(from: Version, mut next: impl FnMut(Version) -> Vec<Version>) -> usize {
    let (mut seen, mut rest) = (HashSet::from([from]), vec![from]);
    while let Some(version) = rest.pop() {
        rest.extend(next(version).into_iter().filter(|found| seen.insert(*found)));
    }
    seen.len()
}
