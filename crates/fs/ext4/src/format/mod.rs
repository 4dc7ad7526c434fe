//! Creating volumes: block for block the volume that `mke2fs` of e2fsprogs 1.47.0 creates with the same options.
//!
//! A volume is first drafted in memory ([`draft`]) and then written ([`emit`]). A draft contains the groups and the
//! few blocks that are not zero, so that neither memory nor writes grow with the volume's data.
//!
//! Steps, in the order of `mke2fs`, because each allocates the first free blocks that it finds: shape ([`geometry`]),
//! bitmaps and inode tables ([`tables`]), directories ([`root`]), reserved inodes ([`inodes`]), reserved descriptors
//! ([`resize_inode`]), journal ([`journal`]), multiple mount protection, quotas ([`quota_files`]) and orphan file
//! ([`orphan_file`]).
//!
//! `docs/formats/ext4.md` describes what is created and what is refused.

mod draft;
mod emit;
mod features;
mod geometry;
mod inodes;
mod journal;
mod journal_device;
mod mapping;
mod number;
mod options;
mod orphan_file;
mod output;
mod quota_files;
mod resize_inode;
mod root;
mod sizes;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod usage;

use alloc::format;
use alloc::vec::Vec;

use obento_block::BlockDevice;
use obento_driver::{Fact, Format, FormatError, FormatNotice, FormatOptions, Formatted, Setting};

use crate::Ext4Driver;
use crate::feature::{Incompat, names};
pub(crate) use draft::{Draft, Identity, time_halves, zeroed};
pub(crate) use geometry::{FIRST_INO, Geometry};
pub(crate) use inodes::{JOURNAL_INO, PRIVATE_FILE, ROOT_INO};
pub(crate) use journal::{JournalSize, MAX_BLOCKS as MAX_JOURNAL_BLOCKS, journal_label};
use journal_device::JournalDevice;
pub(crate) use mapping::{DIRECT, MAX_EXTENT, Piece, ROOT_ENTRIES};
pub(crate) use options::{JournalRoom, RequestedSettings, TYPES};
pub(crate) use orphan_file::orphan_blocks;
pub(crate) use output::Output;
pub(crate) use root::{LOST_AND_FOUND, NAME as LOST_AND_FOUND_NAME};

/// Linux mounts blocks larger than a page only with a kernel that supports them.
const PAGE: u32 = 4096;

impl Format for Ext4Driver {
    fn types(&self) -> &'static [&'static str] {
        TYPES
    }

    fn settings(&self) -> &'static [Setting] {
        options::SETTINGS
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        FormatPlan::new(device_len, options).map(|plan| plan.formatted)
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let FormatPlan { made, wishes, formatted } = FormatPlan::new(device.len(), options)?;
        let journal = options.journal.as_deref();
        let contents = if wishes.is_zeroed { obento_driver::Contents::Zeros } else { options.contents };
        let len = options.length_on(device.len())?;
        obento_driver::erase_signatures(device, len, options.contents)?;
        match made {
            VolumeKind::Volume(mut draft) => {
                draft.write(device, contents, journal, wishes.lazy_inode_tables, &mut |_, _| Ok(()))?
            }
            VolumeKind::Journal(made) => made.write(device, contents)?,
        }
        Ok(formatted)
    }
}

/// The creator of the root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    /// This module, which creates an empty one.
    Empty,
    /// The caller, which may also create lost+found.
    Elsewhere { lost_and_found: bool },
}

/// The kind of volume to create.
enum VolumeKind {
    Volume(alloc::boxed::Box<Draft>),
    Journal(alloc::boxed::Box<JournalDevice>),
}

/// All decisions before anything is written.
struct FormatPlan {
    made: VolumeKind,
    wishes: RequestedSettings,
    formatted: Formatted,
}

impl FormatPlan {
    fn new(device_len: u64, options: &FormatOptions) -> Result<Self, FormatError> {
        let mut wishes = RequestedSettings::new(options)?;
        let mut notices = Vec::new();
        let identity = identity(options, &wishes, &mut notices);
        let len = options.len.unwrap_or(device_len);
        if len > device_len {
            return Err(FormatError::PastDevice { len, device_len });
        }
        let fs_type = TYPES.iter().find(|name| **name == options.fs_type).copied().unwrap_or_default();
        if wishes.features.needs(Incompat::JOURNAL_DEV) {
            let device = JournalDevice::new(&wishes, &identity, len)?;
            let formatted = device.describe(&options.label);
            return Ok(Self { made: VolumeKind::Journal(device.into()), wishes, formatted });
        }
        wishes.settle(options)?;
        let geometry = Geometry::new(&wishes, len, options.len.is_none(), &mut notices)?;
        let mut draft = Draft::new(&geometry, &wishes, &identity)?;
        let journal_blocks = draft.fill(&wishes, options.journal.as_deref(), Root::Empty, &mut notices)?;
        if geometry.block_size.bytes() > PAGE {
            notices.push(FormatNotice::LargeBlocks(geometry.block_size.bytes()));
        }
        if geometry.inode_size == 128 {
            notices.push(FormatNotice::ShortInodes(geometry.inode_size));
        }
        let formatted = describe(&draft, fs_type, journal_blocks, notices);
        Ok(Self { made: VolumeKind::Volume(draft.into()), wishes, formatted })
    }
}

impl Draft {
    /// Adds the contents of every volume to an empty volume. Returns the number of blocks of the journal.
    pub(crate) fn fill(
        &mut self,
        wishes: &RequestedSettings,
        journal: Option<&dyn BlockDevice>,
        root: Root,
        notices: &mut Vec<FormatNotice>,
    ) -> Result<u64, FormatError> {
        self.allocate_tables(wishes.packed)?;
        self.space.by_clusters(self.sb.cluster);
        let tables = self.taken_clusters();
        match root {
            Root::Empty => self.make_root(wishes.root_owner)?,
            Root::Elsewhere { .. } => {}
        }
        if !matches!(root, Root::Elsewhere { lost_and_found: true }) {
            self.make_lost_and_found()?;
        }
        self.reserve_inodes()?;
        self.make_resize_inode()?;
        let journal = self.make_journal(wishes, journal, notices)?;
        self.make_mmp_block()?;
        self.make_quota_files(wishes)?;
        self.make_orphan_file(wishes)?;
        // The blocks of the format itself, as Linux counts them for `statfs`.
        let overhead = tables
            .saturating_add(self.sb.cluster.needed(journal))
            .saturating_add(self.sb.first_data_block.into());
        self.sb.raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
        self.count_free();
        Ok(journal)
    }
}

/// Returns UUID, seeds, label and time. Values that are not given are random.
pub(crate) fn identity(
    options: &FormatOptions,
    wishes: &RequestedSettings,
    notices: &mut Vec<FormatNotice>,
) -> Identity {
    let mut label = [0; 16];
    label.iter_mut().zip(&options.label).for_each(|(to, from)| *to = *from);
    if options.label.len() > label.len() {
        notices.push(FormatNotice::LabelCut(label.to_vec()));
    }
    let uuid = options.uuid.unwrap_or_else(|| options.random.uuid());
    let hash_seed = wishes.hash_seed.unwrap_or_else(|| options.random.uuid());
    Identity { uuid, hash_seed, label, now: options.clock.now() }
}

pub(crate) fn describe(
    draft: &Draft,
    fs_type: &'static str,
    journal_blocks: u64,
    notices: Vec<FormatNotice>,
) -> Formatted {
    let sb = &draft.sb;
    let fact = |name, value| Fact { name, value };
    Formatted {
        fs_type,
        label: sb.label().to_vec(),
        uuid: sb.raw.s_uuid,
        serial: None,
        block_size: sb.block_size.bytes(),
        blocks: sb.blocks_count,
        inodes: sb.inodes_count.into(),
        reserved: sb.reserved_blocks(),
        journal_blocks,
        backups: draft.copies().into_iter().map(|group| sb.group_start(group).0).collect(),
        features: names(sb.compat, sb.incompat, sb.ro_compat),
        notices,
        facts: Vec::from([
            fact("groups", format!("{}", sb.groups)),
            fact("blocks per group", format!("{}", sb.blocks_per_group)),
            fact("inodes per group", format!("{}", sb.inodes_per_group)),
            fact("inode size", format!("{}", sb.inode_size)),
            fact("cluster size", format!("{}", sb.cluster.len(sb.block_size.into()))),
        ]),
    }
}
