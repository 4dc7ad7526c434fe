//! Power cuts during a repair: a second run ends with a volume that e2fsck finds clean.

mod common;
mod lab;

use std::sync::Arc;

use lab::Disk;
use lab::bases::{self, Base, oracles};
use lab::judge::{Contents, check, contents, e2fsck_is_clean, findings, line, lost, repaired};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::RepairMode;
use obento_testkit::crash::{Options, SeenStates, State, explore};
use obento_testkit::record::{Event, RecordDevice};

/// Damage whose repair is interrupted.
struct Case {
    name: &'static str,
    base: &'static Base,
    damage: fn(&mut Disk),
    /// Number of journal transactions of its repair.
    transactions: usize,
}

/// With a file of 1,500 blocks, more than the journal can contain.
static ROOMY: Base = Base {
    name: "ROOMY",
    mke2fs: "-t ext4 -b 1024 -g 4096 -J size=1",
    debugfs: "write FILES/value-3000 big\nfallocate big 3 1500\n",
};
/// The same without a journal.
static UNLOGGED: Base = Base { name: "UNLOGGED", mke2fs: "-t ext4 -b 1024 -g 4096 -O ^has_journal", ..ROOMY };

/// Lets `pieces` claim `len` blocks of `of`, too.
fn share(disk: &mut Disk, of: u32, len: u16) {
    let last = u32::from(len) - 1;
    let start = (20..1500).map(|n| (disk.file_block(of, n), disk.file_block(of, n + last)));
    let (start, _) = start.into_iter().find(|&(start, end)| start != 0 && start + last == end).unwrap();
    for block in 0..u32::from(len) {
        // Copying zeros over zeros would not be a change.
        let range = disk.range(start + block);
        disk.bytes[range].fill(1 + (block % 200) as u8);
    }
    disk.edit_extent("pieces", &[0], 5, |extent| {
        extent.ee_len = len.into();
        extent.ee_start_lo = start.into();
    });
}

/// One case of each kind of repair: fields, counts, names, indexes, unconnected directories, orphans.
const CASES: &[Case] = &[
    Case {
        name: "counts",
        base: &bases::EXT4,
        damage: |disk| {
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
            let block = disk.free_block();
            disk.edit_bit(lab::Bits::Blocks, block, true);
        },
        transactions: 1,
    },
    Case {
        name: "not connected",
        base: &bases::EXT4,
        damage: |disk| disk.edit_entry("", "dir", |entry| entry.inode = 0.into()),
        transactions: 1,
    },
    Case {
        name: "a directory of nonsense",
        base: &bases::EXT4,
        damage: |disk| disk.edit_entry("dir", "inner", |entry| entry.rec_len = 2000.into()),
        transactions: 1,
    },
    Case {
        name: "an index",
        base: &bases::EXT4,
        damage: |disk| disk.edit_index_bounds("full", 0, |bounds| bounds.count = 600.into()),
        transactions: 1,
    },
    Case {
        name: "an inode of nonsense",
        base: &bases::EXT3,
        damage: |disk| disk.edit_inode("file", |inode| inode.i_mode = 0o644.into()),
        transactions: 1,
    },
    Case {
        name: "an extent tree",
        base: &bases::EXT4,
        damage: |disk| disk.edit_extent("pieces", &[0], 1, |extent| extent.ee_len = 0.into()),
        transactions: 1,
    },
    Case {
        name: "the super block",
        base: &bases::EXT4,
        damage: |disk| {
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
            disk.put(1024 + 0x3fc, &[1, 2, 3, 4]);
        },
        transactions: 1,
    },
    Case {
        name: "blocks of the journal",
        base: &bases::EXT4,
        damage: |disk| {
            share(disk, 8, 100);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
        },
        transactions: 0,
    },
    Case {
        name: "more than one transaction",
        base: &ROOMY,
        damage: |disk| {
            share(disk, disk.ino("big"), 700);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
        },
        transactions: 2,
    },
    Case {
        name: "copies of more than the journal holds",
        base: &ROOMY,
        damage: |disk| {
            share(disk, disk.ino("big"), 1200);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
        },
        transactions: 2,
    },
    Case {
        name: "a journal recreated in its place",
        base: &bases::EXT4,
        damage: |disk| {
            let label = disk.range(disk.file_block(8, 0));
            disk.bytes[label].fill(0);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
        },
        transactions: 0,
    },
    Case {
        name: "a journal recreated elsewhere",
        base: &bases::EXT3,
        damage: |disk| {
            disk.edit_super_block(|sb| sb.s_jnl_backup_type = 0);
            disk.edit_inode("<8>", |inode| inode.i_block = [0; 60]);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
        },
        transactions: 0,
    },
    Case {
        name: "the inode of the journal",
        base: &bases::EXT4,
        damage: |disk| {
            disk.edit_inode("<8>", |inode| inode.i_mode = 0.into());
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
        },
        transactions: 0,
    },
    Case {
        name: "super block and descriptors from their copies",
        base: &bases::EXT4,
        damage: |disk| {
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
            // The sizes of blocks and groups stay, which locate the backups.
            disk.bytes[..1024 + 0x18].fill(0);
            disk.bytes[1024 + 0x24..3072].fill(0);
        },
        transactions: 1,
    },
    Case {
        name: "without a journal",
        base: &UNLOGGED,
        damage: |disk| {
            share(disk, disk.ino("big"), 700);
            disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
            disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
        },
        transactions: 0,
    },
];

/// Tests that a second run completes an interrupted repair, and loses no file that an uninterrupted repair keeps.
fn second_run(state: &State<'_>, kept: &Contents) -> Result<(), String> {
    let bytes = state.with_bytes(<[u8]>::to_vec);
    let fixed = repaired(&bytes).map_err(|error| format!("the second run fails: {error}"))?;
    let left: Vec<String> = findings(&fixed).map_err(|e| e.to_string())?.iter().map(line).collect();
    if !left.is_empty() {
        return Err(format!("the third run finds {left:?}"));
    }
    let second = e2fsck_is_clean(&fixed);
    if !second.is_clean() {
        return Err(second.text);
    }
    let gone = lost(kept, &contents(&fixed));
    if gone.is_empty() { Ok(()) } else { Err(format!("lost {gone:?}")) }
}

/// Returns the number of transactions of a journal that end in a write.
fn commits(event: &Event) -> usize {
    let Event::Write { bytes, .. } = event else { return 0 };
    bytes.chunks(512).filter(|sector| sector.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2])).count()
}

fn cut(case: &Case, options: &Options) -> usize {
    let mut disk = case.base.disk();
    (case.damage)(&mut disk);
    let device = Arc::new(RecordDevice::new(MemDevice::new(disk.bytes.clone())));
    check(device.clone(), RepairMode::All).unwrap();
    device.flush().unwrap();
    let mut whole = vec![0; disk.bytes.len()];
    device.read_at(0, &mut whole).unwrap();
    let events = device.take_events();
    // The readable contents that an uninterrupted repair keeps.
    let mut kept = contents(&disk.bytes);
    let gone = lost(&kept, &contents(&whole));
    kept.retain(|ino, _| !gone.contains(ino));
    assert_eq!(events.iter().map(commits).sum::<usize>(), case.transactions, "{}", case.name);
    let seen = SeenStates::default();
    let summary =
        explore(&disk.bytes, &events, options, &seen, &mut |state: &State<'_>| second_run(state, &kept));
    let reported: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(reported.is_empty(), "{}: {}", case.name, reported.join("\n"));
    assert!(summary.judged > 0, "{}: nothing was written", case.name);
    summary.judged
}

#[test]
fn a_repair_cut_anywhere_is_ended_by_a_second_run() {
    if !oracles() {
        return;
    }
    // The super block is found before any journal, so a torn one cannot be distinguished from a damaged one.
    let options = Options { every_subset: 2, samples: 1, torn: 1, whole: 1024..2048, ..Options::new(1) };
    for case in CASES {
        println!("{}: {} states", case.name, cut(case, &options));
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask check-crash"]
fn campaign_over_many_cuts_of_repairs() {
    if oracles() {
        let options = Options { whole: 1024..2048, ..Options::new(1) };
        for case in CASES {
            println!("{}: {} states", case.name, cut(case, &options));
        }
    }
}
