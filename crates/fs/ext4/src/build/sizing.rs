//! Finding a volume in which a tree fits.
//!
//! The size of a volume's own metadata depends on the size of the volume, and the other way round. Increasing sizes
//! are therefore drafted, starting with one that is too small, until the free space suffices.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_driver::tree::Node;
use obento_driver::{BuildError, BuildOptions, FormatError, FormatNotice, FreeSpace, Tree};

use super::emit::Emit;
use super::layout::Layout;
use super::needs::Needs;
use super::received::Received;
use super::volume_plan::VolumePlan;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::format::{
    Draft, Geometry, Identity, JournalRoom, RequestedSettings, Root, TYPES, describe, identity,
};
use crate::quota::{Entries, entry};
use crate::size::BlockSize;

/// Default block size for volumes of all sizes: the page size of nearly all machines.
const BLOCK: BlockSize = BlockSize::USUAL;
/// More attempts than any tree needs.
const TRIES: u32 = 1000;
/// Size of the smallest journal in blocks.
const LEAST_JOURNAL: u64 = 1024;
/// The size with which a search begins, in addition to the needs of the tree.
const LEAST: u64 = 16;
const START: u64 = 256;
/// Maximum difference in bytes between a reported size that suffices and the smallest one, except for a small
/// fraction.
const NEAR: u64 = 64 << 10;
/// Maximum and minimum size of a volume whose files come first, for which space is reserved, as powers of two.
/// Descriptors for 1 TiB take half a MiB.
const MOST_LOG: u32 = 40;
const LEAST_LOG: u32 = 24;
/// Maximum size that is tried, in bytes.
const LONGEST: u64 = 1 << 44;
/// Descriptors take at most this fraction of a group if they are reserved before their number is known.
const KEPT_PART: u64 = 16;

/// Plans a volume for `tree` around the `received` files. For errors see [`obento_driver::Build::plan`].
pub(super) fn plan<'t>(
    tree: &'t Tree,
    options: &BuildOptions,
    received: Option<&Received>,
) -> Result<VolumePlan<'t>, BuildError> {
    let search = Search::new(tree, options, received)?;
    match options.format.len {
        Some(len) => search.in_length(len),
        None => search.for_length(),
    }
}

/// Begins a volume whose files come first. The places of all structures with a fixed place stay free, for any length.
/// Returns `None` if that needs a feature that is disabled. Fails with the error of an invalid option.
pub(super) fn receive(options: &BuildOptions) -> Result<Option<Received>, BuildError> {
    let wishes = wishes(options)?;
    let identity = identity(&options.format, &wishes, &mut Vec::new());
    if let Some(len) = options.format.len {
        let Ok(geometry) = Geometry::new(&wishes, len, false, &mut Vec::new()) else { return Ok(None) };
        let draft = Draft::new(&geometry, &wishes, &identity)?;
        return Ok(Some(Received::new(draft, Some(geometry.inode_table_blocks))));
    }
    if options.room == FreeSpace::Least {
        // Reserved space that is not needed may stay empty.
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

/// Plans a volume of `len` bytes as if the `received` files came now. Fails in the same cases as [`plan`].
fn receive_again<'t>(
    tree: &'t Tree,
    options: &BuildOptions,
    received: &Received,
    len: u64,
) -> Result<VolumePlan<'t>, BuildError> {
    let mut options = options.clone();
    options.format.len = Some(len);
    let mut again = receive(&options)?.ok_or(BuildError::TooSmall { len, needed: len })?;
    again.receive_again(received, tree)?;
    Search::new(tree, &options, Some(&again))?.fit(len)
}

/// Returns the requested settings.
fn wishes(options: &BuildOptions) -> Result<RequestedSettings, BuildError> {
    let mut wishes = RequestedSettings::new(&options.format)?;
    refuse(&wishes)?;
    wishes.block_size.get_or_insert(BLOCK);
    // At the front, where it divides no file.
    wishes.journal_location.get_or_insert_with(|| "0".to_string());
    wishes.journal_room = JournalRoom::All;
    if options.room == FreeSpace::Least {
        wishes.features.compat.remove(Compat::RESIZE_INODE);
        if wishes.features.has(Compat::HAS_JOURNAL) && wishes.journal_size.is_none() {
            wishes.journal_size = Some(wishes.block_size.unwrap_or(BLOCK).len(LEAST_JOURNAL));
        }
    }
    let is_reserve_given = options.format.settings.iter().any(|(name, _)| name == "reserved_percent");
    if options.format.len.is_none() && !is_reserve_given {
        wishes.reserved = 0;
    }
    wishes.settle(&options.format)?;
    Ok(wishes)
}

/// Refuses settings that are impossible for a volume with a tree.
fn refuse(wishes: &RequestedSettings) -> Result<(), FormatError> {
    if wishes.features.needs(Incompat::JOURNAL_DEV) {
        return Err(FormatError::Excludes { what: "journal_dev", other: "files" });
    }
    Ok(())
}

struct Search<'t, 'o> {
    tree: &'t Tree,
    options: &'o BuildOptions,
    received: Option<&'o Received>,
    wishes: RequestedSettings,
    identity: Identity,
    notices: Vec<FormatNotice>,
    /// Set when the super block exists.
    needs: Option<Needs>,
}

/// A volume without the tree.
struct EmptyVolume {
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
        // Structures without a fixed place fit between the files.
        wishes.packed |= received.is_some() && wishes.features.needs(Incompat::FLEX_BG);
        let mut notices = Vec::new();
        let identity = identity(&options.format, &wishes, &mut notices);
        Ok(Self { tree, options, received, wishes, identity, notices, needs: None })
    }

    /// Plans a volume of the given length. Fails with `TooSmall`, which contains a length that suffices.
    fn in_length(mut self, len: u64) -> Result<VolumePlan<'t>, BuildError> {
        let has_inode_wish = self.has_inode_wish();
        let full = match self.fit(len) {
            // The number of inodes is given, and another length does not help.
            Err(
                error @ BuildError::Format(FormatError::TooMany { .. } | FormatError::TooFewInodes { .. }),
            ) if has_inode_wish => {
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

    /// Tries the default number of inodes, then a quarter more than needed, then exactly the needed number.
    fn fit(&mut self, len: u64) -> Result<VolumePlan<'t>, BuildError> {
        type Attempt = fn(u32) -> Option<u32>;
        let asked = self.wishes.inodes;
        let attempts: &[Attempt] = &[|_| None, |least| Some(least.saturating_add(least / 4)), Some];
        let attempts = if self.has_inode_wish() { attempts.get(..1).unwrap_or_default() } else { attempts };
        let mut full = self.full(len);
        for inodes in attempts {
            // The number of values in inodes of their own is known after the first attempt.
            self.wishes.inodes = inodes(self.least_inodes()).or(asked);
            match self.try_length(len) {
                Err(error) if is_full(&error) => full = error,
                done => return done,
            }
        }
        Err(full)
    }

    /// Returns a length that suffices if `len` does not, if one is found.
    fn needed(self, len: u64) -> Option<u64> {
        let Some(received) = self.received else {
            return self.for_length().ok().map(|plan| plan.draft.sb.volume_len());
        };
        // The received files get the places that they have in a longer volume.
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

    fn try_length(&mut self, len: u64) -> Result<VolumePlan<'t>, BuildError> {
        let draught = self.draft(len)?;
        match self.missing(&draught, FreeSpace::Free(0))? {
            (0, 0) => self.lay_out(draught),
            (0, more) => Err(too_few_inodes(&draught, more)),
            _ => Err(self.full(len)),
        }
    }

    fn has_inode_wish(&self) -> bool {
        self.wishes.inodes.is_some() || self.wishes.inode_ratio.is_some()
    }

    /// Returns the number of inodes for the tree and for every volume.
    fn least_inodes(&self) -> u32 {
        let values = self.needs.as_ref().map_or(0, |needs| needs.values.len());
        let values = u32::try_from(values).unwrap_or(u32::MAX);
        self.tree.len().saturating_add(crate::format::FIRST_INO).saturating_add(2).saturating_add(values)
    }

    fn full(&self, len: u64) -> BuildError {
        BuildError::TooSmall { len, needed: len }
    }

    /// Plans the smallest volume with the requested free space.
    fn for_length(mut self) -> Result<VolumePlan<'t>, BuildError> {
        let block = u64::from(self.wishes.block_size.unwrap_or(BLOCK));
        let is_given = self.options.format.len.is_some();
        let fixed_inodes = match is_given {
            // The number of inodes of an attempt is not a requested setting.
            true => {
                self.options.format.settings.iter().any(|(name, _)| name == "inodes" || name == "inode_ratio")
            }
            false => self.has_inode_wish(),
        };
        let room = if is_given { FreeSpace::Least } else { self.options.room };
        let mut inodes = self.least_inodes();
        if let FreeSpace::Free(percent) = room {
            inodes = with_free(inodes.into(), percent).try_into().unwrap_or(u32::MAX);
        }
        let start = if room == FreeSpace::Least { LEAST } else { START };
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
                    return Err(too_few_inodes(&draught, more_inodes));
                }
                match self.lay_out(draught) {
                    Err(BuildError::Format(FormatError::TooSmall { .. })) => {
                        // The maps of files that metadata divides are larger.
                        blocks = blocks.saturating_add((blocks / 1000).max(1));
                        continue;
                    }
                    laid_out => return laid_out,
                }
            }
            // A last group that is too short is omitted, and would be again with a few more blocks.
            let least = if is_cut { 64 } else { u64::from(more > 0) };
            blocks = blocks.saturating_add(more.max(least));
        }
        Err(self.full(blocks.saturating_mul(block)))
    }

    /// Returns the draft of the shortest volume of at least `blocks` blocks that contains its own structures and the
    /// received files. `blocks` becomes its length.
    fn shortest_draft(&mut self, blocks: &mut u64, block: u64) -> Result<EmptyVolume, BuildError> {
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
        // The steps were large: search between the last two lengths.
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

    fn draft(&mut self, len: u64) -> Result<EmptyVolume, BuildError> {
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
        Ok(EmptyVolume { draft, notices, journal_blocks })
    }

    /// Returns the number of missing blocks and inodes.
    fn missing(&self, draught: &EmptyVolume, room: FreeSpace) -> Result<(u64, u32), BuildError> {
        let Some(needs) = &self.needs else { return Ok((0, 0)) };
        let sb = &draught.draft.sb;
        let (mut blocks, mut inodes) = (needs.blocks, u64::from(needs.inodes));
        if let FreeSpace::Free(percent) = room {
            blocks = blocks.saturating_add(share(sb.blocks_count, percent));
            inodes = inodes.saturating_add(share(sb.inodes_count.into(), percent));
        }
        let taken = draught.draft.space.count_in(0..sb.blocks_count);
        let free = sb.blocks_count.saturating_sub(sb.first_data_block.into()).saturating_sub(taken);
        let free_inodes: u64 = draught.draft.groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let missing = inodes.saturating_sub(free_inodes);
        Ok((blocks.saturating_sub(free), u32::try_from(missing).unwrap_or(u32::MAX)))
    }

    fn lay_out(&mut self, draught: EmptyVolume) -> Result<VolumePlan<'t>, BuildError> {
        let EmptyVolume { mut draft, notices, journal_blocks } = draught;
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
        Ok(VolumePlan { tree: self.tree, needs, draft, layout, formatted, journal })
    }
}

/// Returns the usage of users, groups and projects from `files`, each with the number of its inodes and bytes.
fn owners_of<'n>(files: impl Iterator<Item = (&'n Node, u64, u64)>) -> [Entries; 3] {
    let mut all = <[Entries; 3]>::default();
    for (node, inodes, bytes) in files {
        // Sources contain no projects.
        for (entries, id) in all.iter_mut().zip([node.attr.uid, node.attr.gid, 0]) {
            entries.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
        }
    }
    all
}

/// Returns whether a volume of `blocks` blocks is too short for its own structures.
fn is_too_short(error: &BuildError, blocks: u64) -> bool {
    match error {
        BuildError::Format(
            FormatError::TooSmall { .. } | FormatError::TooMany { .. } | FormatError::TooFewInodes { .. },
        ) => true,
        BuildError::Format(FormatError::BadValue { name: "journal_size", .. }) => blocks < 64 * LEAST_JOURNAL,
        _ => false,
    }
}

/// Returns the error of a volume that lacks `more` inodes.
fn too_few_inodes(draught: &EmptyVolume, more: u32) -> BuildError {
    let found = u64::from(draught.draft.sb.inodes_count);
    FormatError::TooFewInodes { found, needed: found.saturating_add(more.into()) }.into()
}

/// Returns whether a larger volume could help.
fn is_full(error: &BuildError) -> bool {
    matches!(
        error,
        BuildError::TooSmall { .. }
            | BuildError::Format(
                FormatError::TooSmall { .. } | FormatError::TooMany { .. } | FormatError::TooFewInodes { .. }
            )
    )
}

/// Returns `percent` hundredths of `whole`.
fn share(whole: u64, percent: u8) -> u64 {
    whole.saturating_mul(percent.into()) / 100
}

/// Returns the total of which `percent` per cent are free if `used` is used.
fn with_free(used: u64, percent: u8) -> u64 {
    let left = 100_u64.saturating_sub(percent.into()).max(1);
    used.saturating_mul(100).div_ceil(left)
}
