//! A driver in a repository of its own: a small writable file system that survives a power failure at any moment.
//! Replace its format with yours.
//!
//! The whole volume is in memory. A sync writes all of it to one of two slots, and then writes the root of that slot.
//! The root is 64 bytes that state which slot is newer. Until the root is written, the other slot is valid. The volume
//! is therefore crash safe without a log, but every sync writes the whole volume, so it is suitable only for small
//! volumes.
//!
//! Start reading with [`raw`] (structures) and `store.rs` (conversion of bytes to a tree and back). Then read `tree.rs`
//! and `file.rs` (changes), and `volume.rs`, which implements the contract of obento.
//!
//! On disk: [`raw::RawRoot`] 0 and 1, a page each, then two slots of the same length. A slot contains inodes, one after
//! the other.

#![forbid(unsafe_code)]

mod file;
pub mod raw;
mod store;
mod tree;
mod volume;

use std::sync::Arc;

use obento::{Error, Result};
use obento::base::{Feature, FileKind, Mode};
use obento::block::BlockDevice;
use obento::driver::{Check, OpenOptions, Setting, Access, CheckObserver, CheckOptions, CheckReport, Driver, FileSystem, Finding, Format, FormatError, FormatNotice, FormatOptions, Formatted, NewNode, Probe, RepairMode, Severity};
use zerocopy::FromBytes as _;

use raw::{MAGIC, PAGE, ROOTS, RawRoot};
use tree::{Inode, ROOT, Tree};
pub use volume::Volume;

/// The name of the type, for `-t skeletonfs`.
pub const TYPE: &str = "skeletonfs";
const LEN_MIN: u64 = 64 << 10;

/// The driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct MyDriver;

fn probe(root: &RawRoot) -> Probe {
    Probe { fs_type: TYPE, uuid: Some(root.uuid), len: root.len.get(), ..Probe::default() }
}

impl Driver for MyDriver {
    fn names(&self) -> &'static [&'static str] {
        &[TYPE]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        for at in ROOTS {
            let mut bytes = [0; size_of::<RawRoot>()];
            if device.len() < at + bytes.len() as u64 {
                return Ok(None);
            }
            device.read_at(at, &mut bytes)?;
            let root = RawRoot::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
            if root.magic == MAGIC {
                return Ok(Some(probe(&root)));
            }
        }
        Ok(None)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(Volume::open(device, options.access, Arc::clone(&options.clock))?))
    }

    obento::driver::capabilities!(format: Format, check: Check);
}

impl Format for MyDriver {
    fn types(&self) -> &'static [&'static str] {
        &[TYPE]
    }

    fn settings(&self) -> &'static [Setting] {
        &[]
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let len = options.len.unwrap_or(device_len);
        if let Some((name, _)) = options.settings.first() {
            return Err(FormatError::UnknownSetting { name: name.clone() });
        }
        if let Some(name) = options.features.first() {
            return Err(FormatError::UnknownFeature { name: name.clone() });
        }
        if options.block_size.is_some_and(|size| size as usize != PAGE) {
            return Err(FormatError::UnknownSetting { name: "block size".into() });
        }
        match () {
            () if len > device_len => return Err(FormatError::PastDevice { len, device_len }),
            () if len < LEN_MIN => return Err(FormatError::TooSmall { what: "two slots", len }),
            () => {}
        }
        let no_label = (!options.label.is_empty()).then(|| FormatNotice::LabelCut(Vec::new()));
        Ok(Formatted {
            fs_type: TYPE,
            uuid: options.uuid.unwrap_or_else(|| options.random.uuid()),
            block_size: PAGE as u32,
            blocks: len / PAGE as u64,
            notices: no_label.into_iter().collect(),
            ..Formatted::default()
        })
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let formatted = self.plan(device.len(), options)?;
        // The old volume is no longer recognised, and the new one only when it is written completely.
        ROOTS.iter().try_for_each(|&at| device.write_at(at, &[0; PAGE]))?;
        device.flush()?;
        let owner = NewNode {
            kind: FileKind::Directory,
            mode: Mode::new(0o755),
            uid: 0,
            gid: 0,
            rdev: Default::default(),
            target: b"",
        };
        let root = Inode::new(ROOT, &owner, ROOT, options.clock.now());
        let tree = Tree { inodes: [(ROOT, root)].into(), last: ROOT.0, ..Tree::default() };
        store::write(device, &RawRoot::new(options.len.unwrap_or(device.len()), formatted.uuid), &tree)?;
        Ok(formatted)
    }
}

impl Check for MyDriver {
    /// A volume that does not open is damaged. Opening a volume checks all of it.
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        if options.repair_mode != RepairMode::Nothing {
            return Err(Error::Unsupported(Feature::Named("repairing a volume")));
        }
        let root = store::read_root(&*device)?;
        let mut report = CheckReport { checked: true, block_size: PAGE as u32, ..CheckReport::default() };
        report.blocks.1 = root.len.get() / PAGE as u64;
        match store::read_tree(&*device, &root) {
            Ok(tree) => {
                report.blocks.0 = tree.used.div_ceil(PAGE as u64);
                report.inodes.0 = tree.inodes.len() as u64;
                report.directories = tree.inodes.values().filter(|inode| inode.is_dir()).count() as u64;
            }
            Err(error @ Error::Corrupt(_)) => {
                report.found = 1;
                let text = error.to_string();
                let (code, severity) = ("state", Severity::Damage);
                observer.found(Finding { code, severity, fields: Vec::new(), text, repaired: false });
            }
            Err(error) => return Err(error),
        }
        Ok(report)
    }
}
