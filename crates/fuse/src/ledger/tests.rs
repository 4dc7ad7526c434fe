use std::sync::Arc;

use obento_block::{Cache, MemDevice};

use super::*;

fn again(ledger: &Ledger) -> Ledger {
    Ledger::open(ledger.file.try_clone().unwrap()).unwrap()
}

fn block(number: u64, byte: u8) -> Block {
    Cache::new(Arc::new(MemDevice::new(vec![byte; 64 << 10])), 1024, 0).get(number).unwrap()
}

fn ids(ledger: &Ledger) -> Vec<(u64, u64)> {
    let mut ids: Vec<_> = ledger.nodes().iter().map(|node| (node.id, node.lookups)).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_reply_is_published_with_the_blocks_and_the_node_of_its_request_or_not_at_all() {
    let ledger = Ledger::new().unwrap();
    let turn = ledger.turn(Effect::Once);
    ledger.count(12, 1, true);
    ledger.note(8, &Ok(()), b"entry");
    let before = again(&ledger);
    assert_eq!((before.reply_to(8 | SENT_AGAIN), ids(&before)), (None, vec![]));
    ledger.append(3, &[block(7, 1), block(9, 2)]).unwrap();
    drop(turn);
    let after = again(&ledger);
    assert_eq!(after.reply_to(8 | SENT_AGAIN), Some(Ok(b"entry".to_vec())));
    assert_eq!(after.reply_to(8), None);
    assert_eq!(after.reply_to(10 | SENT_AGAIN), None);
    assert_eq!(ids(&after), [(12, 1)]);
    assert_eq!(after.changes().unwrap(), [(7, vec![1; 1024]), (9, vec![2; 1024])]);
}

#[test]
fn another_thread_publishes_blocks_but_no_reply() {
    let ledger = Ledger::new().unwrap();
    let _turn = ledger.turn(Effect::Repeatable);
    ledger.note(8, &Err(Errno(libc::EEXIST)), b"");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert!(!ledger.is_held_here());
            ledger.append(3, &[block(7, 1)]).unwrap();
        });
    });
    assert_eq!(again(&ledger).reply_to(8 | SENT_AGAIN), None);
    ledger.append(4, &[]).unwrap();
    assert_eq!(again(&ledger).reply_to(8 | SENT_AGAIN), Some(Err(Errno(libc::EEXIST))));
}

#[test]
fn blocks_of_durable_transactions_are_dropped_and_the_newest_contents_remain() {
    let ledger = Ledger::new().unwrap();
    for (transaction, byte) in [(u32::MAX, 1), (0, 2), (0, 3)] {
        ledger.append(transaction, &[block(7, byte), block(8 + u64::from(byte), byte)]).unwrap();
    }
    ledger.durable(u32::MAX);
    let numbers = |ledger: &Ledger| -> Vec<_> {
        ledger.changes().unwrap().iter().map(|(number, bytes)| (*number, bytes[0])).collect()
    };
    assert_eq!(numbers(&again(&ledger)), [(7, 3), (10, 2), (11, 3)]);
    ledger.durable(0);
    assert_eq!(numbers(&again(&ledger)), []);
    ledger.append(1, &[block(5, 9)]).unwrap();
    assert_eq!(numbers(&again(&ledger)), [(5, 9)]);
    ledger.clear();
    assert_eq!(numbers(&again(&ledger)), []);
}

#[test]
fn nodes_survive_until_they_have_no_lookups() {
    let ledger = Ledger::new().unwrap();
    let turn = ledger.turn(Effect::Lookups);
    for (id, lookups) in [(5, 1), (6, 1), (5, 2), (6, 0), (7, 4)] {
        ledger.count(id, lookups, false);
    }
    drop(turn);
    let next = again(&ledger);
    assert_eq!(ids(&next), [(5, 2), (7, 4)]);
    next.count(9, 1, true);
    next.count(5, 0, false);
    assert_eq!(ids(&again(&next)), [(7, 4), (9, 1)]);
}

#[test]
fn a_ledger_that_is_incomplete_or_damaged_is_refused() {
    let ledger = Ledger::new().unwrap();
    ledger.give_up(&"memory is exhausted");
    assert!(Ledger::open(ledger.file.try_clone().unwrap()).is_err());
    let ledger = Ledger::new().unwrap();
    ledger.durable(1);
    // One copy is enough, none is not.
    write_all(&ledger.file, 2048 + 9, &[0xff]).unwrap();
    assert!(Ledger::open(ledger.file.try_clone().unwrap()).is_ok());
    write_all(&ledger.file, 9, &[0xff]).unwrap();
    assert!(Ledger::open(ledger.file.try_clone().unwrap()).is_err());
}
