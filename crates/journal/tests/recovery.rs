//! Journals written byte by byte, each with one peculiarity, and the exact result of a replay.

mod common;

use std::sync::Arc;

use common::{ALL, BLOCK, Maker, VOLUME, full, open, open_on};
use obento_base::{Corrupt, Error, Structure};
use obento_block::{BlockDevice as _, MemDevice};
use obento_journal::raw::MAGIC;
use obento_journal::{Checksums, LogRecordKind, Tid};
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use proptest::prelude::*;

fn magic_block() -> [u8; BLOCK] {
    let mut block = full(0x5a);
    block[..4].copy_from_slice(&MAGIC.to_be_bytes());
    block
}

#[test]
fn a_clean_journal_changes_nothing() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.start = 0;
    assert_eq!(maker.changes(), []);
    let summary = maker.replay().unwrap().summary;
    assert_eq!((summary.transactions, summary.next), (0, Tid(7)));
}

#[test]
fn complete_transactions_are_replayed_in_order_with_every_checksum_version() {
    for checksums in ALL {
        for wide in [false, true] {
            let mut maker = Maker::new(checksums, 32);
            maker.wide = wide;
            maker.copies(&[(3, full(0xaa)), (4, full(0xab))]).commit();
            maker.copies(&[(5, full(0xac))]).copies(&[(3, full(0xad))]).commit();
            let expected = [(3, full(0xad)), (4, full(0xab)), (5, full(0xac))];
            assert_eq!(maker.changes(), expected, "{checksums:?} {wide}");
            let replayed = maker.replay().unwrap();
            assert_eq!(replayed.damage, None);
            let summary = replayed.summary;
            assert_eq!((summary.transactions, summary.first, summary.next), (2, Tid(7), Tid(9)));
            assert_eq!((summary.blocks, summary.revoked, summary.lost), (4, 0, 0));
            assert_eq!(summary.head, maker.at());
        }
    }
}

#[test]
fn a_repair_keeps_the_log_if_any_read_fails() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    let mut failed = 0;
    for nth in 0.. {
        let memory = Arc::new(MemDevice::new(maker.bytes()));
        let fault = Fault { request: Request::Read, nth, lasting: Lasting::Once, failure: FaultKind::Io };
        let device = Arc::new(FaultDevice::new(memory.clone(), Some(fault)));
        let repaired = open_on(device.clone(), 32)
            .and_then(|mut journal| journal.recover_sound_part(&*device, VOLUME.into()));
        failed += u32::from(repaired.is_err());
        let mut again = open_on(memory.clone(), 32).unwrap();
        assert_eq!(again.recover_sound_part(&*memory, VOLUME.into()).unwrap().1, None, "read {nth}");
        let mut block = [0; BLOCK];
        memory.read_at(3 * 1024, &mut block).unwrap();
        assert_eq!(block, full(0xaa), "read {nth}");
        if device.hits() == 0 {
            break;
        }
    }
    assert!(failed > 3, "{failed} reads failed");
}

#[test]
fn an_escaped_block_gets_its_magic_number_back() {
    for checksums in ALL {
        let mut maker = Maker::new(checksums, 16);
        maker.copies(&[(9, magic_block())]).commit();
        assert_eq!(maker.block_mut(2)[..4], [0; 4]);
        assert_eq!(maker.changes(), [(9, magic_block())]);
    }
}

#[test]
fn a_log_wraps_from_its_end_to_its_first_block_even_inside_a_transaction() {
    for checksums in ALL {
        for start in 1..16 {
            let mut maker = Maker::new(checksums, 16).starting(start, u32::MAX);
            maker.copies(&[(1, full(0xa1)), (2, full(0xa2)), (3, full(0xa3))]).commit();
            maker.revoke(&[2]).copies(&[(4, full(0xa4))]).commit();
            assert_eq!(maker.changes(), [(1, full(0xa1)), (3, full(0xa3)), (4, full(0xa4))]);
            let summary = maker.replay().unwrap().summary;
            assert_eq!((summary.transactions, summary.next), (2, Tid(1)));
        }
    }
}

#[test]
fn a_log_that_is_full_ends_after_one_turn() {
    let mut maker = Maker::new(Checksums::None, 7).starting(4, 7);
    maker.copies(&[(1, full(0xa1))]).commit();
    maker.copies(&[(2, full(0xa2))]).commit();
    assert_eq!(maker.at(), 4);
    assert_eq!(maker.replay().unwrap().summary.transactions, 2);
}

#[test]
fn a_log_of_nothing_but_descriptors_ends_too() {
    let mut maker = Maker::new(Checksums::None, 8);
    for _ in 0..7 {
        maker.copies(&[]);
    }
    assert_eq!(maker.replay().unwrap().summary.transactions, 0);
}

#[test]
fn fast_commit_blocks_are_not_part_of_the_log() {
    let mut maker = Maker::new(Checksums::V3, 16);
    maker.fast_commits = 8;
    let mut maker = maker.starting(5, 7);
    maker.copies(&[(1, full(0xa1)), (2, full(0xa2)), (3, full(0xa3))]).commit();
    assert_eq!(maker.at(), 3);
    assert_eq!(maker.changes().len(), 3);
    let journal = maker.open().unwrap();
    assert_eq!((journal.super_block().log(), journal.super_block().fast_commits()), (1..8, 9..16));
}

#[test]
fn a_revoke_drops_older_copies_and_those_of_its_own_transaction() {
    for wide in [false, true] {
        let mut maker = Maker::new(Checksums::V2, 32);
        maker.wide = wide;
        maker.copies(&[(3, full(0xaa)), (4, full(0xab))]).commit();
        maker.copies(&[(4, full(0xac))]).revoke(&[3, 4]).commit();
        assert_eq!(maker.changes(), []);
        let summary = maker.replay().unwrap().summary;
        assert_eq!((summary.blocks, summary.revoked), (0, 3));
    }
}

#[test]
fn a_block_written_again_after_its_revoke_is_replayed() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.revoke(&[3]).commit();
    maker.copies(&[(3, full(0xab))]).commit();
    assert_eq!(maker.changes(), [(3, full(0xab))]);
}

#[test]
fn a_revoke_in_a_torn_transaction_counts_for_nothing() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.revoke(&[3]);
    assert_eq!(maker.changes(), [(3, full(0xaa))]);
}

#[test]
fn a_torn_transaction_ends_the_log_without_damage() {
    for checksums in ALL {
        let mut maker = Maker::new(checksums, 32);
        maker.copies(&[(3, full(0xaa))]).commit();
        maker.copies(&[(4, full(0xab))]);
        // Torn in the middle: the descriptor is present, its block is not.
        let last = maker.at() - 1;
        *maker.block_mut(last) = full(0);
        let replayed = maker.replay().unwrap();
        assert_eq!((replayed.summary.transactions, replayed.damage), (1, None), "{checksums:?}");
        assert_eq!(maker.changes(), [(3, full(0xaa))]);
    }
}

#[test]
fn blocks_of_an_earlier_turn_end_the_log() {
    let mut maker = Maker::new(Checksums::None, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.tid = 3;
    maker.copies(&[(4, full(0xab))]).commit();
    assert_eq!(maker.changes(), [(3, full(0xaa))]);
}

/// Damages one byte of block `at` of the first transaction, and returns the result of the replay.
fn damaged(checksums: Checksums, at: u32, byte: usize) -> (Maker, obento_base::Result<Option<Error>>) {
    let mut maker = Maker::new(checksums, 32);
    maker.copies(&[(3, full(0xaa)), (4, full(0xab))]).revoke(&[9]).commit();
    maker.copies(&[(5, full(0xac))]).commit();
    maker.block_mut(at)[byte] ^= 1;
    let outcome = maker.replay().map(|replayed| replayed.damage);
    (maker, outcome)
}

fn is_checksum_of(error: Option<Error>, at: u32) -> bool {
    let place = u64::from(VOLUME + at);
    matches!(error, Some(Error::Corrupt(Corrupt::Checksum { structure: Structure::Journal, block, .. })) if block == place)
}

#[test]
fn a_bad_data_block_costs_that_block_alone() {
    for checksums in [Checksums::V2, Checksums::V3] {
        let (maker, outcome) = damaged(checksums, 3, 700);
        assert!(is_checksum_of(outcome.unwrap(), 3));
        assert_eq!(maker.changes(), [(3, full(0xaa)), (5, full(0xac))]);
        assert_eq!(maker.replay().unwrap().summary.lost, 1);
    }
}

#[test]
fn a_bad_tag_checksum_costs_that_block_alone() {
    // The second tag of a v2 descriptor follows the header, the first tag and the UUID; its checksum is at 4.
    // The checksum of the block must be correct again.
    let mut maker = Maker::new(Checksums::V2, 32);
    maker.copies(&[(3, full(0xaa)), (4, full(0xab))]).commit();
    let block = maker.block_mut(1);
    block[12 + 10 + 16 + 4] ^= 1;
    let sum = obento_journal::checksum::control_block(obento_journal::checksum::seed(&common::UUID), block);
    block[BLOCK - 4..].copy_from_slice(&sum.to_be_bytes());
    assert!(is_checksum_of(maker.replay().unwrap().damage, 3));
    assert_eq!(maker.changes(), [(3, full(0xaa))]);
}

#[test]
fn a_bad_descriptor_or_revoke_block_in_a_committed_transaction_fails_the_replay() {
    for checksums in [Checksums::V2, Checksums::V3] {
        for at in [1, 4] {
            let (_, outcome) = damaged(checksums, at, 900);
            assert!(is_checksum_of(outcome.err(), at), "{checksums:?} {at}");
        }
    }
}

#[test]
fn a_bad_block_before_an_older_commit_is_left_from_an_earlier_use() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.time = 5;
    let stale = maker.at();
    maker.copies(&[(4, full(0xab))]).commit();
    maker.block_mut(stale)[900] ^= 1;
    let replayed = maker.replay().unwrap();
    assert_eq!((replayed.summary.transactions, replayed.damage), (1, None));
    assert_eq!(maker.changes(), [(3, full(0xaa))]);
}

#[test]
fn a_bad_commit_block_ends_the_log_with_damage() {
    for checksums in [Checksums::V2, Checksums::V3] {
        let (maker, outcome) = damaged(checksums, 5, 0x14);
        assert!(is_checksum_of(outcome.unwrap(), 5));
        assert_eq!(maker.changes(), []);
    }
    // v1: the commit block's checksum covers the data.
    let (maker, outcome) = damaged(Checksums::V1, 3, 700);
    assert!(is_checksum_of(outcome.unwrap(), 5));
    assert_eq!(maker.changes(), []);
}

#[test]
fn a_commit_block_that_was_torn_behind_its_fields_counts() {
    for checksums in [Checksums::V2, Checksums::V3] {
        let mut maker = Maker::new(checksums, 32);
        maker.copies(&[(3, full(0xaa))]).commit();
        maker.block_mut(3)[512..].fill(0x77);
        assert_eq!(maker.replay().unwrap().damage, None);
        assert_eq!(maker.changes(), [(3, full(0xaa))]);
    }
}

#[test]
fn an_asynchronous_commit_without_a_successor_was_interrupted_and_is_no_damage() {
    for checksums in [Checksums::V1, Checksums::V3] {
        let mut maker = Maker::new(checksums, 32);
        maker.asynchronous = true;
        maker.copies(&[(3, full(0xaa))]).commit();
        maker.copies(&[(4, full(0xab))]).commit();
        let commit = maker.at() - 1;
        maker.block_mut(commit)[16] ^= 1;
        let replayed = maker.replay().unwrap();
        assert_eq!((replayed.summary.transactions, replayed.damage), (1, None), "{checksums:?}");
    }
}

#[test]
fn an_asynchronous_commit_with_a_successor_was_damaged() {
    let mut maker = Maker::new(Checksums::V1, 32);
    maker.asynchronous = true;
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.copies(&[(4, full(0xab))]).commit();
    maker.block_mut(3)[16] ^= 1;
    let replayed = maker.replay().unwrap();
    assert!(is_checksum_of(replayed.damage, 3));
    assert_eq!(replayed.summary.transactions, 0);
}

#[test]
fn a_v1_commit_block_without_checksum_is_accepted() {
    let mut maker = Maker::new(Checksums::V1, 32);
    maker.copies(&[(3, full(0xaa))]).commit();
    maker.block_mut(3)[12..20].fill(0);
    assert_eq!(maker.changes(), [(3, full(0xaa))]);
}

#[test]
fn a_tag_outside_the_volume_is_corrupt_and_the_rest_is_replayed() {
    let mut maker = Maker::new(Checksums::None, 32);
    maker.wide = true;
    maker.copies(&[(1 << 40, full(0xaa)), (4, full(0xab))]).commit();
    let place = Corrupt::BlockRange { structure: Structure::Journal, at: 2, start: 1 << 40, len: 1 };
    assert_eq!(maker.replay().unwrap().damage, Some(place.into()));
    assert_eq!(maker.changes(), [(4, full(0xab))]);
}

#[test]
fn a_revoke_block_that_claims_more_than_it_has_fails_the_replay() {
    let mut maker = Maker::new(Checksums::None, 32);
    maker.revoke(&[3]).commit();
    maker.block_mut(1)[12..16].copy_from_slice(&1025_u32.to_be_bytes());
    let place = |found| Corrupt::Field {
        structure: Structure::Journal,
        field: "r_count",
        block: u64::from(VOLUME) + 1,
        offset: 12,
        found,
    };
    assert_eq!(maker.replay().map(|_| ()), Err(place(1025).into()));
}

#[test]
fn records_show_the_log_with_a_torn_transaction_and_what_is_damaged() {
    let mut maker = Maker::new(Checksums::V3, 32);
    maker.copies(&[(3, full(0xaa))]).revoke(&[8, 9]).commit();
    maker.copies(&[(4, full(0xab))]);
    maker.block_mut(4)[0x14] ^= 1;
    let journal = maker.open().unwrap();
    let records: Vec<_> = journal.records().unwrap().map(Result::unwrap).collect();
    let brief: Vec<_> = records.iter().map(|r| (r.at, r.block, r.tid.0, r.damage.is_some())).collect();
    assert_eq!(brief, [(1, 65, 7, false), (3, 67, 7, false), (4, 68, 7, true), (5, 69, 8, false)]);
    assert_eq!(records[1].kind, LogRecordKind::Revoke(vec![8, 9]));
    assert_eq!(records[2].kind, LogRecordKind::Commit { seconds: 1000, nanoseconds: 0 });
    let LogRecordKind::Descriptor(tags) = &records[3].kind else { panic!("{:?}", records[3]) };
    assert_eq!(tags.iter().map(|(tag, at)| (tag.offset, tag.block, *at)).collect::<Vec<_>>(), [(12, 4, 6)]);
}

#[test]
fn a_hole_in_the_journal_is_corrupt() {
    use obento_block::MemDevice;
    use obento_journal::{Journal, Run, Runs};
    let mut maker = Maker::new(Checksums::None, 8);
    maker.copies(&[(3, full(0xaa))]).commit();
    let mut runs = Runs::new();
    runs.push(Run { at: 0, block: VOLUME.into(), len: 1 }).unwrap();
    runs.push(Run { at: 7, block: 70, len: 1 }).unwrap();
    let device = std::sync::Arc::new(MemDevice::read_only(maker.bytes()));
    let journal = Journal::open(device, 1024, runs).unwrap();
    assert!(matches!(journal.replay_index(64), Err(Error::Corrupt(Corrupt::BlockRange { at: 1, .. }))));
}

fn exercise(bytes: Vec<u8>, len: u32) {
    if let Ok(journal) = open(bytes, len) {
        let _ = journal.replay_index(VOLUME.into());
        let shown = journal.records().unwrap().take_while(Result::is_ok).count();
        assert!(shown <= 64, "{shown} records in {len} blocks");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_journal_of_any_bytes_ends_in_an_answer(
        sum in 0_usize..4, start in 1_u32..30, seed in any::<u64>(),
        hits in prop::collection::vec((0_u32..24, 0_usize..64, any::<u8>()), 0..20),
    ) {
        let mut maker = Maker::new(ALL[sum], 32).starting(start, 7);
        maker.wide = seed & 1 != 0;
        maker.asynchronous = seed & 2 != 0;
        maker.copies(&[(3, full(0xaa)), (4, magic_block())]).revoke(&[3]).commit();
        maker.copies(&[(5, full(0xac))]).commit();
        for (at, byte, value) in hits {
            let at = (start + at - 1) % 31 + 1;
            maker.block_mut(at)[byte] = value;
        }
        exercise(maker.bytes(), 32);
    }

    #[test]
    fn a_super_block_of_any_bytes_ends_in_an_answer(
        bytes in prop::collection::vec((0_usize..96, any::<u8>()), 1..12)
    ) {
        let mut maker = Maker::new(Checksums::None, 32);
        maker.copies(&[(3, full(0xaa))]).commit();
        let mut device = maker.bytes();
        for (offset, value) in bytes {
            device[usize::try_from(VOLUME).unwrap() * BLOCK + offset] = value;
        }
        exercise(device, 32);
    }
}
