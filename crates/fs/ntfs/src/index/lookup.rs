//! Finding a name in a directory.

use core::cmp::Ordering;

use obento_base::{Error, Result};

use super::list::is_system;
use super::{Entry, Index, Node};
use crate::attribute::name::FileName;
use crate::driver::volume::Volume;
use crate::layout::bytes::units;

/// No tree of 2^48 names is deeper.
const DEPTH_MAX: u32 = 32;

/// The best entry for a name so far: one that differs in case, or is a short name.
#[derive(Default)]
struct Best {
    reference: Option<u64>,
    is_short: bool,
}

impl Best {
    fn offer(&mut self, entry: &Entry<'_>, is_short: bool) {
        if self.reference.is_none() || (self.is_short && !is_short) {
            (self.reference, self.is_short) = (Some(entry.raw.reference.get()), is_short);
        }
    }
}

/// The result of looking at a node.
enum Step {
    Found(u64),
    Child(u64),
    End,
}

impl Index {
    /// Returns the reference that a name in UTF-16 has. A name that differs in case only is found if no other is the
    /// same.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the directory has no such name.
    /// - `Corrupt`: the directory is damaged and the rest of it has no such name.
    pub fn find(&self, volume: &Volume, name: &[u16]) -> Result<u64> {
        match self.descend(volume, name) {
            Err(error) if error.is_damage() => self.scan(volume, name, error),
            found => found,
        }
    }

    fn descend(&self, volume: &Volume, name: &[u16]) -> Result<u64> {
        let (mut node, mut best) = (self.root.clone(), Best::default());
        for _ in 0..DEPTH_MAX {
            match self.step(volume, &node, name, &mut best)? {
                Step::Found(reference) => return Ok(reference),
                Step::End => return best.reference.ok_or(Error::NotFound),
                Step::Child(vcn) => {
                    let block = self.block_of(volume, vcn);
                    let block = block.ok_or_else(|| self.field(volume, node.offset, "ChildBlock", 0, vcn))?;
                    node = self.node(volume, block)?;
                }
            }
        }
        Err(self.field(volume, node.offset, "Depth", 0, DEPTH_MAX.into()))
    }

    fn step(&self, volume: &Volume, node: &Node, name: &[u16], best: &mut Best) -> Result<Step> {
        let on = |child: Option<u64>| child.map_or(Step::End, Step::Child);
        for entry in node.entries() {
            let entry = entry.map_err(|at| self.field(volume, node.offset, "IndexEntry", at, 0))?;
            if entry.is_last() {
                return Ok(on(entry.child));
            }
            let key = FileName::decode(entry.key);
            let key = key.ok_or_else(|| self.field(volume, node.offset, "FileName", entry.offset, 0))?;
            let wanted = name.iter().copied();
            let order = volume.up_case().compare(wanted.clone(), units(key.name));
            if order == Ordering::Equal && !is_system(&entry) {
                best.offer(&entry, key.is_short());
            }
            match order.then_with(|| wanted.cmp(units(key.name))) {
                Ordering::Equal if is_system(&entry) => return Err(Error::NotFound),
                Ordering::Equal => return Ok(Step::Found(entry.raw.reference.get())),
                Ordering::Less => return Ok(on(entry.child)),
                Ordering::Greater => {}
            }
        }
        // A node without its last entry.
        Err(self.field(volume, node.offset, "LastEntry", 0, 0))
    }

    /// Looks at all entries, for a directory whose tree leads nowhere.
    fn scan(&self, volume: &Volume, name: &[u16], damage: Error) -> Result<u64> {
        let mut best = Best::default();
        for number in 0..=self.blocks() {
            let node = match number.checked_sub(1) {
                None => Ok(self.root.clone()),
                Some(block) if self.is_used(block) => self.node(volume, block),
                Some(_) => continue,
            };
            let Ok(node) = node else { continue };
            for entry in
                node.entries().map_while(Result::ok).filter(|entry| !entry.is_last() && !is_system(entry))
            {
                let Some(key) = FileName::decode(entry.key) else { continue };
                if units(key.name).eq(name.iter().copied()) {
                    return Ok(entry.raw.reference.get());
                }
                if volume.up_case().compare(name.iter().copied(), units(key.name)) == Ordering::Equal {
                    best.offer(&entry, key.is_short());
                }
            }
        }
        best.reference.ok_or(damage)
    }
}
