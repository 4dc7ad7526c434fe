//! Whole directories, each with one part damaged.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use obento_base::{Corrupt, Error, Ino, Name, Result, Structure};
use obento_driver::Cookie;
use proptest::prelude::*;

use super::testing::*;
use super::{Directory, EntriesBody, Fold, Inline, Order};

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

fn names(seen: Seen) -> Vec<Result<String>> {
    seen.into_iter().map(|entry| entry.map(|(name, _)| name)).collect()
}

fn all(directory: &Directory<'_>) -> Vec<Result<String>> {
    names(list(directory, Cookie::START))
}

fn ok(name: &str) -> Result<String> {
    Ok(name.into())
}

fn field(structure: Structure, field: &'static str, block: u64, offset: u32, found: u64) -> Error {
    Corrupt::Field { structure, field, block, offset, found }.into()
}

const INDEX: Structure = Structure::DirectoryIndex(DIR);

fn two_blocks() -> Vec<(u32, Vec<u8>)> {
    let first = first_block(&[(21, b"alpha"), (0, b"gone"), (22, b"beta")]);
    vec![(0, first), (1, block(1024, &[(23, b"gamma"), (24, b"delta")]))]
}

#[test]
fn a_directory_without_an_index_is_listed_from_front_to_back_without_dots_and_deleted_entries() {
    let made = TestBlocks::new(&two_blocks());
    let expected = ["alpha", "beta", "gamma", "delta"].map(ok);
    assert_eq!(all(&made.directory()), expected);
    assert_eq!(names(list_in_steps(&made.directory())), expected);
    assert_eq!(made.directory().lookup(name("delta")), Ok(Ino(24)));
    assert_eq!(made.directory().lookup(name("gone")), Err(Error::NotFound));
    assert_eq!(made.directory().parent(), Ok(Ino(2)));
}

#[test]
fn a_broken_record_costs_the_rest_of_its_block() {
    let mut blocks = two_blocks();
    blocks[0].1[24 + 4] = 0;
    let made = TestBlocks::new(&blocks);
    let error = Corrupt::RecordLength { dir: DIR, block: FIRST, offset: 24, rec_len: 0 }.into();
    assert_eq!(all(&made.directory()), [Err(error), ok("gamma"), ok("delta")]);
    assert_eq!(made.directory().lookup(name("gamma")), Ok(Ino(23)));
    assert_eq!(made.directory().lookup(name("alpha")), Err(error));
}

#[test]
fn entries_that_would_climb_or_lead_nowhere_cost_themselves_alone() {
    let entries = [(21, &b".."[..]), (22, b"."), (23, b"a/b"), (5000, b"far"), (24, b"good")];
    let made = TestBlocks::new(&[(0, first_block(&entries))]);
    let bad = |offset| Err(Corrupt::EntryName { dir: DIR, block: FIRST, offset }.into());
    let structure = Structure::Directory(DIR);
    let far = Corrupt::InodeNumber { structure, block: FIRST, offset: 60, found: 5000 };
    assert_eq!(all(&made.directory()), [bad(24), bad(36), bad(48), Err(far.into()), ok("good")]);
    assert_eq!(made.directory().lookup(name("far")), Err(far.into()));
}

#[test]
fn a_hole_is_reported_once_whatever_its_length() {
    let mut blocks = two_blocks();
    blocks[1].0 = 9;
    let made = TestBlocks::new(&blocks);
    let hole = Err(Corrupt::DirectoryHole { dir: DIR, at: 1 }.into());
    assert_eq!(all(&made.directory()), [ok("alpha"), ok("beta"), hole, ok("gamma"), ok("delta")]);
}

#[test]
fn a_block_with_a_wrong_checksum_or_without_one_is_not_believed() {
    const SEED: u32 = 77;
    let sealed = |entries: &[(u32, &[u8])]| {
        let mut bytes = block(1012, entries);
        bytes.resize(1024, 0);
        seal(&mut bytes, SEED);
        bytes
    };
    let dots = [(12, &b"."[..]), (2, b"..")];
    let blocks = [sealed(&dots), sealed(&[(21, b"bad")]), sealed(&[(22, b"bare")]), sealed(&[(23, b"good")])];
    let mut blocks: Vec<_> = (0..).zip(blocks).collect();
    blocks[1].1[8] = b'B';
    blocks[2].1[1019] = 0;
    let mut made = TestBlocks::new(&blocks);
    made.shape.checksum_seed = Some(SEED);
    let seen = all(&made.directory());
    assert!(matches!(seen[0], Err(Error::Corrupt(Corrupt::Checksum { block, .. })) if block == FIRST + 1));
    let kind = "the type of the checksum entry (det_reserved_ft)";
    let bare = field(Structure::Directory(DIR), kind, FIRST + 2, 1019, 0);
    assert_eq!(seen[1..], [Err(bare), ok("good")]);
    assert_eq!(made.directory().parent(), Ok(Ino(2)));
}

#[test]
fn parent_wants_the_dots_where_they_belong() {
    let mut blocks = two_blocks();
    blocks[0].1[12 + 8] = b'x';
    let error = Corrupt::EntryName { dir: DIR, block: FIRST, offset: 12 }.into();
    assert_eq!(TestBlocks::new(&blocks).directory().parent(), Err(error));
    assert!(matches!(
        TestBlocks::new(&[]).directory().parent(),
        Err(Error::Corrupt(Corrupt::DirectoryHole { .. }))
    ));
}

#[test]
fn a_small_directory_is_listed_in_hash_order_and_continues_from_any_cookie() {
    let texts: Vec<String> = (0..40).map(|n| format!("file{n}")).collect();
    let entries: Vec<_> = (100..).zip(&texts).map(|(ino, name)| (ino, name.as_bytes())).collect();
    let mut made = TestBlocks::new(&[(0, first_block(&entries))]);
    made.shape.order = Order::Hash(hasher());
    let mut expected = texts.clone();
    expected.sort_by_key(|name| hasher().hash(name.as_bytes()));
    assert_ne!(expected, texts);
    let expected: Vec<_> = expected.iter().map(|name| ok(name)).collect();
    assert_eq!(all(&made.directory()), expected);
    assert_eq!(names(list_in_steps(&made.directory())), expected);
}

/// Returns 60 names in three leaves below a root.
fn index() -> (Vec<String>, Vec<(u32, Vec<u8>)>) {
    let mut texts: Vec<String> = (0..60).map(|n| format!("file{n}")).collect();
    texts.sort_by_key(|name| hasher().hash(name.as_bytes()));
    let mut blocks = vec![(0, Vec::new())];
    let mut starts = Vec::new();
    for (at, texts) in (1..).zip(texts.chunks(20)) {
        let entries: Vec<_> = texts.iter().rev().map(|name| (30 + at, name.as_bytes())).collect();
        blocks.push((at, block(1024, &entries)));
        starts.push((hasher().hash(texts[0].as_bytes()).major, at));
    }
    blocks[0].1 = root(0, &starts);
    (texts, blocks)
}

#[test]
fn an_indexed_directory_is_listed_in_hash_order_across_leaves_and_found_by_hash() {
    let (texts, blocks) = index();
    let made = TestBlocks::indexed(&blocks);
    let expected: Vec<_> = texts.iter().map(|name| ok(name)).collect();
    assert_eq!(all(&made.directory()), expected);
    assert_eq!(names(list_in_steps(&made.directory())), expected);
    for (position, text) in texts.iter().enumerate() {
        let leaf = u64::try_from(position / 20 + 1).unwrap();
        assert_eq!(made.directory().lookup(name(text)), Ok(Ino(30 + leaf)));
    }
    assert_eq!(made.directory().lookup(name("absent")), Err(Error::NotFound));
    assert_eq!(made.directory().parent(), Ok(Ino(2)));
}

#[test]
fn a_damaged_index_is_reported_once_and_all_names_are_still_listed_and_found() {
    let bad = |name, offset, found| field(INDEX, name, FIRST, offset, found);
    let depth = Corrupt::Depth { structure: INDEX, block: FIRST, found: 2, expected: 1 };
    let length = Corrupt::RecordLength { dir: DIR, block: FIRST, offset: 12, rec_len: 1008 };
    let unknown = obento_base::Feature::Named("directory hash SIPHASH");
    let leaf = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes[40..44].try_into().unwrap()));
    let (texts, blocks) = index();
    let second = leaf(&blocks[0].1);
    for (at, value, expected) in [
        (24, 1, bad("reserved_zero", 24, 1)),
        (29, 9, bad("info_length", 29, 9)),
        (31, 1, bad("unused_flags", 31, 1)),
        (28, 6, Error::Unsupported(unknown)),
        (30, 2, depth.into()),
        (16, 240, length.into()),
        (32, 0, bad("limit", 32, 0)),
        (34, 0, bad("count", 34, 0)),
        (34, 125, bad("count", 34, 125)),
        (44, 9, bad("dx_entry", 40, second)),
        (44, 0, bad("dx_entry", 40, second)),
    ] {
        let mut blocks = blocks.clone();
        blocks[0].1[at] = value;
        let made = TestBlocks::indexed(&blocks);
        let seen = all(&made.directory());
        assert_eq!(seen[0], Err(expected), "byte {at}");
        assert_eq!(names(list_in_steps(&made.directory())), seen);
        let mut found: Vec<String> = seen.into_iter().filter_map(Result::ok).collect();
        found.sort_by_key(|name| hasher().hash(name.as_bytes()));
        assert_eq!(found, texts);
        assert!(made.directory().lookup(name("file7")).is_ok());
    }
}

#[test]
fn names_with_one_hash_are_found_and_listed_on_both_sides_of_a_leaf_border() {
    // Both have the major hash 0x1ffbe98c; the name with the larger minor hash is first in the block.
    let (first, second) = ("n5586", "n24325");
    let hash = hasher().hash(first.as_bytes()).major;
    assert_eq!(hash, hasher().hash(second.as_bytes()).major);
    let made = TestBlocks::indexed(&[
        (0, root(0, &[(0, 1), (hash | 1, 2)])),
        (1, block(1024, &[(31, first.as_bytes())])),
        (2, block(1024, &[(32, second.as_bytes())])),
    ]);
    assert_eq!(all(&made.directory()), [ok(first), ok(second)]);
    assert_eq!(names(list_in_steps(&made.directory())), [ok(first), ok(second)]);
    assert_eq!(made.directory().lookup(name(first)), Ok(Ino(31)));
    assert_eq!(made.directory().lookup(name(second)), Ok(Ino(32)));
}

#[test]
fn an_entry_in_the_wrong_leaf_is_listed_and_reported() {
    let (mut texts, mut blocks) = index();
    let (low, high) = (texts[0].clone(), texts.pop().unwrap());
    blocks[1].1 = block(1024, &[(31, high.as_bytes()), (31, low.as_bytes())]);
    blocks[3].1 = block(1024, &[(33, low.as_bytes()), (33, texts[50].as_bytes())]);
    let made = TestBlocks::indexed(&blocks);
    let seen = all(&made.directory());
    let reported = |name: &str, at: u64, offset| {
        let found = hasher().hash(name.as_bytes()).major.into();
        Err(field(INDEX, "hash", FIRST + at, offset, found))
    };
    assert_eq!(seen[..3], [ok(&low), ok(&high), reported(&high, 1, 0)]);
    assert_eq!(seen[23..], [ok(&low), ok(&texts[50]), reported(&low, 3, 0)]);
    assert_eq!(names(list_in_steps(&made.directory())), seen);
}

#[test]
fn a_damaged_leaf_costs_its_entries_alone() {
    let (texts, mut blocks) = index();
    blocks[2].0 = 7;
    let made = TestBlocks::indexed(&blocks);
    let mut expected: Vec<_> = texts.iter().map(|name| ok(name)).collect();
    let hole = Err(Corrupt::DirectoryHole { dir: DIR, at: 2 }.into());
    expected.splice(20..40, [hole]);
    assert_eq!(all(&made.directory()), expected);
    assert_eq!(made.directory().lookup(name(&texts[45])), Ok(Ino(33)));
    // The block that is missing in the index is found nevertheless.
    assert_eq!(made.directory().lookup(name(&texts[25])), Ok(Ino(32)));
}

#[test]
fn a_circle_among_the_nodes_ends() {
    let all_one = vec![(0, 1); 126];
    let mut made = TestBlocks::indexed(&[(0, root(1, &all_one[..120])), (1, node(&all_one))]);
    assert_eq!(all(&made.directory()), [Err(field(INDEX, "dx_entry", FIRST + 1, 8, (126 << 16) | 127))]);
    made.shape.blocks = 5000;
    assert!(all(&made.directory()).len() < 5000);
    assert_eq!(made.directory().lookup(name("x")), Err(Error::NotFound));
}

#[test]
fn three_levels_are_read_with_large_dir_alone() {
    let (texts, mut blocks) = index();
    let leaves: Vec<_> = (1..4)
        .map(|at| (hasher().hash(texts[20 * (at - 1)].as_bytes()).major, u32::try_from(at).unwrap()))
        .collect();
    blocks[0].1 = root(2, &[(0, 4)]);
    blocks.push((4, node(&[(0, 5), (leaves[2].0, 6)])));
    blocks.push((5, node(&leaves[..2])));
    blocks.push((6, node(&leaves[2..])));
    let mut made = TestBlocks::indexed(&blocks);
    let depth = Corrupt::Depth { structure: INDEX, block: FIRST, found: 2, expected: 1 };
    assert_eq!(all(&made.directory())[0], Err(depth.into()));
    made.shape.max_levels = 3;
    let expected: Vec<_> = texts.iter().map(|name| ok(name)).collect();
    assert_eq!(all(&made.directory()), expected);
    assert_eq!(names(list_in_steps(&made.directory())), expected);
    assert_eq!(made.directory().lookup(name(&texts[59])), Ok(Ino(33)));
}

#[test]
fn a_directory_that_ignores_case_is_searched_by_folded_names() {
    let entries = [(21, "Straße".as_bytes()), (22, b"\xffRaw"), (23, b"plain")];
    let mut made = TestBlocks::new(&[(0, first_block(&entries))]);
    made.shape.fold = Some(Fold { strict: false, scan: true });
    assert_eq!(made.directory().lookup(name("STRASSE")), Ok(Ino(21)));
    assert_eq!(made.directory().lookup(name("Plain")), Ok(Ino(23)));
    assert_eq!(made.directory().lookup(Name::new(b"\xffRaw").unwrap()), Ok(Ino(22)));
    assert_eq!(made.directory().lookup(Name::new(b"\xffraw").unwrap()), Err(Error::NotFound));
    made.shape.fold = Some(Fold { strict: true, scan: true });
    assert_eq!(made.directory().lookup(Name::new(b"\xffRaw").unwrap()), Err(Error::NotFound));
}

#[test]
fn an_index_made_with_other_foldings_is_passed_by_unless_the_volume_forbids() {
    // The index contains the hash of the name and not of its folded form.
    let upper = "FILE";
    let (own, folded) = (hasher().hash(b"FILE").major, hasher().hash(b"file").major);
    let middle = (own / 2 + folded / 2) & !1;
    let (low, high) = if own < folded { (31, 32) } else { (32, 31) };
    let leaf = |ino| block(1024, &[(ino, if ino == 31 { upper.as_bytes() } else { b"x" })]);
    let mut made =
        TestBlocks::indexed(&[(0, root(0, &[(0, 1), (middle, 2)])), (1, leaf(low)), (2, leaf(high))]);
    made.shape.fold = Some(Fold { strict: false, scan: true });
    assert_eq!(made.directory().lookup(name("file")), Ok(Ino(31)));
    made.shape.fold = Some(Fold { strict: false, scan: false });
    assert_eq!(made.directory().lookup(name("file")), Err(Error::NotFound));
}

#[test]
fn an_inline_directory_continues_outside_i_block() {
    let mut i_block = Vec::from([9, 0, 0, 0]);
    i_block.extend(block(56, &[(21, b"one"), (0, b"gone"), (22, b"two")]));
    let rest = block(24, &[(23, b"three")]);
    let made = TestBlocks::new(&[]);
    let mut directory = made.directory();
    directory.body = EntriesBody::Inline(Inline { block: 7, i_block: (168, &i_block), rest: (300, &rest) });
    for order in [Order::Offset, Order::Hash(hasher())] {
        directory.shape.order = order;
        let seen = all(&directory);
        assert_eq!(names(list_in_steps(&directory)), seen);
        let mut texts: Vec<_> = seen.into_iter().map(Result::unwrap).collect();
        if order != Order::Offset {
            texts.sort();
        }
        assert_eq!(texts.len(), 3);
    }
    assert_eq!(directory.lookup(name("three")), Ok(Ino(23)));
    assert_eq!(directory.parent(), Ok(Ino(9)));

    let mut damaged = i_block.clone();
    damaged[4 + 4] = 3;
    directory.body = EntriesBody::Inline(Inline { block: 7, i_block: (168, &damaged), rest: (300, &rest) });
    directory.shape.order = Order::Offset;
    let error = Corrupt::RecordLength { dir: DIR, block: 7, offset: 172, rec_len: 3 };
    assert_eq!(all(&directory), [Err(error.into()), ok("three")]);
    assert_eq!(directory.lookup(name("three")), Ok(Ino(23)));
    assert_eq!(directory.lookup(name("one")), Err(error.into()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_directory_panic_or_run_on(
        bytes in proptest::collection::vec(any::<u8>(), 3 * 1024),
        changes in proptest::collection::vec((0_usize..3072, any::<u8>()), 0..20),
        made_well in any::<bool>(), indexed in any::<bool>(), sums in any::<bool>(), levels in 0_u8..3,
        from in any::<u64>(), wide in any::<bool>(), fold in any::<bool>(),
    ) {
        let mut image = bytes;
        if made_well {
            let (_, blocks) = index();
            image = blocks[..3].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            image[30] = levels;
        }
        changes.iter().for_each(|&(at, value)| image[at] = value);
        let blocks: Vec<_> = (0..).zip(image.chunks(1024).map(Vec::from)).collect();
        let mut made = TestBlocks::new(&blocks);
        made.shape.indexed = indexed;
        made.shape.checksum_seed = sums.then_some(5);
        made.shape.max_levels = 3;
        made.shape.fold = fold.then_some(Fold { strict: false, scan: true });
        if wide {
            made.shape.block_size = 65536;
        }
        let directory = made.directory();
        for from in [0, from >> 1, 0x7fff_ffff_0000_0010] {
            prop_assert!(list(&directory, Cookie(from)).len() <= 3 * 86 + 8);
        }
        let entries = |seen: Seen| seen.into_iter().filter_map(Result::ok).collect::<Vec<_>>();
        let in_steps = list_in_steps(&directory);
        prop_assert!(in_steps.len() <= 4 * (3 * 86 + 8));
        prop_assert_eq!(entries(in_steps), entries(list(&directory, Cookie::START)));
        let _ = directory.lookup(name("file7"));
        let _ = directory.parent();
        made.shape.order = Order::Hash(hasher());
        made.shape.indexed = false;
        list_in_steps(&made.directory());
        let (i_block, rest) = ((0, &image[..60]), (60, &image[60..160]));
        let inline = EntriesBody::Inline(Inline { block: 1, i_block, rest });
        let directory = Directory { shape: made.shape.clone(), body: inline };
        list_in_steps(&directory);
        let _ = (directory.lookup(name("file7")), directory.parent());
    }
}
