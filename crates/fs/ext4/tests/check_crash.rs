//! The power fails while a volume is mended: a second run ends with a volume that e2fsck calls clean.

mod common;
mod lab;

use std::sync::Arc;

use lab::Disk;
use lab::bases::{self, Base, oracles};
use lab::judge::{check, e2fsck_is_clean, findings, line, repaired};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::Mending;
use obento_testkit::crash::{Options, Seen, State, explore};
use obento_testkit::record::RecordDevice;

/// A damage whose repair is cut.
struct Case {
    name: &'static str,
    base: &'static Base,
    damage: fn(&mut Disk),
}

/// One of each kind of repair: fields, counts, names, indexes, what is not connected, orphans.
const CASES: &[Case] = &[
    Case {
        name: "counts",
        base: &bases::EXT4,
        damage: |disk| {
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
            let block = disk.free_block();
            disk.edit_bit(lab::Bits::Blocks, block, true);
        },
    },
    Case {
        name: "not connected",
        base: &bases::EXT4,
        damage: |disk| disk.edit_entry("", "dir", |entry| entry.inode = 0.into()),
    },
    Case {
        name: "a directory of nonsense",
        base: &bases::EXT4,
        damage: |disk| disk.edit_entry("dir", "inner", |entry| entry.rec_len = 2000.into()),
    },
    Case {
        name: "an index",
        base: &bases::EXT4,
        damage: |disk| disk.edit_index_bounds("full", 0, |bounds| bounds.count = 600.into()),
    },
    Case {
        name: "an inode of nonsense",
        base: &bases::EXT3,
        damage: |disk| disk.edit_inode("file", |inode| inode.i_mode = 0o644.into()),
    },
    Case {
        name: "an extent tree",
        base: &bases::EXT4,
        damage: |disk| disk.edit_extent("pieces", &[0], 1, |extent| extent.ee_len = 0.into()),
    },
];

/// A second run mends what a cut left.
fn second_run(state: &State<'_>) -> Result<(), String> {
    let bytes = state.with_bytes(<[u8]>::to_vec);
    let mended = repaired(&bytes).map_err(|error| format!("the second run fails: {error}"))?;
    let left: Vec<String> = findings(&mended).map_err(|e| e.to_string())?.iter().map(line).collect();
    if !left.is_empty() {
        return Err(format!("the third run finds {left:?}"));
    }
    let second = e2fsck_is_clean(&mended);
    if second.is_clean() { Ok(()) } else { Err(second.text) }
}

fn cut(case: &Case, options: &Options) -> usize {
    let mut disk = case.base.disk();
    (case.damage)(&mut disk);
    let device = Arc::new(RecordDevice::new(MemDevice::new(disk.bytes.clone())));
    check(device.clone(), Mending::All).unwrap();
    device.flush().unwrap();
    let events = device.take_events();
    let seen = Seen::default();
    let summary = explore(&disk.bytes, &events, options, &seen, &mut second_run);
    let told: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}: {}", case.name, told.join("\n"));
    assert!(summary.judged > 0, "{}: nothing was written", case.name);
    summary.judged
}

#[test]
fn a_repair_cut_anywhere_is_ended_by_a_second_run() {
    if !oracles() {
        return;
    }
    // The super block is found before any journal: nobody can tell a torn one from a damaged one.
    let options = Options { every_subset: 3, samples: 2, torn: 2, whole: 1024..2048, ..Options::new(1) };
    for case in CASES {
        println!("{}: {} states", case.name, cut(case, &options));
    }
}

#[test]
#[ignore = "takes minutes: --ignored campaign"]
fn campaign_over_many_cuts_of_repairs() {
    if oracles() {
        let options = Options { whole: 1024..2048, ..Options::new(1) };
        for case in CASES {
            println!("{}: {} states", case.name, cut(case, &options));
        }
    }
}
