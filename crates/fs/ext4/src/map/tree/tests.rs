//! Trees compared with the simplest model: the mapping of each block of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Few entries per node, so that small files make deep trees.
const ROOM: usize = 5;
/// The entries per node of a volume with blocks of 1 KiB, the smallest.
const REAL_ROOM: usize = 84;
const SEED: u32 = 0x1234;

/// A volume that contains only one tree.
#[derive(Clone, Default)]
struct Store {
    nodes: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl NodeSource for Store {
    type Bytes = Vec<u8>;

    fn load(&self, at: VolBlock, parent_depth: u16, bounds: Bounds) -> Result<Vec<u8>> {
        let bytes = self.nodes[&at.0].clone();
        let node = TreeNode::decode(&bytes, NodeLocation::Block(at))?;
        assert_eq!(node.depth + 1, parent_depth);
        let key = u64::from(node.entries.first_key().expect("a node has entries"));
        assert_eq!(key, bounds.start, "a key equals that of the node below");
        let mut sealed = bytes.clone();
        node.seal(&mut sealed, SEED);
        assert!(sealed == bytes, "the checksum is right");
        Ok(bytes)
    }
}

/// A tree on its volume, with the model.
struct File {
    room: usize,
    store: Store,
    root: [u8; 60],
    model: BTreeMap<u32, (u64, ExtentState)>,
}

impl File {
    fn new() -> Self {
        Self::with_room(ROOM)
    }

    fn with_room(room: usize) -> Self {
        let store = Store { next: 1000, ..Store::default() };
        Self { room, store, root: empty_root(), model: BTreeMap::new() }
    }

    /// Makes one change and writes it, as a transaction would.
    fn change<T>(&mut self, change: impl FnOnce(&mut ExtentTree<'_, Store>) -> Result<T>) -> T {
        let store = self.store.clone();
        let mut tree = ExtentTree::new(&store, &self.root, self.room).unwrap();
        let answer = change(&mut tree).unwrap();
        let next = &mut self.store.next;
        tree.place_new(|| {
            *next += 1;
            Some(VolBlock(*next))
        });
        for (id, home) in tree.changed() {
            match home {
                NodeLocation::Root => tree.encode(id, &mut self.root, Some(SEED)),
                NodeLocation::Block(VolBlock(at)) => {
                    tree.encode(id, self.store.nodes.get_mut(&at).unwrap(), Some(SEED))
                }
                NodeLocation::Fresh(VolBlock(at)) => {
                    let mut bytes = std::vec![0; 12 + self.room * 12 + 4];
                    tree.encode(id, &mut bytes, Some(SEED));
                    assert!(self.store.nodes.insert(at, bytes).is_none());
                }
                NodeLocation::New | NodeLocation::Gone => panic!("{home:?} is not written"),
            }
        }
        for block in tree.freed() {
            assert!(self.store.nodes.remove(&block.0).is_some(), "freed once");
        }
        answer
    }

    fn splice(&mut self, range: Range<u64>, new: &[Mapping]) {
        let mut removed = Vec::new();
        self.change(|tree| tree.splice(range.clone(), new, &mut removed));
        let blocks = |list: &[Mapping]| -> BTreeMap<u32, (u64, ExtentState)> {
            let each = |m: &Mapping| {
                let (start, place, state) = (m.start, m.place.0, m.state);
                (0..m.len).map(move |n| (start + n, (place + u64::from(n), state)))
            };
            list.iter().flat_map(each).collect()
        };
        let keys: Vec<u32> = self.model.keys().copied().filter(|&at| range.contains(&at.into())).collect();
        let gone: BTreeMap<_, _> = keys.iter().map(|at| (*at, self.model.remove(at).unwrap())).collect();
        assert_eq!(blocks(&removed), gone);
        self.model.extend(blocks(new));
        self.check();
    }

    /// Moves everything from `from` on, leaf by leaf.
    fn shift(&mut self, from: u32, shift: Shift) {
        let from = u64::from(from);
        match shift {
            Shift::Down(_) => {
                let mut at = from;
                while at < Bounds::ALL.end {
                    at = self.change(|tree| tree.shift_leaf(at, from, shift)).end;
                    self.check_shape();
                }
            }
            Shift::Up(_) => {
                let mut at = Bounds::ALL.end;
                while at > from {
                    at = self.change(|tree| tree.shift_leaf(at - 1, from, shift)).start;
                    self.check_shape();
                }
            }
        }
        let moved = self.model.split_off(&(u32::try_from(from).unwrap()));
        self.model.extend(moved.into_iter().map(|(at, what)| match shift {
            Shift::Down(by) => (at - by, what),
            Shift::Up(by) => (at + by, what),
        }));
        self.check();
    }

    /// Checks that every block of the file is mapped as in the model.
    fn check(&self) {
        let mut found = BTreeMap::new();
        for mapping in self.check_shape() {
            assert!(mapping.len > 0 && mapping.len <= mapping::MAX_WRITTEN);
            for n in 0..mapping.len {
                let old = found.insert(mapping.start + n, (mapping.place.0 + u64::from(n), mapping.state));
                assert_eq!(old, None);
            }
        }
        assert!(found == self.model, "found {found:?}\nmodel {:?}", self.model);
    }

    /// Walks the stored tree: depths, order, keys, no empty and no lost nodes. Returns its extents.
    fn check_shape(&self) -> Vec<Mapping> {
        let mut seen = BTreeSet::new();
        let mut extents = Vec::new();
        let mut todo = std::vec![(TreeNode::decode(&self.root, NodeLocation::Root).unwrap(), Bounds::ALL)];
        while let Some((node, bounds)) = todo.pop() {
            assert!(node.entries.len() <= node.room);
            match node.entries {
                Entries::Leaf(list) => extents.extend(list),
                Entries::Inner(list) => {
                    assert!(!list.is_empty(), "an inner node has a child");
                    for (slot, entry) in list.iter().enumerate() {
                        let Child::Stored(at) = entry.child else { panic!("decoded") };
                        assert!(seen.insert(at.0), "one parent");
                        let end = list.get(slot + 1).map_or(bounds.end, |next| next.start.into());
                        let inside = Bounds { start: entry.start.into(), end };
                        let bytes = self.store.load(at, node.depth, inside).unwrap();
                        todo.push((TreeNode::decode(&bytes, NodeLocation::Block(at)).unwrap(), inside));
                    }
                }
            }
        }
        assert!(seen.iter().eq(self.store.nodes.keys()), "every node is reached");
        extents.sort_by_key(|mapping| mapping.start);
        assert!(extents.windows(2).all(|pair| pair[0].end() <= u64::from(pair[1].start)));
        extents
    }

    fn depth(&self) -> u16 {
        TreeNode::decode(&self.root, NodeLocation::Root).unwrap().depth
    }
}

fn written(start: u32, len: u32, place: u64) -> Mapping {
    Mapping { start, len, place: VolBlock(place), state: ExtentState::Written }
}

#[test]
fn appended_pieces_fill_nodes_and_grow_the_tree() {
    let mut file = File::new();
    for n in 0..400 {
        file.splice(n.into()..u64::from(n) + 1, &[written(n, 1, 10_000 + 2 * u64::from(n))]);
    }
    assert_eq!(file.depth(), 3);
    // All leaves but the last are full, and so are the nodes of every level above.
    assert!(file.store.nodes.len() <= 80 + 16 + 4 + 3);
    file.splice(0..400, &[]);
    assert_eq!((file.depth(), file.store.nodes.len()), (0, 0));
}

#[test]
fn pieces_put_in_backwards_and_merged_again_leave_a_small_tree() {
    let mut file = File::new();
    for n in (0..200).rev().step_by(2).chain((0..200).step_by(2)) {
        file.splice(n.into()..u64::from(n) + 1, &[written(n, 1, 10_000 + u64::from(n))]);
    }
    let mut all = Vec::new();
    file.change(|tree| tree.splice(0..1, &[written(0, 1, 10_000)], &mut all));
    file.splice(0..200, &[written(0, 200, 10_000)]);
    assert_eq!((file.depth(), file.store.nodes.len()), (0, 0));
}

#[test]
fn the_last_mappings_of_a_range_come_in_steps() {
    let mut file = File::new();
    for n in 0..30 {
        file.splice(2 * n..2 * n + 1, &[written(u32::try_from(2 * n).unwrap(), 1, 500 + 5 * n)]);
    }
    let (mut end, mut total) = (Bounds::ALL.end, 0);
    while end > 7 {
        let (list, from) = file.change(|tree| tree.last_in(&(7..end), 2));
        assert!(list.len() <= 2 && from < end);
        total += list.len();
        end = from;
    }
    assert_eq!(total, 26);
}

#[test]
fn neighbours_are_found_across_leaves() {
    let mut file = File::new();
    for n in 0..30_u32 {
        file.splice((10 * n).into()..u64::from(10 * n + 1), &[written(10 * n, 1, 500 + 5 * u64::from(n))]);
    }
    for at in 1..300_u32 {
        let before = file.change(|tree| tree.before(at.into())).unwrap();
        assert_eq!(before.start, (at - 1) / 10 * 10);
        let first = file.change(|tree| tree.first_in(&(at.into()..10_000))).map(|mapping| mapping.start);
        assert_eq!(first, Some(at.next_multiple_of(10)).filter(|&start| start < 300));
    }
}

#[derive(Clone, Debug)]
enum Action {
    Map { at: u32, len: u32, place: u64, state: ExtentState },
    Convert { at: u32, len: u32, state: ExtentState },
    Remove { at: u32, len: u32 },
    Collapse { at: u32, len: u32 },
    Insert { at: u32, len: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Action>> {
    let range = || (0..220_u32, 1..24_u32);
    let state = || prop_oneof![Just(ExtentState::Written), Just(ExtentState::Unwritten)];
    let step = prop_oneof![
        // Places that often follow from the file block, so that extents are merged.
        8 => (range(), 0..3_u64, state()).prop_map(|((at, len), shift, state)| {
            Action::Map { at, len, place: 10_000 * (shift + 1) + u64::from(at), state }
        }),
        4 => (0..220_u32, 0..9_u64, state()).prop_map(|(at, place, state)| {
            Action::Map { at, len: 1, place: 50_000 + place, state }
        }),
        4 => (range(), state()).prop_map(|((at, len), state)| Action::Convert { at, len, state }),
        3 => range().prop_map(|(at, len)| Action::Remove { at, len }),
        1 => (0..220_u32, 1..220_u32).prop_map(|(at, len)| Action::Remove { at, len }),
        1 => range().prop_map(|(at, len)| Action::Collapse { at, len }),
        1 => range().prop_map(|(at, len)| Action::Insert { at, len }),
    ];
    prop::collection::vec(step, 1..120)
}

/// Returns the mappings that fill `range`: existing extents become written, and holes get `pieces` of this length in
/// turn, each in another place.
fn filling(tree: &mut ExtentTree<'_, Store>, range: &Range<u64>, pieces: &[u64]) -> Vec<Mapping> {
    let (mut new, mut at, mut pieces) = (Vec::new(), range.start, pieces.iter().cycle());
    while at < range.end {
        let next = tree.first_in(&(at..range.end)).unwrap();
        let mapping = match next
            .and_then(|found| found.within(range))
            .and_then(|found| found.within(&(at..u64::MAX)))
        {
            Some(found) if u64::from(found.start) == at => found,
            found => {
                let end =
                    found.map_or(range.end, |found| found.start.into()).min(at + pieces.next().unwrap());
                // Places of later pieces never follow those of earlier ones.
                written(at as u32, (end - at) as u32, 900_000_000 - 1000 * at)
            }
        };
        at = mapping.end();
        new.push(Mapping { state: ExtentState::Written, ..mapping });
    }
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The file has `separate` extents of a block each, every other block, and space after them: runs of blocks of which
    /// every other one is unwritten. A range after the extents is published in parts.
    #[test]
    fn published_parts_need_no_more_nodes_than_were_promised(
        separate in prop_oneof![0..12_u32, 75..90_u32, 325..345_u32, 7045..7065_u32],
        space in prop::collection::vec(1..30_u32, 0..6),
        has_space_first in any::<bool>(),
        (skip, len) in (0..20_u64, 1..65_u64),
        pieces in prop::collection::vec(1..65_u64, 1..4),
        parts in prop::collection::vec(1..65_u64, 1..9),
    ) {
        let mut file = File::with_room(REAL_ROOM);
        let mut all: Vec<_> = (0..separate).map(|n| written(2 * n, 1, 100_000 + 5 * u64::from(n))).collect();
        let (end, mut at) = (u64::from(2 * separate), 2 * separate);
        for (n, &len) in space.iter().enumerate() {
            if (n % 2 == 0) == has_space_first {
                let place = 50_000_000 + u64::from(at);
                all.push(Mapping { state: ExtentState::Unwritten, ..written(at, len, place) });
            }
            at += len;
        }
        file.change(|tree| tree.splice(0..u64::from(at) + 1, &all, &mut Vec::new()));
        let range = end + skip..end + skip + len;
        let new = file.change(|tree| Ok(filling(tree, &range, &pieces)));
        let promised = {
            let mut tree = ExtentTree::new(&file.store, &file.root, REAL_ROOM).unwrap();
            let is_hole = |mapping: &&Mapping| !all.iter().any(|old| old.within(&mapping.range()).is_some());
            let has_room = tree.has_room(&range, new.iter().filter(is_hole).count()).unwrap();
            if has_room { 0 } else { tree.nodes_to_publish(&range, &new).unwrap() }
        };
        let (mut start, mut used, mut parts) = (range.start, 0, parts.iter().cycle());
        while start < range.end {
            let part = start..range.end.min(start + parts.next().unwrap());
            let inside: Vec<_> = new.iter().filter_map(|mapping| mapping.within(&part)).collect();
            used += file.change(|tree| {
                tree.splice(part.clone(), &inside, &mut Vec::new())?;
                Ok(tree.new_nodes())
            });
            start = part.end;
        }
        prop_assert!(used <= promised, "{used} of {promised} for {range:?} of {new:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_leave_the_tree_as_the_model_says(steps in steps()) {
        let mut file = File::new();
        for step in steps {
            match step {
                Action::Map { at, len, place, state } => {
                    let new = Mapping { state, ..written(at, len, place) };
                    file.splice(new.range(), &[new]);
                }
                Action::Convert { at, len, state } => {
                    let inside = file.model.range(at..at + len);
                    let new: Vec<_> =
                        inside.map(|(at, (place, _))| Mapping { state, ..written(*at, 1, *place) }).collect();
                    file.splice(at.into()..u64::from(at + len), &new);
                }
                Action::Remove { at, len } => file.splice(at.into()..u64::from(at + len), &[]),
                Action::Collapse { at, len } => {
                    file.splice(at.into()..u64::from(at + len), &[]);
                    file.shift(at + len, Shift::Down(len));
                }
                Action::Insert { at, len } => file.shift(at, Shift::Up(len)),
            }
        }
    }
}
