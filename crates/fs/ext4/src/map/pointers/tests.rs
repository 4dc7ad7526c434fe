//! Block maps compared with the simplest model: the number of each block of the file.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Few numbers per block, so that small files need three levels: 12 + 4 + 16 + 64 blocks.
const PER_BLOCK: u32 = 4;
const END: u32 = 96;

#[derive(Clone, Default)]
struct Store {
    blocks: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl PointerSource for Store {
    type Bytes = Vec<u8>;
    fn load(&self, _at: FileBlock, number: u32) -> Result<Vec<u8>> {
        Ok(self.blocks[&number.into()].clone())
    }
}

struct File {
    store: Store,
    root: [u8; 60],
    model: BTreeMap<u32, u64>,
}

impl File {
    fn new() -> Self {
        Self { store: Store { next: 1000, ..Store::default() }, root: [0; 60], model: BTreeMap::new() }
    }

    fn look<T>(&self, look: impl FnOnce(&mut Pointers<'_, Store>) -> Result<T>) -> T {
        look(&mut Pointers::new(&self.store, &self.root, PER_BLOCK).unwrap()).unwrap()
    }

    fn splice(&mut self, range: Range<u64>, new: &[Mapping]) {
        let store = self.store.clone();
        let mut map = Pointers::new(&store, &self.root, PER_BLOCK).unwrap();
        let mut removed = Vec::new();
        map.splice(range.clone(), new, &mut removed).unwrap();
        map.place_new(|| {
            self.store.next += 1;
            Some(VolBlock(self.store.next))
        })
        .unwrap();
        for (id, home) in map.changed() {
            match home {
                NodeLocation::Root => map.encode(id, &mut self.root),
                NodeLocation::Block(at) => map.encode(id, self.store.blocks.get_mut(&at.0).unwrap()),
                NodeLocation::Fresh(at) => {
                    let bytes = self.store.blocks.entry(at.0).or_insert_with(|| std::vec![0; 16]);
                    map.encode(id, bytes);
                }
                NodeLocation::New | NodeLocation::Gone => panic!("{home:?} is not written"),
            }
        }
        for block in map.freed() {
            assert!(self.store.blocks.remove(&block.0).is_some(), "freed once");
        }
        let blocks = |list: &[Mapping]| -> BTreeMap<u32, u64> {
            let each = |m: Mapping| (0..m.len).map(move |n| (m.start + n, m.place.0 + u64::from(n)));
            list.iter().copied().flat_map(each).collect()
        };
        let keys: Vec<u32> = self.model.keys().copied().filter(|&at| range.contains(&at.into())).collect();
        let gone: BTreeMap<_, _> = keys.iter().map(|at| (*at, self.model.remove(at).unwrap())).collect();
        assert_eq!(blocks(&removed), gone);
        self.model.extend(blocks(new));
        self.check();
    }

    fn check(&self) {
        for at in 0..END {
            let found = self.look(|map| map.first_in(&(at.into()..u64::from(at) + 1)));
            assert_eq!(found.map(|mapping| mapping.place.0), self.model.get(&at).copied(), "block {at}");
        }
        // Exactly the needed indirect blocks exist.
        let mut needed = BTreeSet::new();
        for at in self.model.keys() {
            let path = find_path(FileBlock(*at), PER_BLOCK.into()).unwrap();
            for level in 1..=path.levels {
                needed.insert((path.root, level, path.inside / u64::from(PER_BLOCK).pow(level)));
            }
        }
        assert_eq!(self.store.blocks.len(), needed.len());
    }
}

fn at(start: u32, len: u32, place: u64) -> Mapping {
    Mapping { start, len, place: VolBlock(place), state: ExtentState::Written }
}

#[test]
fn nothing_is_mapped_past_three_levels() {
    let file = File::new();
    file.look(|map| {
        assert_eq!(map.end(), u64::from(END));
        let past = map.splice(95..97, &[at(95, 2, 500)], &mut Vec::new());
        assert_eq!(past, Err(Error::FileTooBig));
        map.splice(90..1 << 32, &[], &mut Vec::new())
    });
}

#[test]
fn the_last_mappings_of_a_range_come_in_steps() {
    let mut file = File::new();
    for n in (0..END).step_by(3) {
        file.splice(n.into()..u64::from(n + 2), &[at(n, 2, 500 + 5 * u64::from(n))]);
    }
    let (mut end, mut total) = (1 << 32, 0);
    while end > 5 {
        let (list, from) = file.look(|map| map.last_in(&(5..end), 2));
        assert!(list.len() <= 2 && from < end, "{from} of {end}");
        total += list.iter().map(|mapping| mapping.len).sum::<u32>();
        end = from;
    }
    assert_eq!(total, 60);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_leave_the_map_as_the_model_says(
        steps in prop::collection::vec((0..END, 1..30_u32, 0..3_u64), 1..60)
    ) {
        let mut file = File::new();
        for (start, len, shift) in steps {
            let len = len.min(END - start);
            let new = at(start, len, 10_000 * shift + u64::from(start));
            file.splice(new.range(), if shift == 0 { &[] } else { core::slice::from_ref(&new) });
        }
    }
}
