//! A volume in which a tree fits.
//!
//! How much of a volume its own metadata takes follows from its size, and the other way about; so sizes are tried on paper,
//! from one that is too small upwards, until what is free suffices.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_driver::tree::Node;
use obento_driver::{BuildError, BuildOptions, FormatError, FormatNotice, Room, Tree};

use super::Plan;
use super::emit::Emit;
use super::layout::Layout;
use super::needs::Needs;
use super::received::Received;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::format::{Draft, Geometry, Identity, JournalRoom, Root, TYPES, Wishes, describe, identity};
use crate::quota::{Entries, entry};

/// Bytes a block, unless asked for otherwise: the size of a page nearly everywhere, however small the volume is.
const BLOCK: u32 = 4096;
/// More tries than any tree needs.
const TRIES: u32 = 1000;
/// Blocks of the smallest journal.
const LEAST_JOURNAL: u64 = 1024;
/// The size with which a search begins, besides what the tree takes: of the least volume, and of others.
const LEAST: u64 = 16;
const START: u64 = 256;
/// Bytes that a length that is told may be too long, but for a small part of it.
const NEAR: u64 = 64 << 10;
/// The longest volume of files that come first, and the shortest for which room is kept, as powers of two: descriptors of a
/// TiB are half a MiB.
const MOST_LOG: u32 = 40;
const LEAST_LOG: u32 = 24;
/// Longer volumes are not looked for, in bytes.
const LONGEST: u64 = 1 << 44;
/// Descriptors have at most one part in so many of a group that is kept for them before it is known how many there are.
const KEPT_PART: u64 = 16;

/// Plans a volume of `tree`, around what was `received`. Errors: see [`obento_driver::Build::plan`].
pub(super) fn plan<'t>(
    tree: &'t Tree,
    options: &BuildOptions,
    received: Option<&Received>,
) -> Result<Plan<'t>, BuildError> {
    let search = Search::new(tree, options, received)?;
    match options.format.len {
        Some(len) => search.in_length(len),
        None => search.for_length(),
    }
}

/// Begins a volume whose files come first: every place is kept free where a volume has something that has only this one,
/// however long it becomes. None where that takes what was asked to be left out. Errors: the option that cannot be.
pub(super) fn receive(options: &BuildOptions) -> Result<Option<Received>, BuildError> {
    let wishes = wishes(options)?;
    let identity = identity(&options.format, &wishes, &mut Vec::new());
    if let Some(len) = options.format.len {
        let Ok(geometry) = Geometry::new(&wishes, len, false, &mut Vec::new()) else { return Ok(None) };
        let draft = Draft::new(&geometry, &wishes, &identity)?;
        return Ok(Some(Received::new(draft, Some(geometry.inode_table_blocks))));
    }
    if options.room == Room::Least {
        // What is kept and not needed may stay empty.
        return Ok(None);
    }
    for log in (LEAST_LOG..=MOST_LOG).rev() {
        let len = 1_u64.checked_shl(log).unwrap_or(0);
        let Ok(geometry) = Geometry::new(&wishes, len, false, &mut Vec::new()) else { continue };
        let kept = u64::from(geometry.desc_blocks).saturating_add(geometry.reserved_gdt_blocks.into());
        let is_meta = geometry.features.needs(Incompat::META_BG);
        let is_usual = is_meta == wishes.features.needs(Incompat::META_BG);
        if is_usual && (is_meta || kept <= u64::from(geometry.blocks_per_group) / KEPT_PART) {
            let draft = Draft::new(&geometry, &wishes, &identity)?;
            return Ok(Some(Received::new(draft, None)));
        }
    }
    Ok(None)
}

/// Plans a volume of `len` bytes around what was `received`, as if it came now. Fails in the same cases as [`plan`].
fn receive_again<'t>(
    tree: &'t Tree,
    options: &BuildOptions,
    received: &Received,
    len: u64,
) -> Result<Plan<'t>, BuildError> {
    let mut options = options.clone();
    options.format.len = Some(len);
    let mut again = receive(&options)?.ok_or(BuildError::TooSmall { len, needed: len })?;
    again.receive_again(received, tree)?;
    Search::new(tree, &options, Some(&again))?.fit(len)
}

/// What is asked for.
fn wishes(options: &BuildOptions) -> Result<Wishes, BuildError> {
    let mut wishes = Wishes::new(&options.format)?;
    refuse(&wishes)?;
    wishes.block_size.get_or_insert(BLOCK);
    // At the front, where it breaks no file.
    wishes.journal_location.get_or_insert_with(|| "0".to_string());
    wishes.journal_room = JournalRoom::All;
    if options.room == Room::Least {
        wishes.features.compat.remove(Compat::RESIZE_INODE);
        if wishes.features.has(Compat::HAS_JOURNAL) && wishes.journal_size.is_none() {
            wishes.journal_size =
                Some(LEAST_JOURNAL.saturating_mul(wishes.block_size.unwrap_or(BLOCK).into()));
        }
    }
    let is_reserve_given = options.format.settings.iter().any(|(name, _)| name == "reserved_percent");
    if options.format.len.is_none() && !is_reserve_given {
        wishes.reserved = 0;
    }
    wishes.settle(&options.format)?;
    Ok(wishes)
}

/// Errors: what cannot have a tree in it.
fn refuse(wishes: &Wishes) -> Result<(), FormatError> {
    if wishes.features.needs(Incompat::JOURNAL_DEV) {
        return Err(FormatError::Excludes { what: "journal_dev", other: "files" });
    }
    Ok(())
}

struct Search<'t, 'o> {
    tree: &'t Tree,
    options: &'o BuildOptions,
    received: Option<&'o Received>,
    wishes: Wishes,
    identity: Identity,
    notices: Vec<FormatNotice>,
    /// Known once there is a super block.
    needs: Option<Needs>,
}

/// A volume without the tree.
struct Draught {
    draft: Draft,
    notices: Vec<FormatNotice>,
    journal_blocks: u64,
}

impl<'t, 'o> Search<'t, 'o> {
    fn new(
        tree: &'t Tree,
        options: &'o BuildOptions,
        received: Option<&'o Received>,
    ) -> Result<Self, BuildError> {
        let mut wishes = wishes(options)?;
        // What lies anywhere fits between files that are where they are.
        wishes.packed |= received.is_some() && wishes.features.needs(Incompat::FLEX_BG);
        let mut notices = Vec::new();
        let identity = identity(&options.format, &wishes, &mut notices);
        Ok(Self { tree, options, received, wishes, identity, notices, needs: None })
    }

    /// In a volume of a given length. Fails with `TooSmall`, with a length that suffices.
    fn in_length(mut self, len: u64) -> Result<Plan<'t>, BuildError> {
        let has_inode_wish = self.has_inode_wish();
        let full = match self.fit(len) {
            // Their number is given, and no length changes that.
            Err(error @ BuildError::Format(FormatError::TooMany { .. })) if has_inode_wish => {
                return Err(error);
            }
            Err(error) if is_full(&error) => error,
            done => return done,
        };
        match self.needed(len) {
            Some(needed) if needed > len => Err(BuildError::TooSmall { len, needed }),
            _ => Err(full),
        }
    }

    /// The same with as many inodes as it has by default, else with a quarter more than are needed, else with just those.
    fn fit(&mut self, len: u64) -> Result<Plan<'t>, BuildError> {
        type Attempt = fn(u32) -> Option<u32>;
        let asked = self.wishes.inodes;
        let attempts: &[Attempt] = &[|_| None, |least| Some(least.saturating_add(least / 4)), Some];
        let attempts = if self.has_inode_wish() { attempts.get(..1).unwrap_or_default() } else { attempts };
        let mut full = self.full(len);
        for inodes in attempts {
            // How many values have inodes of their own is known after the first.
            self.wishes.inodes = inodes(self.least_inodes()).or(asked);
            match self.try_length(len) {
                Err(error) if is_full(&error) => full = error,
                done => return done,
            }
        }
        Err(full)
    }

    /// A length that suffices where `len` does not, if one is found.
    fn needed(self, len: u64) -> Option<u64> {
        let Some(received) = self.received else {
            return self.for_length().ok().map(|plan| plan.draft.sb.volume_len());
        };
        // What comes again comes to lie as a longer volume has it.
        let fits = |len| receive_again(self.tree, self.options, received, len).is_ok();
        let (mut low, mut high) = (len, len.max(received.volume_end()));
        while !fits(high) {
            if high > LONGEST {
                return None;
            }
            (low, high) = (high, high.saturating_mul(2));
        }
        while high.saturating_sub(low) > (high / 256).max(NEAR) {
            let middle = low.midpoint(high);
            if fits(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    fn try_length(&mut self, len: u64) -> Result<Plan<'t>, BuildError> {
        let draught = self.draft(len)?;
        match self.missing(&draught, Room::Free(0))? {
            (0, 0) => self.lay_out(draught),
            (0, _) => Err(self.too_many(&draught).into()),
            _ => Err(self.full(len)),
        }
    }

    fn has_inode_wish(&self) -> bool {
        self.wishes.inodes.is_some() || self.wishes.inode_ratio.is_some()
    }

    /// Inodes for the tree, and for what every volume has.
    fn least_inodes(&self) -> u32 {
        let values = self.needs.as_ref().map_or(0, |needs| needs.values.len());
        let values = u32::try_from(values).unwrap_or(u32::MAX);
        self.tree.len().saturating_add(crate::format::FIRST_INO).saturating_add(2).saturating_add(values)
    }

    fn too_many(&self, draught: &Draught) -> FormatError {
        let (found, max) = (self.tree.len().into(), draught.draft.sb.inodes_count.into());
        FormatError::TooMany { what: "files", found, max }
    }

    fn full(&self, len: u64) -> BuildError {
        BuildError::TooSmall { len, needed: len }
    }

    /// In the smallest volume that has the room that is asked for.
    fn for_length(mut self) -> Result<Plan<'t>, BuildError> {
        let block = u64::from(self.wishes.block_size.unwrap_or(BLOCK));
        let is_given = self.options.format.len.is_some();
        let fixed_inodes = match is_given {
            // Those that were tried are not wishes.
            true => {
                self.options.format.settings.iter().any(|(name, _)| name == "inodes" || name == "inode_ratio")
            }
            false => self.has_inode_wish(),
        };
        let room = if is_given { Room::Least } else { self.options.room };
        let mut inodes = self.least_inodes();
        if let Room::Free(percent) = room {
            inodes = with_free(inodes.into(), percent).try_into().unwrap_or(u32::MAX);
        }
        let start = if room == Room::Least { LEAST } else { START };
        let mut blocks = start.max(self.received.map_or(0, Received::end));
        for _ in 0..TRIES {
            if !fixed_inodes {
                self.wishes.inodes = Some(inodes);
            }
            let draught = self.shortest_draft(&mut blocks, block)?;
            let (more, more_inodes) = self.missing(&draught, room)?;
            inodes = inodes.saturating_add(more_inodes);
            let is_cut = draught.draft.sb.blocks_count < blocks;
            if more == 0 && (more_inodes == 0 || fixed_inodes) {
                if more_inodes > 0 {
                    return Err(self.too_many(&draught).into());
                }
                match self.lay_out(draught) {
                    Err(BuildError::Format(FormatError::TooSmall { .. })) => {
                        // Files that are broken by metadata have longer maps.
                        blocks = blocks.saturating_add((blocks / 1000).max(1));
                        continue;
                    }
                    laid_out => return laid_out,
                }
            }
            // A last group that is too short is left out, and with a few blocks more it would be again.
            let least = if is_cut { 64 } else { u64::from(more > 0) };
            blocks = blocks.saturating_add(more.max(least));
        }
        Err(self.full(blocks.saturating_mul(block)))
    }

    /// The shortest volume of at least `blocks` blocks that holds its own parts and what was received; `blocks` becomes its length.
    fn shortest_draft(&mut self, blocks: &mut u64, block: u64) -> Result<Draught, BuildError> {
        let mut failed = None;
        let mut found = loop {
            match self.draft(blocks.saturating_mul(block)) {
                Ok(draught) => break draught,
                Err(error) if !is_too_short(&error, *blocks) => return Err(error),
                Err(error) if blocks.saturating_mul(block) > LONGEST => return Err(error),
                Err(_) => {}
            }
            failed = Some(*blocks);
            *blocks = blocks.saturating_add((*blocks / 8).max(64));
        };
        // The steps were long.
        while let Some(low) = failed
            && blocks.saturating_sub(low) > 1
        {
            let middle = low.midpoint(*blocks);
            match self.draft(middle.saturating_mul(block)) {
                Ok(draught) => (found, *blocks) = (draught, middle),
                Err(_) => failed = Some(middle),
            }
        }
        Ok(found)
    }

    fn draft(&mut self, len: u64) -> Result<Draught, BuildError> {
        let mut notices = self.notices.clone();
        let is_found = self.options.format.len.is_none();
        let geometry = Geometry::new(&self.wishes, len, false, &mut notices)?;
        let mut draft = Draft::new(&geometry, &self.wishes, &self.identity)?;
        if self.needs.is_none() {
            self.needs = Some(Needs::new(self.tree, &draft.sb, self.received)?);
        }
        if let Some(received) = self.received {
            received.take_from(&mut draft)?;
        }
        if draft.sb.ro_compat.contains(RoCompat::QUOTA) {
            draft.owners = owners_of(self.tree.nodes().map(|(_, node)| (node, 0, 0)));
        }
        let lost_and_found = self.needs.as_ref().is_some_and(|needs| needs.lost_and_found.is_some());
        let root = Root::Elsewhere { lost_and_found };
        let journal = self.options.format.journal.as_deref();
        let journal_blocks = draft.fill(&self.wishes, journal, root, &mut notices)?;
        if is_found {
            notices.retain(|notice| !matches!(notice, FormatNotice::Unused(_)));
        }
        Ok(Draught { draft, notices, journal_blocks })
    }

    /// Returns how many blocks and inodes more are needed.
    fn missing(&self, draught: &Draught, room: Room) -> Result<(u64, u32), BuildError> {
        let Some(needs) = &self.needs else { return Ok((0, 0)) };
        let sb = &draught.draft.sb;
        let (mut blocks, mut inodes) = (needs.blocks, u64::from(needs.inodes));
        if let Room::Free(percent) = room {
            blocks = blocks.saturating_add(share(sb.blocks_count, percent));
            inodes = inodes.saturating_add(share(sb.inodes_count.into(), percent));
        }
        let taken = draught.draft.space.count_in(0..sb.blocks_count);
        let free = sb.blocks_count.saturating_sub(sb.first_data_block.into()).saturating_sub(taken);
        let free_inodes: u64 = draught.draft.groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let missing = inodes.saturating_sub(free_inodes);
        Ok((blocks.saturating_sub(free), u32::try_from(missing).unwrap_or(u32::MAX)))
    }

    fn lay_out(&mut self, draught: Draught) -> Result<Plan<'t>, BuildError> {
        let Draught { mut draft, notices, journal_blocks } = draught;
        let mut needs = self.needs.take().ok_or(obento_base::Error::Invalid)?;
        let laid_out = Layout::new(self.tree, &needs, self.received, &mut draft);
        let layout = match laid_out {
            Ok(layout) => layout,
            Err(error) => {
                self.needs = Some(needs);
                return Err(error.into());
            }
        };
        needs.name_values(layout.value_ino(0));
        if draft.sb.ro_compat.contains(RoCompat::QUOTA) {
            let emit = Emit { tree: self.tree, needs: &needs, layout: &layout, draft: &draft };
            let owners = owners_of(emit.spaces());
            draft.count_owners(owners)?;
        }
        let fs_type =
            TYPES.iter().find(|name| **name == self.options.format.fs_type).copied().unwrap_or_default();
        let formatted = describe(&draft, fs_type, journal_blocks, notices);
        let journal = self.options.format.journal.clone();
        Ok(Plan { tree: self.tree, needs, draft, layout, formatted, journal })
    }
}

/// What users, groups and projects have of `files`, each with the inodes and the bytes that it takes.
fn owners_of<'n>(files: impl Iterator<Item = (&'n Node, u64, u64)>) -> [Entries; 3] {
    let mut all = <[Entries; 3]>::default();
    for (node, inodes, bytes) in files {
        // No source knows of projects.
        for (entries, id) in all.iter_mut().zip([node.attr.uid, node.attr.gid, 0]) {
            entries.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
        }
    }
    all
}

/// Returns whether a volume of `blocks` blocks is so short that not even its own parts fit.
fn is_too_short(error: &BuildError, blocks: u64) -> bool {
    match error {
        BuildError::Format(FormatError::TooSmall { .. } | FormatError::TooMany { .. }) => true,
        BuildError::Format(FormatError::BadValue { name: "journal_size", .. }) => blocks < 64 * LEAST_JOURNAL,
        _ => false,
    }
}

/// Returns whether a larger volume could help.
fn is_full(error: &BuildError) -> bool {
    matches!(
        error,
        BuildError::TooSmall { .. }
            | BuildError::Format(FormatError::TooSmall { .. } | FormatError::TooMany { .. })
    )
}

/// So many hundredths of `whole`.
fn share(whole: u64, percent: u8) -> u64 {
    whole.saturating_mul(percent.into()) / 100
}

/// A number of which `used` is what is left of hundredths.
fn with_free(used: u64, percent: u8) -> u64 {
    let left = 100_u64.saturating_sub(percent.into()).max(1);
    used.saturating_mul(100).div_ceil(left)
}
