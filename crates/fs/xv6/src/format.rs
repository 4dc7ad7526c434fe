//! Creates volumes as `mkfs/mkfs.c` of xv6 does: the parts in order, and a root directory.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros as _, IntoBytes as _, to_u64};
use obento_block::BlockDevice;
use obento_driver::{Allowed, Fact, Format, FormatError, FormatNotice, FormatOptions, Formatted, Setting};
use obento_inodes::make;

use crate::open::Xv6Driver;
use crate::raw::{LOG_MAX, MAGIC, RawSuperBlock, VARIANT};
use crate::super_block::{
    BITS_PER_BLOCK, BLOCK_BITS, CHANGE_MAX, INODES_PER_BLOCK, LOG_START, SUPER, SuperBlock, checksum, label,
};

/// Bytes per inode, as for mke2fs.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Minimum length of the log in blocks. For comparison, the minimum of jbd2 is 1024.
const LOG_LEN: u32 = 256;
const SETTINGS: &[Setting] = &[Setting { name: "inodes", takes: Allowed::Range(16, 1 << 28) }];

impl Format for Xv6Driver {
    fn types(&self) -> &'static [&'static str] {
        &["xv6"]
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        plan(device_len, options).map(|(_, formatted)| formatted)
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let (sb, formatted) = plan(device.len(), options)?;
        make(device, &sb, (SUPER, sb.raw.as_bytes()), options)?;
        Ok(formatted)
    }
}

fn plan(device_len: u64, options: &FormatOptions) -> Result<(SuperBlock, Formatted), FormatError> {
    let inodes = inodes(options)?;
    if let Some(size) = options.block_size.filter(|&size| size != 4096) {
        let allowed = Allowed::PowerOfTwo(4096, 4096);
        return Err(FormatError::bad("block size", &size.to_string(), allowed));
    }
    let len = options.length_on(device_len)?;
    let bitmap_max = to_u64(LOG_MAX).saturating_sub(u64::from(CHANGE_MAX).saturating_add(1));
    let max = (u64::from(BITS_PER_BLOCK) << BLOCK_BITS).saturating_mul(bitmap_max);
    if len > max {
        return Err(FormatError::TooLarge { len, max });
    }
    let too_small = FormatError::TooSmall { what: "an xv6 volume", len };
    let size = u32::try_from(len >> BLOCK_BITS).map_err(|_| FormatError::TooLarge { len, max })?;
    let inodes = inodes.unwrap_or(len / BYTES_PER_INODE).max(u64::from(INODES_PER_BLOCK));
    let inodes = u32::try_from(inodes).ok().and_then(|n| n.checked_next_multiple_of(INODES_PER_BLOCK));
    let inodes = inodes.ok_or(too_small.clone())?;
    let bitmap_len = size.div_ceil(BITS_PER_BLOCK);
    let log_min = bitmap_len.saturating_add(CHANGE_MAX).saturating_add(1);
    let log_len = log_min.max(LOG_LEN.min(size / 16));
    let mut raw = RawSuperBlock::new_zeroed();
    raw.magic.set(MAGIC);
    raw.variant.set(VARIANT);
    raw.size.set(size);
    raw.ninodes.set(inodes);
    raw.nlog.set(log_len);
    raw.logstart.set(LOG_START);
    raw.inodestart.set(LOG_START.saturating_add(log_len));
    raw.bmapstart.set(raw.inodestart.get().saturating_add(inodes / INODES_PER_BLOCK));
    let data_start = raw.bmapstart.get().saturating_add(bitmap_len);
    raw.nblocks.set(size.checked_sub(data_start).filter(|&blocks| blocks > 0).ok_or(too_small)?);
    raw.uuid = options.uuid.unwrap_or_else(|| options.random.uuid());
    raw.label.iter_mut().zip(&options.label).for_each(|(to, from)| *to = *from);
    let mut seed = [0; 4];
    options.random.fill(&mut seed);
    raw.hash_seed.set(u32::from_le_bytes(seed));
    raw.checksum.set(checksum(&raw));
    let sb = SuperBlock::decode(raw).map_err(|damage| FormatError::Device(damage.into()))?;
    let formatted = describe(&sb, options);
    Ok((sb, formatted))
}

/// Returns the requested number of inodes.
fn inodes(options: &FormatOptions) -> Result<Option<u64>, FormatError> {
    let mut inodes = None;
    options.each_setting(SETTINGS, |setting, value| {
        inodes = value.parse().ok().filter(|&number| setting.takes.allows(number));
        inodes.map(|_| ())
    })?;
    Ok(inodes)
}

fn describe(sb: &SuperBlock, options: &FormatOptions) -> Formatted {
    let label = label(&sb.raw).to_vec();
    let notices = match options.label == label {
        true => Vec::new(),
        false => Vec::from([FormatNotice::LabelCut(label.clone())]),
    };
    Formatted {
        fs_type: "xv6",
        label,
        uuid: sb.raw.uuid,
        block_size: 4096,
        blocks: sb.geometry.size.into(),
        inodes: sb.geometry.inodes.into(),
        journal_blocks: sb.raw.nlog.get().into(),
        notices,
        facts: Vec::from([Fact { name: "blocks for files", value: sb.raw.nblocks.get().to_string() }]),
        ..Formatted::default()
    }
}
