//! The planners compared with a map: after any sets and removals, the reading code finds the contents of the map.

use std::collections::BTreeMap;
use std::vec::Vec;
use std::{format, vec};

use obento_base::{Error, Ino};
use obento_driver::XattrMode;
use proptest::prelude::*;

use super::area::AttributeArea;
use super::hash::words;
use super::name::StoredName;
use super::plan::{Tables, ValueInodes};
use super::table::{Form, Table, Value};

const BLOCK: usize = 1024;

/// The encoded attributes of one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Disk {
    inode: Vec<u8>,
    block: Vec<u8>,
    /// Values in inodes of their own, the first of which is inode 1.
    own: Vec<Vec<u8>>,
}

impl Disk {
    fn new(inode: usize) -> Self {
        Self { inode: vec![0; inode], block: vec![0; BLOCK], own: vec![] }
    }

    fn areas(&self) -> [(Form, usize, AttributeArea<'_>); 2] {
        let area = |bytes, table| AttributeArea { ino: Ino(12), block: 99, base: 0, bytes, table };
        let inode = area(self.inode.get(4..).unwrap_or_default(), 0);
        [(Form::Inode, self.inode.len(), inode), (Form::Block, BLOCK, area(&self.block, 32))]
    }

    fn tables(&self) -> Tables<'_> {
        let [inode, block] = self.areas().map(|(form, len, area)| Table::decode(form, len, &area).unwrap());
        Tables { inode: (!self.inode.is_empty()).then_some(inode), block }
    }

    fn write(&mut self, tables: &Tables<'_>) -> (Vec<u8>, Vec<u8>) {
        let (mut inode, mut block) = (self.inode.clone(), self.block.clone());
        if let Some(table) = &tables.inode {
            table.encode(&mut inode).expect("it was planned to fit");
        }
        tables.block.encode(&mut block).expect("it was planned to fit");
        (inode, block)
    }

    fn set(&mut self, name: &[u8], value: &[u8], mode: XattrMode, own: ValueInodes) -> Result<(), Error> {
        let copy = self.clone();
        let stored = StoredName::parse(name).unwrap();
        let Some(mut plan) = copy.tables().plan_set(stored, value, mode, own, BLOCK)? else { return Ok(()) };
        if plan.wants_inode {
            self.own.push(value.to_vec());
            plan.name_value_inode(u32::try_from(self.own.len()).unwrap());
        }
        (self.inode, self.block) = self.write(&plan.tables);
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> Result<(), Error> {
        let copy = self.clone();
        let plan = copy.tables().plan_remove(StoredName::parse(name).unwrap())?;
        (self.inode, self.block) = self.write(&plan.tables);
        Ok(())
    }

    /// Returns every attribute as the reading code finds it.
    fn read(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        for (_, _, area) in self.areas() {
            let mut names = vec![];
            area.list(&mut |name| names.push(name.to_vec())).unwrap();
            for name in names {
                let entry = area.find(|entry| entry.has_name(&name)).unwrap().unwrap();
                let value = match entry.raw.e_value_inum.get() {
                    0 => {
                        let value = area.value(&entry).unwrap().to_vec();
                        area.check_hash(&entry, words(&value)).unwrap();
                        value
                    }
                    ino => self.own[ino as usize - 1].clone(),
                };
                assert_eq!(entry.raw.e_value_size.get() as usize, value.len());
                assert_eq!(all.insert(name, value), None, "an attribute has one place");
            }
        }
        all
    }

    /// Returns the free space of each area as Linux computes it: from the end of the table to the lowest value.
    fn free(&self) -> [usize; 2] {
        self.areas().map(|(_, _, area)| {
            let entries: Vec<_> = area.entries().map(Result::unwrap).collect();
            let here = |entry: &&super::area::AttributeEntry<'_>| {
                entry.raw.e_value_inum.get() == 0 && entry.raw.e_value_size.get() != 0
            };
            let lowest = entries.iter().filter(here).map(|entry| entry.raw.e_value_offs.get().into()).min();
            let names: usize = entries.iter().map(|entry| 16 + entry.name.len().next_multiple_of(4)).sum();
            lowest.unwrap_or(area.bytes.len()).saturating_sub(area.table + names + 4)
        })
    }

    fn expect_sorted_block(&self) {
        let [_, (_, _, area)] = self.areas();
        let keys: Vec<_> = area
            .entries()
            .map(Result::unwrap)
            .map(|entry| (entry.raw.e_name_index, entry.name.len(), entry.name.to_vec()))
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(usize, usize, u8, XattrMode),
    Remove(usize),
}

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> =
        (0..6).map(|n| format!("user.{}", "ab".repeat(n + 1)).into_bytes()).collect();
    names.extend([
        b"trusted.z".to_vec(),
        b"security.capability".to_vec(),
        b"system.posix_acl_access".to_vec(),
    ]);
    names.push([&b"user."[..], &[b'n'; 250]].concat());
    names
}

fn step() -> impl Strategy<Value = Step> {
    let mode =
        prop_oneof![4 => Just(XattrMode::Set), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)];
    let len = prop_oneof![3 => 0_usize..40, 2 => 40_usize..300, 1 => 900_usize..1100];
    prop_oneof![
        3 => (0_usize..10, len, any::<u8>(), mode).prop_map(|(name, len, fill, mode)| Step::Set(name, len, fill, mode)),
        1 => (0_usize..10).prop_map(Step::Remove),
    ]
}

/// Returns the error that the map predicts for a step: for a name that exists, or does not.
fn refusal(model: &BTreeMap<Vec<u8>, Vec<u8>>, name: &[u8], mode: XattrMode) -> Option<Error> {
    match (mode, model.contains_key(name)) {
        (XattrMode::Create, true) => Some(Error::Exists),
        (XattrMode::Replace, false) => Some(Error::NoData),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attributes_match_a_map(
        steps in proptest::collection::vec(step(), 1..60),
        inode in prop_oneof![Just(0_usize), Just(96), Just(100), Just(352)],
        with_value_inodes in any::<bool>(),
    ) {
        let own = if with_value_inodes { ValueInodes::Allowed { hash: 0x1234_5678 } } else { ValueInodes::Never };
        let (mut disk, mut model, names) = (Disk::new(inode), BTreeMap::new(), names());
        for step in steps {
            let before = disk.clone();
            match step {
                Step::Set(name, len, fill, mode) => {
                    let (name, value) = (&names[name], vec![fill; len]);
                    let done = disk.set(name, &value, mode, own);
                    match refusal(&model, name, mode) {
                        Some(refusal) => prop_assert_eq!(done, Err(refusal)),
                        None if done == Err(Error::NoSpace) => {
                            let stored = StoredName::parse(name).unwrap();
                            let entry = 16 + stored.rest.len().next_multiple_of(4);
                            let need = entry + if with_value_inodes && len > 0 { 0 } else { len.next_multiple_of(4) };
                            let here = disk.tables();
                            let has = |table: Option<Value<'_>>| table.map_or(0, |value| entry + match value {
                                Value::Here(bytes) => bytes.len().next_multiple_of(4),
                                Value::Inode { .. } => 0,
                            });
                            let [free_inode, free_block] = disk.free();
                            let inside = has(here.inode.as_ref().and_then(|table| table.get(&stored)));
                            prop_assert!(inode == 0 || free_inode + inside < need);
                            prop_assert!(free_block + has(here.block.get(&stored)) < need);
                        }
                        None => {
                            prop_assert_eq!(done, Ok(()));
                            model.insert(name.clone(), value);
                        }
                    }
                }
                Step::Remove(name) => {
                    let expected = model.remove(&names[name]).map(drop).ok_or(Error::NoData);
                    prop_assert_eq!(disk.remove(&names[name]), expected);
                }
            }
            prop_assert_eq!(disk.read(), model.clone(), "before: {:?}", before);
            disk.expect_sorted_block();
        }
    }
}

#[test]
fn an_attribute_that_grows_moves_to_the_block_and_back_when_it_shrinks() {
    let mut disk = Disk::new(96);
    let mut set = |len: usize| {
        disk.set(b"user.a", &vec![7; len], XattrMode::Set, ValueInodes::Never).unwrap();
        disk.tables().inode.unwrap().is_empty()
    };
    assert!(!set(68));
    assert!(set(73));
    assert!(!set(60));
    disk.remove(b"user.a").unwrap();
    assert_eq!(disk.inode, vec![0; 96], "not even the magic number stays");
}

#[test]
fn with_value_inodes_a_block_keeps_room_for_names() {
    let mut disk = Disk::new(0);
    let own = ValueInodes::Allowed { hash: 1 };
    disk.set(b"user.small", &[1; 800], XattrMode::Set, own).unwrap();
    assert_eq!(disk.own.len(), 0);
    // It would fit, but into the first eighth.
    disk.set(b"user.next", &[2; 100], XattrMode::Set, own).unwrap();
    assert_eq!(disk.own.len(), 1);
    disk.set(b"user.large", &[3; 972], XattrMode::Set, own).unwrap();
    assert_eq!(disk.own.len(), 2);
    assert_eq!(disk.read().len(), 3);
}

#[test]
fn a_value_inode_is_shared_by_hash_and_an_equal_value_is_not_set_again() {
    let mut disk = Disk::new(0);
    disk.set(b"user.a", b"1", XattrMode::Set, ValueInodes::Never).unwrap();
    let tables = disk.tables();
    let name = StoredName::parse(b"user.a").unwrap();
    assert_eq!(tables.plan_set(name, b"1", XattrMode::Set, ValueInodes::Never, BLOCK), Ok(None));
    assert_ne!(tables.block.hash(), 0);
}

#[test]
fn structures_that_the_format_does_not_list_stay_in_place() {
    let mut disk = Disk::new(96);
    let rest =
        Table::empty(Form::Inode, 96).with(StoredName::INLINE_DATA, Value::Here(b"rest of the file"), 0);
    rest.unwrap().encode(&mut disk.inode).unwrap();
    disk.set(b"user.a", &[1; 20], XattrMode::Set, ValueInodes::Never).unwrap();
    disk.set(b"user.b", &[1; 20], XattrMode::Set, ValueInodes::Never).unwrap();
    disk.remove(b"user.a").unwrap();
    let rest = disk.tables().inode.unwrap().get(&StoredName::INLINE_DATA);
    assert_eq!(rest, Some(Value::Here(b"rest of the file")));
}
