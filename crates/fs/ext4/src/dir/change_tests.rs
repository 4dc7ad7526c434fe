//! Directories that grow and shrink, compared with a map from names to inodes.

use core::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_block::{Block, BlockDevice as _, Cache, MemDevice};
use obento_driver::Cookie;
use proptest::prelude::*;

use super::block::{BlockOrHole, BlockStore, DirBlocks};
use super::fold::Fold;
use super::hash::{Chars, Hasher};
use super::index::DirIndex;
use super::testing::{DIR, PARENT, list, shape};
use super::{DirShape, DirTxn, Directory, EntriesBody, EntriesLocation, EntrySpace, Grown, NewEntry};
use crate::unit::FileBlock;

/// A directory in blocks of its own device, and its expected entries.
struct Tree {
    cache: Cache,
    shape: DirShape,
    most: u32,
    version: u8,
    model: BTreeMap<Vec<u8>, u32>,
    /// The number of times that each kind of step was done.
    steps: RefCell<HashMap<&'static str, u32>>,
}

impl Tree {
    fn new(most: u32, change: impl FnOnce(&mut DirShape)) -> Self {
        let mut shape = shape(1);
        change(&mut shape);
        let device = Arc::new(MemDevice::new(vec![0; (most * shape.block_size) as usize]));
        let cache = Cache::new(device, shape.block_size, 64 << 20);
        let version = shape.new_index.unwrap_or(0);
        let model = BTreeMap::new();
        let mut this = Self { cache, shape, most, version, model, steps: RefCell::default() };
        let shape = this.shape.clone();
        this.edit(&0, |bytes| shape.first_block(bytes, DIR.0 as u32, PARENT));
        this
    }

    fn directory(&self) -> Directory<'_> {
        Directory { shape: self.shape.clone(), body: EntriesBody::Blocks(self) }
    }

    fn insert(&mut self, name: &[u8], ino: u32) -> Result<()> {
        // At most a split of a node, a further level and a split of a leaf are needed.
        for _ in 0..8 {
            let shape = self.shape.clone();
            match self.directory().room(Name::new(name).unwrap())? {
                EntrySpace::Slot(EntriesLocation::Block(block), slot) => {
                    let entry = NewEntry { name, ino, kind: FileKind::Regular };
                    let taken = self.take(&block)?;
                    self.edit(&taken, |bytes| {
                        shape.put(bytes, slot, &entry);
                        shape.seal(bytes);
                    });
                    self.model.insert(name.into(), ino);
                    return Ok(());
                }
                EntrySpace::Slot(EntriesLocation::Inline(_), _) => unreachable!(),
                EntrySpace::Grow(growth) => {
                    let step = format!("{growth:?}");
                    let known = ["Append", "Index", "Leaf", "Node", "Deepen"];
                    let step = known.into_iter().find(|known| step.starts_with(known)).unwrap();
                    *self.steps.borrow_mut().entry(step).or_default() += 1;
                    if growth.act(&shape, self)? == Grown::Indexed {
                        self.shape.indexed = true;
                    }
                }
            }
        }
        panic!("no room for {name:?}");
    }

    fn remove(&mut self, name: &[u8]) -> Result<()> {
        let hit = self.directory().find(Name::new(name).unwrap())?;
        let EntriesLocation::Block(block) = &hit.home else { unreachable!() };
        let (taken, shape) = (self.take(block)?, self.shape.clone());
        self.edit(&taken, |bytes| {
            shape.remove(bytes, hit.spot);
            shape.seal(bytes);
        });
        assert_eq!(self.model.remove(name).map(u64::from), Some(hit.ino.0));
        Ok(())
    }

    /// Checks that every name is found and listed once, that the index is in order, and that nothing is misplaced.
    fn check(&self) {
        let directory = self.directory();
        for (name, ino) in &self.model {
            assert_eq!(directory.lookup(Name::new(name).unwrap()), Ok(Ino((*ino).into())));
        }
        let mut listed: Vec<(String, u64)> =
            list(&directory, Cookie::START).into_iter().map(|entry| entry.unwrap()).collect();
        listed.sort();
        let text = |name: &[u8]| format!("{}", Name::new(name).unwrap());
        let mut expected: Vec<_> =
            self.model.iter().map(|(name, ino)| (text(name), u64::from(*ino))).collect();
        expected.sort();
        assert_eq!(listed, expected);
        assert_eq!(directory.is_empty(), Ok(self.model.is_empty()));
        assert_eq!(directory.parent(), Ok(Ino(PARENT.into())));
        if self.shape.indexed {
            DirIndex::open(BlockStore { shape: &self.shape, blocks: self }).unwrap().check().unwrap();
        }
        for at in 0..self.shape.blocks {
            directory.check_block(at, &self.cache.get(at.into()).unwrap()).unwrap();
        }
    }

    fn steps(&self, kind: &str) -> u32 {
        self.steps.borrow().get(kind).copied().unwrap_or(0)
    }
}

impl DirBlocks for Tree {
    fn block(&self, at: FileBlock) -> Result<BlockOrHole> {
        self.cache.get(at.0.into()).map(BlockOrHole::Block)
    }
}

impl DirTxn for Tree {
    type Taken = u64;

    fn take(&mut self, block: &Block) -> Result<u64> {
        Ok(block.number())
    }

    fn append(&mut self) -> Result<(u32, u64)> {
        let at = self.shape.blocks;
        if at == self.most {
            return Err(Error::NoSpace);
        }
        self.shape.blocks += 1;
        Ok((at, at.into()))
    }

    fn edit(&mut self, taken: &u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.cache.get(*taken).unwrap().to_vec();
        change(&mut bytes);
        self.cache.device().write_at(taken * u64::from(self.shape.block_size), &bytes).unwrap();
        self.cache.clear();
    }
}

fn plain(shape: &mut DirShape) {
    shape.new_index = Some(1);
}

fn sealed(shape: &mut DirShape) {
    plain(shape);
    shape.checksum_seed = Some(77);
}

fn unindexed(shape: &mut DirShape) {
    shape.checksum_seed = Some(77);
}

fn folding(shape: &mut DirShape) {
    sealed(shape);
    shape.fold = Some(Fold { strict: false, scan: false });
}

/// Returns `n` as a name of `len` bytes.
fn long(n: u32, len: usize) -> Vec<u8> {
    format!("{n:0>len$}").into_bytes()
}

#[test]
fn a_full_block_becomes_an_index_and_leaves_are_split() {
    for change in [plain, sealed, folding] {
        let mut tree = Tree::new(200, change);
        for n in 0..500 {
            tree.insert(&long(n, 20), 20 + n).unwrap();
        }
        tree.check();
        assert_eq!((tree.steps("Index"), tree.steps("Append")), (1, 0));
        assert!(tree.steps("Leaf") > 10);
        assert_eq!(tree.insert(&long(499, 20), 9), Err(Error::Exists));
        for n in 0..500 {
            tree.remove(&long(n, 20)).unwrap();
        }
        tree.check();
    }
}

#[test]
fn an_index_grows_to_the_number_of_levels_that_the_volume_allows() {
    for (levels, most) in [(2, 3_000), (3, 40_000)] {
        let mut tree = Tree::new(most, |shape| {
            sealed(shape);
            shape.max_levels = levels;
            shape.max_ino = u32::MAX;
        });
        // Three names fill a leaf.
        let mut n = 0;
        while tree.steps("Deepen") < u32::from(levels) - 1 {
            tree.insert(&long(n, 250), 20 + n).unwrap();
            n += 1;
        }
        assert!(tree.steps("Node") > 0 || levels == 2);
        (n..n + 1000).for_each(|n| tree.insert(&long(n, 250), 20 + n).unwrap());
        tree.check();
    }
}

#[test]
fn an_index_of_maximum_height_without_space_returns_no_space_and_stays_intact() {
    let mut tree = Tree::new(500, |shape| {
        sealed(shape);
        shape.max_levels = 1;
    });
    let refused = (0..).find_map(|n| tree.insert(&long(n, 250), 20).err());
    assert_eq!(refused, Some(Error::NoSpace));
    tree.check();
    assert!(tree.model.len() > 123);
}

#[test]
fn a_volume_without_space_for_another_block_leaves_the_directory_intact() {
    for (most, change) in [(1, sealed as fn(&mut DirShape)), (2, sealed), (30, sealed), (3, unindexed)] {
        let mut tree = Tree::new(most, change);
        let refused = (0..).find_map(|n| tree.insert(&long(n, 100), 20).err());
        assert_eq!(refused, Some(Error::NoSpace));
        tree.check();
        assert_eq!(tree.shape.blocks, most);
    }
}

#[test]
fn without_indexes_a_directory_grows_by_blocks_and_fills_their_gaps() {
    let mut tree = Tree::new(100, unindexed);
    (0..300).for_each(|n| tree.insert(&long(n, 40), 20 + n).unwrap());
    let blocks = tree.shape.blocks;
    assert_eq!(tree.steps("Append") + 1, blocks);
    (0..300).filter(|n| n % 3 == 0).for_each(|n| tree.remove(&long(n, 40)).unwrap());
    tree.check();
    (300..400).for_each(|n| tree.insert(&long(n, 40), 20 + n).unwrap());
    tree.check();
    assert_eq!(tree.shape.blocks, blocks);
}

#[test]
fn names_with_one_hash_are_found_across_leaves() {
    let hasher = Hasher::new(0, Chars::Signed, [0; 4]).unwrap();
    let mut tree = Tree::new(2000, |shape| {
        sealed(shape);
        shape.new_index = Some(0);
    });
    let mut known: HashMap<u32, u32> = HashMap::new();
    let mut continued = 0;
    let name = |n: u32| format!("{:x>250x}", n.wrapping_mul(2_654_435_761)).into_bytes();
    for n in 0..1_000_000 {
        let Some(twin) = known.insert(hasher.hash(&name(n)).major, n) else { continue };
        for n in [n, twin] {
            tree.insert(&name(n), 20).unwrap();
        }
    }
    tree.check();
    let store = BlockStore { shape: &tree.shape, blocks: &tree };
    let index = DirIndex::open(store).unwrap();
    let mut path = index.path(None);
    path.descend().unwrap();
    while let Some(leaf) = path.leaf() {
        continued += leaf.low & 1;
        if !path.advance().unwrap() {
            break;
        }
    }
    assert!(continued > 0, "no hash of {} names is in two leaves", tree.model.len());
    for name in tree.model.keys().cloned().collect::<Vec<_>>() {
        assert_eq!(tree.insert(&name, 9), Err(Error::Exists));
    }
}

#[test]
fn the_checksum_of_a_block_is_never_taken_for_room() {
    let mut tree = Tree::new(1, unindexed);
    let refused = (0..).find_map(|n: u32| tree.insert(&long(n, 4), 20).err());
    assert_eq!(refused, Some(Error::NoSpace));
    tree.check();
    // 1012 bytes for records of 12 bytes, two of which are `.` and `..`.
    assert_eq!(tree.model.len(), 82);
}

#[test]
fn blocks_of_64_kib_contain_records_of_the_full_length() {
    let mut tree = Tree::new(8, |shape| {
        shape.block_size = 65536;
        shape.new_index = Some(2);
    });
    (0..2000).for_each(|n| tree.insert(&long(n, 60), 20 + n % 900).unwrap());
    assert!(tree.shape.indexed && tree.version == 2);
    (0..2000).for_each(|n| tree.remove(&long(n, 60)).unwrap());
    tree.check();
}

#[test]
fn names_that_differ_in_case_alone_are_one_name_where_case_is_ignored() {
    let mut tree = Tree::new(100, folding);
    for n in 0..200 {
        tree.insert(format!("Straße-{n:0>30}").as_bytes(), 20).unwrap();
    }
    assert!(tree.shape.indexed);
    tree.check();
    let twin = format!("STRASSE-{:0>30}", 150);
    assert_eq!(tree.insert(twin.as_bytes(), 20), Err(Error::Exists));
    tree.shape.fold = Some(Fold { strict: true, scan: true });
    assert_eq!(tree.insert(twin.as_bytes(), 20), Err(Error::Exists));
    assert_eq!(tree.insert(b"\xff", 20), Err(Error::Invalid));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, usize),
    Remove(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert = (any::<u8>(), 3..250_usize).prop_map(|(n, len)| Step::Insert(n, len));
    let remove = any::<prop::sample::Index>().prop_map(|at| Step::Remove(at.index(1 << 20)));
    prop::collection::vec(prop_oneof![3 => insert, 1 => remove], 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_inserts_and_removals_leave_the_contents_of_a_map(steps in steps(), kind in 0..4_usize) {
        let change = [plain, sealed, unindexed, folding][kind];
        let mut tree = Tree::new(400, change);
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(n, len) => {
                    let name = long(n.into(), len);
                    let exists = tree.model.contains_key(&name);
                    let done = tree.insert(&name, 20 + u32::from(n));
                    prop_assert_eq!(done, if exists { Err(Error::Exists) } else { Ok(()) });
                }
                Step::Remove(at) if !tree.model.is_empty() => {
                    let name = tree.model.keys().nth(at % tree.model.len()).unwrap().clone();
                    tree.remove(&name).unwrap();
                    let gone = tree.directory().lookup(Name::new(&name).unwrap());
                    prop_assert_eq!(gone, Err(Error::NotFound));
                }
                Step::Remove(_) => {}
            }
            if n % 50 == 0 {
                tree.check();
            }
        }
        tree.check();
    }
}
