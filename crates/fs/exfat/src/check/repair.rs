//! Applying the edits that repair issues.
//!
//! Edits are made to sectors in memory, which are written when all edits are applied: directories and the FAT first,
//! then the bitmap. After an interruption, the next run repairs the rest.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_clusters::sectors::{self, Sectors};

use super::View;
use super::edit::Edit;
use crate::table::place;

/// Applies all edits. Fails if the device fails.
pub fn apply<'e>(view: &View, edits: impl Iterator<Item = &'e Edit>) -> Result<()> {
    let (mut first, mut bitmap): (Sectors, Sectors) = (BTreeMap::new(), BTreeMap::new());
    for edit in edits {
        match edit {
            Edit::Write(offset, bytes) => {
                let mut done = 0;
                while done < bytes.len() {
                    let at = offset.saturating_add(to_u64(done));
                    let (sector, within) = hold(view, &mut first, at)?;
                    let rest = bytes.get(done..).unwrap_or_default();
                    let target = sector.get_mut(within..).unwrap_or_default();
                    let len = target.len().min(rest.len()).max(1);
                    target.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                    done = done.saturating_add(len);
                }
            }
            Edit::Link(cluster, value) => {
                let (sector, within) = hold(view, &mut first, place(&view.sb, *cluster))?;
                let target = sector.get_mut(within..).unwrap_or_default();
                target.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            Edit::Mark(start, len, in_use) => {
                for bit in (u64::from(start.0.saturating_sub(2))..).take(to_usize((*len).into())) {
                    let Some(at) = super::bitmap::place_of(view, bit >> 3) else { break };
                    let (sector, within) = hold(view, &mut bitmap, at)?;
                    if let Some(byte) = sector.get_mut(within) {
                        let mask = 1 << (bit & 7);
                        *byte = if *in_use { *byte | mask } else { *byte & !mask };
                    }
                }
            }
        }
    }
    for sectors in [&first, &bitmap] {
        sectors::write(&view.cache, 0, sectors)?;
        view.device().flush()?;
        sectors.keys().for_each(|&number| view.cache.forget(number));
    }
    Ok(())
}

/// Returns the edited sector that contains `offset`, and the offset in it.
fn hold<'s>(view: &View, sectors: &'s mut Sectors, offset: u64) -> Result<(&'s mut Vec<u8>, usize)> {
    let size = u64::from(view.sb.sector_size);
    let number = offset.checked_div(size).unwrap_or(0);
    let within = to_usize(offset.checked_rem(size).unwrap_or(0));
    let sector = match sectors.entry(number) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(free) => free.insert(view.cache.get(number)?.to_vec()),
    };
    Ok((sector, within))
}
