//! How a volume comes up: the log is replayed, what is free is counted, and what had no name is freed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Bitmap, Corrupt, DeviceError, Error, Ino, Result, Structure};
use obento_block::{BlockDevice, Cache};
use obento_driver::{Access, Check, Driver, FileSystem, Format, Notice, OpenOptions, Probe, Replay};
use obento_env::sync::{Mutex, RwLock};

use crate::log::{self, Logged, offset_of};
use crate::op::Op;
use crate::raw::{MAGIC, RawSuperBlock};
use crate::super_block::{BITS_PER_BLOCK, SUPER, SuperBlock};
use crate::volume::{Counters, Volume};

/// Recognises, opens, makes and checks xv6 volumes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xv6Driver;

impl Driver for Xv6Driver {
    fn names(&self) -> &'static [&'static str] {
        &["xv6"]
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        Ok(SuperBlock::read(device)?.as_ref().map(probe))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(Volume::open(device, options)?))
    }

    fn format(&self) -> Option<&dyn Format> {
        Some(self)
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(self)
    }
}

/// What a super block says of its volume, damaged or not.
pub(crate) fn probe(raw: &RawSuperBlock) -> Probe {
    let label = raw.label.split(|&byte| byte == 0).next().unwrap_or_default();
    Probe {
        fs_type: "xv6",
        label: label.to_vec(),
        uuid: Some(raw.uuid),
        len: offset_of(raw.size.get()),
        ..Probe::default()
    }
}

impl Volume {
    /// Opens the volume that fills `device`. Errors: as [`Driver::open`].
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let magic = Corrupt::Magic {
            structure: Structure::SuperBlock,
            block: SUPER.into(),
            found: 0,
            expected: MAGIC.into(),
        };
        let sb = SuperBlock::decode(SuperBlock::read(&*device)?.ok_or(magic)?)?;
        let is_writable = options.access == Access::ReadWrite;
        let (expected, found) = (offset_of(sb.size), device.len());
        let mut notices = Vec::new();
        match () {
            () if is_writable && device.is_read_only() => return Err(Error::ReadOnly),
            () if is_writable && expected > found => {
                return Err(DeviceError::OutOfBounds { offset: 0, len: expected, device_len: found }.into());
            }
            () if expected > found => notices.push(Notice::Truncated { expected, found }),
            () => {}
        }
        let logged = match options.replay {
            Replay::Skip if !is_writable => Logged::default(),
            _ => log::read(&*device, &sb)?,
        };
        if !logged.blocks.is_empty() {
            notices.push(Notice::Replayed { transactions: 1 });
        }
        let volume = Self {
            sb,
            cache: Cache::new(device, 4096, options.cache),
            clock: Arc::clone(&options.clock),
            commit_interval: i64::try_from(options.journalling.commit_interval.as_secs()).unwrap_or(i64::MAX),
            is_writable,
            notices,
            state: RwLock::default(),
            held: Mutex::default(),
        };
        volume.come_up(logged)?;
        Ok(volume)
    }

    fn come_up(&self, logged: Logged) -> Result<()> {
        let mut state = self.state.write();
        state.sequence = logged.sequence;
        for (home, bytes) in logged.blocks {
            let base = self.cache.renew(home.into())?;
            self.cache.edit_as(&base, &bytes).publish(0);
            state.dirty.insert(home);
        }
        if self.is_writable && !state.dirty.is_empty() {
            self.bring_home(&mut state)?;
            self.device().flush()?;
            log::clear(self.device())?;
        }
        let (counters, nameless) = self.count()?;
        state.counters = counters;
        drop(state);
        if self.is_writable {
            for ino in nameless {
                let freed = self.change(|op| op.free_inode(op.inode(ino)?));
                // A damaged one stays, and harms nobody.
                if let Err(error @ Error::Device(_)) = freed {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Counts what is free, and names the inodes that a crash left without a name. Errors: those of the device.
    fn count(&self) -> Result<(Counters, Vec<Ino>)> {
        let op = Op::new(self, Counters::default());
        let (mut counters, mut nameless) = (Counters::default(), Vec::new());
        let mut at = 0;
        while at < self.sb.size {
            let len = self.sb.size.saturating_sub(at).min(BITS_PER_BLOCK);
            let bytes = op.get(self.sb.bitmap_start.saturating_add(at / BITS_PER_BLOCK))?;
            let used = Bitmap::new(&bytes).count_ones(len);
            counters.free_blocks = counters.free_blocks.saturating_add(len.saturating_sub(used));
            at = at.saturating_add(len);
        }
        for number in 1..self.sb.inodes {
            let ino = Ino(number.into());
            match op.raw_inode(ino)? {
                Some(raw) if raw.mode.get() == 0 => {
                    counters.free_inodes = counters.free_inodes.saturating_add(1);
                }
                Some(raw) if raw.nlink.get() == 0 => nameless.push(ino),
                _ => {}
            }
        }
        Ok((counters, nameless))
    }
}
