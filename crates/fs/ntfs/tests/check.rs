//! The check: sound volumes have no findings, and each damage has its own.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use common::SHAPES;
use common::victim::{Victim, check};
use obento_block::MemDevice;
use obento_ntfs::NtfsDriver;
use obento_testkit::opening::assert_read_once;
use obento_testkit::oracle::call;

fn check_bytes(bytes: Vec<u8>) -> Vec<&'static str> {
    let found = check(Arc::new(MemDevice::read_only(bytes)));
    let texts: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), found.len(), "a finding is reported again: {found:#?}");
    found.iter().map(|finding| finding.code).collect()
}

#[test]
fn volumes_that_ntfs_3g_finds_sound_have_no_findings() {
    if !common::oracles() {
        return;
    }
    for shape in SHAPES {
        let folder = tempfile::tempdir().unwrap();
        let image = shape.filled(folder.path());
        call("ntfsfix", ["-n".as_ref(), image.as_os_str()]).unwrap();
        call("ntfsresize", ["-i".as_ref(), "-f".as_ref(), image.as_os_str()]).unwrap();
        let found = check(Arc::new(obento_host::FileDevice::open(&image).unwrap()));
        let texts: Vec<String> = found.iter().take(20).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}: {} findings: {texts:#?}", shape.name, found.len());
    }
}

#[test]
fn each_damage_has_its_own_finding() {
    type Damage = fn(&mut Victim);
    let cases: [(Damage, &[&str]); 10] = [
        (
            |victim| {
                let at = victim.record(1);
                victim.0[at + 510] ^= 1;
            },
            &["record"],
        ),
        (|victim| victim.0[100] ^= 1, &["backup-boot-sector"]),
        (
            |victim| {
                let at = victim.find(3, &[3, 1, 0, 0]);
                victim.0[at + 2] = 1;
            },
            // Only the table was changed, and not its copy.
            &["in-use", "mft-mirror"],
        ),
        (
            |victim| {
                let at = victim.record(victim.record_of("dangling"));
                victim.0[at + 510] ^= 1;
            },
            &["record", "index-entry"],
        ),
        (
            |victim| {
                let at = victim.record(victim.record_of("dangling"));
                victim.0[at + 18] = 7;
            },
            &["link-count"],
        ),
        (
            |victim| {
                let at = victim.record(victim.record_of("dangling"));
                victim.0[at + 16] = victim.0[at + 16].wrapping_add(1);
            },
            &["index-entry", "missing-entry"],
        ),
        (
            |victim| {
                // A file that has clusters is in use no longer.
                let at = victim.record(victim.record_of("100001"));
                victim.0[at + 22] = 0;
            },
            &["record-bitmap", "index-entry", "lost-clusters"],
        ),
        (
            |victim| {
                // The first run of a file starts where that of another does.
                let (one, other) = (victim.record_of("100001"), victim.record_of("65536"));
                let run = |victim: &Victim, number: usize| {
                    let start = victim.find(number, &[0x80, 0, 0, 0]);
                    start + usize::from(victim.0[start + 32])
                };
                let (to, from) = (run(victim, one), run(victim, other));
                assert_eq!(victim.0[to], victim.0[from], "the runs are encoded alike");
                let place = victim.0[from + 2..from + 4].to_vec();
                victim.0[to + 2..to + 4].copy_from_slice(&place);
            },
            &["cross-link", "lost-clusters"],
        ),
        (
            |victim| {
                let at = victim.find(victim.record_of("100001"), &[0x80, 0, 0, 0]);
                victim.0[at + 40] = 1;
            },
            &["size"],
        ),
        (
            |victim| {
                // The bitmap of clusters, which is before the first file, marks none in use.
                let start = victim.find(6, &[0x80, 0, 0, 0]);
                let run = start + usize::from(victim.0[start + 32]);
                let lcn = usize::from(victim.0[run + 2]) | usize::from(victim.0[run + 3]) << 8;
                let lcn = if victim.0[run] == 0x11 { lcn & 0xff } else { lcn };
                victim.0[lcn * 4096] = 0;
            },
            &["unmarked-clusters"],
        ),
    ];
    for (number, (damage, expected)) in cases.into_iter().enumerate() {
        let Some(mut victim) = Victim::new() else { return };
        damage(&mut victim);
        let mut found = check_bytes(victim.0);
        found.dedup();
        assert_eq!(found, expected, "case {number}");
    }
}

#[test]
fn the_rest_of_a_disk_after_a_volume_is_no_damage() {
    for rest in [33 * 512, 1 << 20] {
        let Some(mut victim) = Victim::new() else { return };
        victim.0.extend(std::iter::repeat_n(0, rest));
        assert_eq!(check_bytes(victim.0), [""; 0], "{rest}");
    }
    let Some(mut victim) = Victim::new() else { return };
    let copy = victim.0.len() - 512;
    victim.0[copy] ^= 1;
    victim.0.extend(vec![0; 1 << 20]);
    assert_eq!(check_bytes(victim.0), ["backup-boot-sector"]);
}

#[test]
fn a_copy_of_the_boot_sector_at_the_end_of_the_device_is_sound() {
    let Some(mut victim) = Victim::new() else { return };
    let copy = victim.0.split_off(victim.0.len() - 512);
    victim.0.extend([0; 512]);
    victim.0.extend(copy);
    assert_eq!(check_bytes(victim.0), [""; 0]);
}

#[test]
fn entries_out_of_order_are_found() {
    let Some(mut victim) = Victim::new() else { return };
    // In the index blocks of `many`, the names of two entries are exchanged by changing the first unit of one.
    let name: Vec<u8> = "entry number 200".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let places: Vec<usize> =
        (0..victim.0.len() - name.len()).step_by(2).filter(|&at| victim.0[at..].starts_with(&name)).collect();
    let in_index = places.into_iter().find(|&at| {
        let block = at / 4096 * 4096;
        let end = u32::from_le_bytes(victim.0[block + 28..block + 32].try_into().unwrap()) as usize;
        // What is behind the last entry is left from a split.
        victim.0[block..].starts_with(b"INDX") && at - block < 24 + end
    });
    victim.0[in_index.expect("it is in a block")] = b'z';
    let mut found = check_bytes(victim.0);
    found.dedup();
    assert_eq!(found, ["index-entry", "index-order", "missing-entry"]);
}

#[test]
fn a_probe_a_check_and_an_open_read_the_boot_sector_once() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = fs::read(common::shape_of("4k").make(folder.path())).unwrap();
    assert_read_once(&NtfsDriver::default(), MemDevice::read_only(image), 0, 512);
}
