//! The labels. The label of the root directory takes precedence, and the label of the boot sector is set to it.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;

use super::edit::Edit;
use super::issue::Issue;
use super::pass::Pass;
use super::tree::root_slots;
use super::view::View;
use crate::format::{NO_NAME, is_label};
use crate::inode::Kind;
use crate::super_block::Width;

/// Compares the labels. Fails with `NoMemory`, or if the device fails.
pub fn check(view: &View, pass: &mut Pass<'_>) -> Result<()> {
    let (signature, place): (u64, u64) =
        if view.sb.width == Width::Fat32 { (0x42, 0x47) } else { (0x26, 0x2b) };
    let has_label = view.bytes::<1>(signature)? == [0x29];
    // Without the name of the FAT type, these bytes are program code.
    if !has_label && view.bytes::<3>(place.saturating_add(11))? != *b"FAT" {
        return Ok(());
    }
    let to_boot = |label: [u8; 11]| {
        let copy = view.sb.backup.map(|sector| u64::from(sector).saturating_mul(view.sb.sector_size.into()));
        let starts = [Some(0), copy].into_iter().flatten();
        let write = |start: u64| {
            let place_of = |place: u64| start.saturating_add(place);
            [Edit::write(place_of(signature), &[0x29]), Edit::write(place_of(place), &label)]
        };
        starts.flat_map(write).collect::<Vec<_>>()
    };
    let slots = root_slots(view)?;
    let entries = slots.iter().take_while(|(_, raw)| raw.kind() != Kind::End);
    let entry =
        entries.filter(|(_, raw)| raw.kind() == Kind::Label).map(|&(offset, raw)| (offset, raw)).next();
    let mut root = entry.map_or(NO_NAME, |(_, raw)| raw.DIR_Name);
    if let Some(first @ &mut 0x05) = root.first_mut() {
        *first = 0xe5;
    }
    let boot = view.sb.label;
    if let Some((offset, _)) = entry.filter(|_| !is_label(&root)) {
        let mut edits = vec![Edit::write(offset, &[0xe5]), Edit::write(offset.saturating_add(0xb), &[0])];
        edits.extend(to_boot(NO_NAME));
        pass.found(Issue::Label { found: root.to_vec() }, edits);
    } else if boot != root || !has_label {
        pass.found(Issue::BootLabel { found: boot.to_vec(), expected: root.to_vec() }, to_boot(root));
    }
    pass.report.label = if root == NO_NAME { Vec::new() } else { crate::name::trim(&root).to_vec() };
    Ok(())
}
