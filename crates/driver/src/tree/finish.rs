//! Conversion of a tree under construction to a complete tree: sorting and numbering.
//!
//! Invariant: the order and the numbers of the nodes do not depend on the order in which the files were added.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use obento_base::wire::to_usize;

use super::builder::{NONE, TreeBuilder};
use super::{Body, Child, Node, NodeId, Tree, XattrList, XattrsId};

impl TreeBuilder {
    /// Sorts and numbers the nodes. Nodes without a name are dropped.
    pub fn finish(self) -> Tree {
        let Self { mut texts, mut nodes, entries, by_name, mut holes, xattrs, known_xattrs, .. } = self;
        drop((by_name, known_xattrs));
        let mut children = Vec::with_capacity(entries.len());
        // The new number of each node, by its old number.
        let mut numbers = Vec::new();
        numbers.resize(nodes.len(), NONE);
        let mut count = 0_u32;
        let mut number = |numbers: &mut Vec<u32>, old: u32| {
            if let Some(slot) = numbers.get_mut(to_usize(old.into())).filter(|slot| **slot == NONE) {
                *slot = count;
                count = count.saturating_add(1);
            }
        };
        number(&mut numbers, 0);
        let mut waiting = Vec::from([0_u32]);
        let mut list = Vec::new();
        while let Some(dir) = waiting.pop() {
            list.clear();
            let mut at = nodes.get(to_usize(dir.into())).map_or(NONE, |node| node.extra);
            while let Some(entry) = entries.get(to_usize(at.into())) {
                if entry.node != NONE {
                    list.push(Child { name: entry.name, node: NodeId(entry.node) });
                }
                at = entry.next;
            }
            list.sort_unstable_by(|a, b| texts.get(a.name).cmp(texts.get(b.name)));
            list.iter().for_each(|child| number(&mut numbers, child.node.0));
            let kind = |child: &&Child| nodes.get(child.node.index()).map(|node| node.body);
            let below = list.iter().rev().filter(|child| kind(child) == Some(Body::Directory));
            let before = waiting.len();
            waiting.extend(below.map(|child| child.node.0));
            let directories = u32::try_from(waiting.len().saturating_sub(before)).unwrap_or(u32::MAX);
            let start = u32::try_from(children.len()).unwrap_or(u32::MAX);
            if let Some(node) = nodes.get_mut(to_usize(dir.into())) {
                (node.extra, node.count) = (start, u32::try_from(list.len()).unwrap_or(u32::MAX));
                node.links = directories;
            }
            children.extend_from_slice(&list);
        }
        drop(entries);
        for child in &mut children {
            child.node = NodeId(numbers.get(child.node.index()).copied().unwrap_or(NONE));
        }
        let holes_by_number = core::mem::take(&mut holes).into_iter().filter_map(|(id, ranges)| {
            let number = numbers.get(id.index()).copied().filter(|&number| number != NONE)?;
            Some((NodeId(number), ranges))
        });
        let holes: BTreeMap<_, _> = holes_by_number.collect();
        permute(&mut nodes, numbers, count);
        let xattrs = in_order_of_use(&mut nodes, xattrs);
        texts.shrink();
        Tree { texts, nodes, children, xattrs, holes }
    }
}

/// Returns the sets of extended attributes in the order of the first node that uses them, and renumbers
/// them.
fn in_order_of_use(nodes: &mut [Node], sets: Vec<XattrList>) -> Vec<XattrList> {
    // The new number of each set, once a node has used it.
    let mut numbers: Vec<Option<XattrsId>> = sets.iter().map(|_| None).collect();
    let mut sets: Vec<Option<XattrList>> = sets.into_iter().map(Some).collect();
    let mut used = Vec::new();
    for node in nodes {
        let Some(old) = node.attr.xattrs else { continue };
        let Some(number) = numbers.get_mut(old.index()) else { continue };
        if number.is_none()
            && let Some(set) = sets.get_mut(old.index()).and_then(Option::take)
        {
            used.push(set);
            *number = u32::try_from(used.len()).ok().and_then(NonZeroU32::new).map(XattrsId);
        }
        node.attr.xattrs = *number;
    }
    used
}

/// Moves each value to its number, and drops values without a number. Works in place, since the values are many.
fn permute<T>(values: &mut Vec<T>, mut numbers: Vec<u32>, count: u32) {
    let mut spare = count;
    for number in numbers.iter_mut().filter(|number| **number == NONE) {
        *number = spare;
        spare = spare.saturating_add(1);
    }
    for at in 0..values.len() {
        while let Some(to) =
            numbers.get(at).map(|&to| to_usize(to.into())).filter(|&to| to != at && to < values.len())
        {
            values.swap(at, to);
            numbers.swap(at, to);
        }
    }
    values.truncate(to_usize(count.into()));
    values.shrink_to_fit();
}
