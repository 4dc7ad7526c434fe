//! Pass 1, extended attributes: of an inode, and of the blocks that inodes share.
//!
//! Invariant: each block is checked once, attributed to the inode with the lowest number that refers to it, and its
//! users are counted afterwards, so that threads make no difference.
//! Source: e2fsprogs `e2fsck/pass1.c` `check_ea_in_inode`, `check_ext_attr`, `check_large_ea_inode`,
//! `adjust_extattr_refcount`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, IntoBytes, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Structure};

use super::events::EventSink;
use super::inode_check::{InodeCheck, Mode};
use super::issue::Issue;
use super::part::{Attributes, Holder, ValueUse};
use super::reason::{VolumeFeature, WrongField};
use super::state::{CheckState, Marks};
use super::view::View;
use crate::checksum::Crc;
use crate::feature::{Compat, Incompat};
use crate::raw::{RawInode, RawXattrHeader};
use crate::unit::VolBlock;
use crate::xattr::{AttributeArea, AttributeEntry, MAGIC, VALUE_MAX, entry_hash, signed_entry_hash, words};

/// Maximum number of sizes of a value that are tried. Without damage, all its attributes contain the same size.
const MAX_SIZES: usize = 4;

/// The place of the first error in a table of attributes.
struct Wrong {
    name: Vec<u8>,
    why: &'static str,
}

/// Checks the entries of `area`. Passes values in inodes to `value`, which returns whether their users count the
/// clusters of the value. Returns the number of these clusters.
fn table(
    view: &View,
    area: &AttributeArea<'_>,
    in_block: bool,
    value: &mut dyn FnMut(ValueUse) -> bool,
) -> Result<u64, Result<Wrong, Error>> {
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let mut clusters = 0_u64;
    let mut end = area.table;
    for entry in area.entries() {
        let entry = entry.map_err(Err)?;
        let wrong = |why| Ok(Wrong { name: entry.name.to_vec(), why });
        let len = usize::from(entry.raw.e_name_len).next_multiple_of(4).saturating_add(16);
        end = entry.offset.saturating_add(len);
        taken.push((entry.offset, end));
        if in_block && entry.raw.e_name_index == 0 {
            return Err(wrong("the name space is 0"));
        }
        match entry.raw.e_value_inum.get() {
            0 => {
                let range = value_range(&entry);
                let bytes =
                    area.bytes.get(range.0..range.1).ok_or_else(|| wrong("the value is out of range"))?;
                if !bytes.is_empty() {
                    taken.push((range.0, range.0.saturating_add(bytes.len().next_multiple_of(4))));
                }
                if !is_hash_right(&entry, bytes, in_block) {
                    return Err(wrong("the hash is wrong"));
                }
            }
            inum => {
                let size = entry.raw.e_value_size.get();
                let cluster = view.sb.cluster.len(view.sb.block_size.into());
                // The hash of a value is the last word of the entry's hash.
                let zero = || core::iter::once(0);
                let names = [entry_hash(entry.name, zero()), signed_entry_hash(entry.name, zero())];
                let hashes = names.map(|name| name ^ entry.raw.e_hash.get());
                let owner = u32::try_from(area.ino.0).unwrap_or(0);
                let block = if in_block { area.block } else { 0 };
                if value(ValueUse { value: inum, owner, block, hashes, size }) {
                    clusters = clusters.saturating_add(u64::from(size).div_ceil(cluster.max(1)));
                }
            }
        }
    }
    taken.push((end, end.saturating_add(4)));
    taken.sort_unstable();
    let overlap = taken.iter().zip(taken.iter().skip(1)).any(|(one, next)| one.1 > next.0);
    if overlap {
        return Err(Ok(Wrong { name: Vec::new(), why: "two values overlap" }));
    }
    Ok(clusters)
}

fn value_range(entry: &AttributeEntry<'_>) -> (usize, usize) {
    let start = usize::from(entry.raw.e_value_offs.get());
    let size = to_usize(entry.raw.e_value_size.get().into());
    if size == 0 { (0, 0) } else { (start, start.saturating_add(size)) }
}

fn is_hash_right(entry: &AttributeEntry<'_>, value: &[u8], in_block: bool) -> bool {
    let found = entry.raw.e_hash.get();
    // Attributes in inodes had no hash for a long time.
    !in_block && found == 0
        || found == entry_hash(entry.name, words(value))
        || found == signed_entry_hash(entry.name, words(value))
}

impl InodeCheck<'_> {
    /// Checks the attributes in the inode, which begin at byte `start` of its record. Returns the number of clusters
    /// of values in inodes.
    pub(super) fn attributes_inside(&mut self, start: usize) -> u64 {
        let record = self.record;
        let Some((magic, bytes)) = record.get(start..).and_then(|rest| rest.split_first_chunk()) else {
            return 0;
        };
        if u32::from_le_bytes(*magic) != MAGIC {
            return 0;
        }
        let base = u32::try_from(start).unwrap_or(0).saturating_add(4);
        let area = AttributeArea { ino: Ino(self.ino.into()), block: self.place.0, base, bytes, table: 0 };
        let (ino, mut values) = (self.ino, Vec::new());
        let result = table(self.view, &area, false, &mut |user| {
            values.push(user);
            !self.is_of_lustre(&user)
        });
        self.values = self.values.saturating_add(to_u64(values.len()));
        self.part.attributes.values.extend(values);
        match result {
            Ok(clusters) => clusters,
            Err(Ok(Wrong { name, why })) => {
                self.emit(Issue::XattrEntry { ino, block: 0, name, why });
                0
            }
            Err(Err(why)) => {
                self.emit(Issue::Xattr { ino, why });
                0
            }
        }
    }

    /// Records the block of attributes. Returns the number of clusters of the block and of the values that it refers
    /// to.
    pub(super) fn attributes_block(&mut self, block: u64) -> u64 {
        let sb = &self.view.sb;
        if block == 0 {
            return 0;
        }
        let on_volume = block >= sb.first_data_block.into() && block < sb.blocks_count;
        if !sb.compat.contains(Compat::EXT_ATTR) || !on_volume {
            // e2fsck ignores it in the format's own files, but a change of the size moves it.
            self.report_bad(Issue::InodeField { ino: self.ino, field: WrongField::Attributes, found: block });
            return 0;
        }
        if self.mode == Mode::Claim {
            self.part.attributes.blocks.push((block, self.ino));
        } else {
            self.claim(0, block, 1);
        }
        let mut clusters = 1_u64;
        if sb.incompat.contains(Incompat::EA_INODE)
            && let Ok(bytes) = self.view.read(VolBlock(block), 1)
        {
            let mut values = 0_u64;
            let more = table(self.view, &in_block(self.ino, block, &bytes), true, &mut |user| {
                values = values.saturating_add(1);
                !self.is_of_lustre(&user)
            });
            self.values = self.values.saturating_add(values);
            clusters = clusters.saturating_add(more.unwrap_or(0));
        }
        clusters
    }

    /// Returns whether the inode of a value is one of Lustre, which has no hash: it contains the number and the
    /// generation of its owner. It is counted only by itself.
    fn is_of_lustre(&self, user: &ValueUse) -> bool {
        let Some((record, _)) = self.view.record(user.value) else { return false };
        let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return false };
        let names_owner =
            raw.i_mtime.get() == self.ino && raw.i_generation.get() == self.raw.i_generation.get();
        names_owner && !user.hashes.contains(&raw.i_atime.get())
    }
}

pub(super) fn in_block(ino: u32, block: u64, bytes: &[u8]) -> AttributeArea<'_> {
    AttributeArea { ino: Ino(ino.into()), block, base: 0, bytes, table: size_of::<RawXattrHeader>() }
}

/// Checks every block of attributes, and counts its users and the users of every value.
pub(super) fn shared(
    view: &View,
    state: &mut CheckState,
    attributes: &mut Attributes,
    reported: &mut EventSink<'_>,
) {
    attributes.blocks.sort_unstable();
    for users in attributes.blocks.chunk_by(|one, next| one.0 == next.0) {
        let Some(&(block, ino)) = users.first() else { continue };
        state.claim(VolBlock(block), 1);
        let bytes = match view.read(VolBlock(block), 1) {
            Ok(bytes) => bytes,
            Err(why) => {
                reported.found(Issue::XattrBlock { ino, block, why });
                continue;
            }
        };
        if let Err(why) = header(view, ino, block, &bytes) {
            reported.found(Issue::XattrBlock { ino, block, why });
            continue;
        }
        let mut named = Vec::new();
        match table(view, &in_block(ino, block, &bytes), true, &mut |user| {
            named.push(user);
            true
        }) {
            Ok(_) => {}
            Err(Ok(Wrong { name, why })) => reported.found(Issue::XattrEntry { ino, block, name, why }),
            Err(Err(why)) => reported.found(Issue::XattrBlock { ino, block, why }),
        }
        attributes.values.extend(named);
        let found = RawXattrHeader::ref_from_prefix(&bytes).map_or(0, |(header, _)| header.h_refcount.get());
        let expected = u32::try_from(users.len()).unwrap_or(u32::MAX);
        if found != expected {
            reported.found(Issue::XattrUsers { block, found, expected });
        }
    }
    values(view, state, attributes, reported);
}

/// Returns the error in the header of a block.
fn header(view: &View, ino: u32, block: u64, bytes: &[u8]) -> Result<(), Error> {
    let structure = Structure::Xattr(Ino(ino.into()));
    let truncated = Corrupt::Truncated { structure, block, offset: 0, len: 32 };
    let (header, rest) = RawXattrHeader::ref_from_prefix(bytes).map_err(|_| truncated)?;
    if header.h_magic.get() != MAGIC {
        let (found, expected) = (header.h_magic.get().into(), MAGIC.into());
        return Err(Corrupt::Magic { structure, block, found, expected }.into());
    }
    if header.h_blocks.get() != 1 {
        let found = header.h_blocks.get().into();
        return Err(Corrupt::Field { structure, field: "h_blocks", block, offset: 8, found }.into());
    }
    if !view.sb.has_metadata_csum() {
        return Ok(());
    }
    let blank = RawXattrHeader { h_checksum: 0.into(), ..*header };
    let crc = Crc::new(view.sb.checksum_seed).add(&block.to_le_bytes()).add(blank.as_bytes());
    let (found, expected) = (header.h_checksum.get(), crc.add(rest).get());
    if found == expected {
        Ok(())
    } else {
        Err(Corrupt::Checksum { structure, block, found, expected }.into())
    }
}

/// Checks that every value is in an inode for values, with the right reference count. An inode with the flag of
/// values that no attribute confirms may be a file, which its names show.
fn values(view: &View, state: &mut CheckState, attributes: &mut Attributes, reported: &mut EventSink<'_>) {
    attributes.values.sort_unstable();
    attributes.holders.sort_unstable_by_key(|holder| holder.ino);
    let mut known = BTreeSet::new();
    for users in attributes.values.chunk_by(|one, next| one.value == next.value) {
        let Some(&ValueUse { value, .. }) = users.first() else { continue };
        let holder = attributes.holders.binary_search_by_key(&value, |holder| holder.ino);
        let holder = holder.ok().and_then(|at| attributes.holders.get(at));
        let slot = state.slot(value).filter(|slot| slot.is_used() && slot.marks.contains(Marks::VALUE));
        let (Some(holder), Some(slot)) = (holder, slot) else {
            for user in users {
                reported.found(Issue::XattrInode { ino: user.owner, value });
            }
            continue;
        };
        let hash = value_hash(view, state, holder, holder.size);
        if let Some(expected) = size_by_hash(view, state, holder, users, hash) {
            slot.add_name();
            known.insert(value);
            reported.found(Issue::ValueSize { ino: value, found: holder.size, expected });
            continue;
        }
        let issues = value_issues(holder, users, hash);
        if is_named_by(holder, users, hash) {
            slot.add_name();
            known.insert(value);
            issues.into_iter().for_each(|issue| reported.found(issue));
        } else {
            attributes.doubtful.insert(value, issues);
        }
    }
    if !known.is_empty() && !view.sb.incompat.contains(Incompat::EA_INODE) {
        let why = "it is not set, but values of attributes are in inodes";
        reported.found(Issue::Feature { feature: VolumeFeature::AttributeInodes, why });
    }
    for holder in attributes.holders.iter().filter(|holder| !known.contains(&holder.ino)) {
        state.doubt_value(holder.ino);
    }
}

/// Returns whether an inode is what its attributes claim: two of the three hashes agree (the one in the inode, those
/// of the attributes, and `hash`, that of the contents), or it is a value of Lustre.
fn is_named_by(holder: &Holder, users: &[ValueUse], hash: Option<u32>) -> bool {
    let goes_by = |user: &ValueUse| {
        user.hashes.contains(&holder.hash) || hash.is_some_and(|hash| user.hashes.contains(&hash))
    };
    hash == Some(holder.hash) || users.iter().any(|user| user.owner == holder.parent || goes_by(user))
}

/// Returns the issues of the reference count and the hash in the inode of a value, and of the hashes in its
/// attributes, as `ext4_xattr_inode_verify_hashes` requires.
fn value_issues(holder: &Holder, users: &[ValueUse], hash: Option<u32>) -> Vec<Issue> {
    let mut issues = Vec::new();
    let expected = to_u64(users.len());
    if holder.users != expected && users.first().is_some_and(|user| user.owner != holder.parent) {
        issues.push(Issue::ValueUsers { ino: holder.ino, found: holder.users, expected });
    }
    for user in each_place(users.iter().filter(|user| u64::from(user.size) != holder.size)) {
        // A size that is impossible for an attribute is not changed.
        if let Some(expected) = u32::try_from(holder.size).ok().filter(|size| (1..=VALUE_MAX).contains(size))
        {
            let &ValueUse { value, owner: ino, block, size: found, .. } = user;
            issues.push(Issue::XattrValueSize { ino, block, value, found, expected });
        }
    }
    let goes_by = |user: &ValueUse, hash: u32| user.hashes.contains(&hash);
    let is_lustre = |user: &&ValueUse| holder.parent == user.owner && !goes_by(user, holder.hash);
    let Some(expected) = hash else { return issues };
    if users.iter().all(|user| is_lustre(&user) && !goes_by(user, expected)) {
        return issues;
    }
    if holder.hash != expected {
        issues.push(Issue::ValueHash { ino: holder.ino, found: holder.hash, expected });
    }
    let wrong = users.iter().filter(|user| !goes_by(user, expected) && !goes_by(user, holder.hash));
    for &ValueUse { value, owner: ino, block, hashes: [found, _], .. } in each_place(wrong) {
        issues.push(Issue::XattrValueHash { ino, block, value, found, expected });
    }
    issues
}

/// Returns the first use in each place.
fn each_place<'a>(users: impl Iterator<Item = &'a ValueUse>) -> Vec<&'a ValueUse> {
    let mut places = BTreeSet::new();
    users.filter(|user| places.insert((user.owner, user.block))).collect()
}

/// Returns the size in an attribute, if the contents of that size have the hash in the inode, and those of the
/// inode's own size do not.
fn size_by_hash(
    view: &View,
    state: &CheckState,
    holder: &Holder,
    users: &[ValueUse],
    hash: Option<u32>,
) -> Option<u64> {
    let mut sizes: Vec<u64> = users.iter().map(|user| user.size.into()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|&size| size != 0 && size != holder.size && hash != Some(holder.hash));
    sizes.into_iter().take(MAX_SIZES).find(|&size| value_hash(view, state, holder, size) == Some(holder.hash))
}

/// Returns the hash of the first `size` bytes of a value, or `None` if they cannot be read.
fn value_hash(view: &View, state: &CheckState, holder: &Holder, size: u64) -> Option<u32> {
    if size > VALUE_MAX.into() {
        return None;
    }
    let size = to_usize(size);
    let (_, runs) = super::inodes::runs(view, state, holder.ino)?;
    let (mut value, mut bytes) = (Vec::new(), Vec::new());
    for run in runs {
        let start = to_usize(run.at.saturating_mul(view.sb.block_size.into()));
        if start >= size {
            break;
        }
        value.resize(start.max(value.len()), 0);
        let blocks =
            to_u64(size.saturating_sub(start)).div_ceil(view.sb.block_size.into()).min(run.len.into());
        view.read_into(run.start, blocks, &mut bytes).ok()?;
        value.extend_from_slice(&bytes);
    }
    value.resize(size, 0);
    Some(Crc::new(view.sb.checksum_seed).add(&value).get())
}
