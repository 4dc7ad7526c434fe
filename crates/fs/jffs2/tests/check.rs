//! The check: sound images have no findings, and each damage has its own.

mod common;

use std::sync::Arc;

use common::{DIR, FILE, Flash};
use obento_block::MemDevice;
use obento_driver::{CheckOptions, Driver as _, Finding, RepairMode};
use obento_env::NO_CLOCK;
use obento_jffs2::{Jffs2Driver, Order};

fn check(bytes: Vec<u8>) -> Vec<Finding> {
    let mut found = Vec::new();
    let options = CheckOptions::new(Arc::new(NO_CLOCK));
    let device = Arc::new(MemDevice::read_only(bytes));
    Jffs2Driver.check().unwrap().check(device, &options, &mut found).expect("it can be checked");
    found
}

fn codes(bytes: Vec<u8>) -> Vec<&'static str> {
    check(bytes).iter().map(|finding| finding.code).collect()
}

#[test]
fn an_image_of_mkfs_has_no_findings() {
    let Some(image) = common::filled() else { return };
    assert_eq!(check(image), []);
}

fn sound() -> Flash {
    let mut flash = Flash::new(Order::Little);
    flash.inode(1, 1, DIR, 0, 0, (0, 0, &[]));
    flash.entry(1, 2, 2, 8, "file");
    flash.data(2, 1, 3, 0, b"abc");
    flash
}

#[test]
fn each_damage_has_its_own_finding() {
    type Damage = fn(&mut Flash);
    let cases: [(Damage, &[&str]); 18] = [
        (|_| {}, &[]),
        (
            |flash| {
                let at = flash.data(2, 2, 3, 0, b"abd");
                flash.bytes[at + 8] ^= 1;
            },
            // The rest of the node belongs to nothing.
            &["header-crc", "garbage"],
        ),
        (
            |flash| {
                let at = flash.data(2, 2, 3, 0, b"abd");
                flash.bytes[at + 68] ^= 1;
            },
            &["node-crc"],
        ),
        (
            |flash| {
                let at = flash.entry(1, 3, 2, 8, "other");
                flash.bytes[at + 20] ^= 1;
            },
            &["node-crc"],
        ),
        (
            |flash| {
                let at = flash.entry(1, 3, 2, 8, "other");
                flash.bytes[at + 41] ^= 1;
            },
            &["node-crc"],
        ),
        (
            |flash| {
                flash.data(2, 2, 3, 9, b"abc");
            },
            &["node-field"],
        ),
        (
            |flash| {
                flash.data(2, 2, 3, 0, b"abd");
                flash.bytes.truncate(flash.bytes.len() - 4);
            },
            &["node-length", "garbage"],
        ),
        (
            |flash| {
                flash.node(0x2abc, &[]);
            },
            &["unknown-node"],
        ),
        (
            |flash| {
                flash.node(0xeabc, &[]);
            },
            &["incompatible-node"],
        ),
        (
            |flash| {
                flash.entry(1, 3, 9, 8, "nothing");
            },
            &["dangling-name"],
        ),
        (
            |flash| {
                flash.entry(2, 3, 2, 8, "in a file");
            },
            &["missing-parent"],
        ),
        (
            |flash| {
                flash.entry(9, 3, 2, 8, "lost");
            },
            &["no-inode", "missing-parent"],
        ),
        (
            |flash| {
                flash.entry(1, 3, 1, 4, "root");
            },
            &["second-name"],
        ),
        (
            |flash| {
                flash.entry(1, 3, 2, 8, "a/b");
            },
            &["bad-name"],
        ),
        (
            |flash| {
                flash.entry(1, 3, 2, 4, "other");
            },
            &["entry-type"],
        ),
        (
            |flash| {
                flash.inode(2, 2, FILE, 9, 0, (6, 9, &[1, 2, 3]));
            },
            &["data"],
        ),
        (
            |flash| {
                flash.data(2, 2, 300, 0, b"abc");
            },
            &["size"],
        ),
        (|flash| flash.xref(2, 5, 2), &["dangling-xattr"]),
    ];
    for (number, (damage, expected)) in cases.into_iter().enumerate() {
        let mut flash = sound();
        damage(&mut flash);
        let mut found = codes(flash.bytes);
        found.dedup();
        assert_eq!(found, expected, "case {number}");
    }
    let mut flash = sound();
    flash.entry(1, 3, 3, 10, "link");
    flash.inode(3, 1, 0o120_777, 0, 0, (0, 0, &[]));
    flash.entry(1, 4, 4, 8, "odd");
    flash.inode(4, 1, 0o150_644, 0, 0, (0, 0, &[]));
    assert_eq!(codes(flash.bytes), ["mode", "value"]);
}

#[test]
fn a_repair_is_refused() {
    let options = CheckOptions { repair_mode: RepairMode::Safe, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let device = Arc::new(MemDevice::read_only(sound().bytes));
    let refused = Jffs2Driver.check().unwrap().check(device, &options, &mut Vec::new()).unwrap_err();
    assert_eq!(refused.to_string(), "repairing this type is not supported");
}
