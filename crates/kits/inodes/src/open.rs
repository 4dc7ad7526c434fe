//! Opening a volume: replays the log, counts free blocks and inodes, and frees inodes without a name.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use obento_base::{DeviceError, Error, Ino, Result};
use obento_block::{BlockDevice, Cache};
use obento_driver::{Access, HandoverState, Notice, OpenOptions, Replay};
use obento_env::sync::{Mutex, RwLock};

use crate::log::{self, Logged};
use crate::volume::Counters;
use crate::{Map, Op, Volume};

impl<F: Map> Volume<F> {
    /// Opens the volume on `device`, from which `format` was read. A read-only open writes nothing: the log is
    /// replayed in memory. Fails with `ReadOnly`, `NoMemory`, with `OutOfBounds` for a device that is too short to be
    /// changed, or if the device fails.
    pub fn open(format: F, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let is_writable = options.access == Access::ReadWrite;
        let geometry = format.geometry();
        let (expected, found) = (geometry.offset_of(geometry.size), device.len());
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
            _ => log::read(&*device, geometry)?,
        };
        if !logged.blocks.is_empty() {
            notices.push(Notice::Replayed { transactions: 1 });
        }
        let block_size = u32::try_from(geometry.block_size()).unwrap_or(u32::MAX);
        let volume = Self {
            format,
            cache: Cache::new(device, block_size, options.cache),
            clock: Arc::clone(&options.clock),
            commit_interval: seconds(options.journalling.commit_interval),
            is_writable,
            notices,
            state: RwLock::default(),
            held: Mutex::default(),
        };
        volume.come_up(logged, options.adopt.as_deref())?;
        Ok(volume)
    }

    fn come_up(&self, logged: Logged, adopted: Option<&HandoverState>) -> Result<()> {
        let mut state = self.state.write();
        state.sequence = logged.sequence;
        // They stay pinned in the cache until they are written to the device.
        for (home, bytes) in logged.blocks {
            let base = self.cache.renew(home.into())?;
            self.cache.edit_as(&base, &bytes).publish(0);
            state.dirty.insert(home);
        }
        if self.is_writable && !state.dirty.is_empty() {
            self.bring_home(&mut state)?;
            self.device().flush()?;
            log::clear(self.device(), self.format.geometry())?;
        }
        let (counters, nameless) = self.count()?;
        state.counters = counters;
        drop(state);
        if self.is_writable {
            let is_used = |ino: &Ino| adopted.is_some_and(|adopted| adopted.uses(*ino));
            for ino in nameless.into_iter().filter(|ino| !is_used(ino)) {
                let freed = self.change(|op| op.free_inode(op.inode(ino)?));
                // A damaged inode stays allocated and does no harm.
                if let Err(error @ Error::Device(_)) = freed {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Counts free blocks and inodes, and returns the inodes that a crash left without a name. Fails if the device
    /// fails.
    fn count(&self) -> Result<(Counters, Vec<Ino>)> {
        let op = Op::new(self, Counters::default());
        let mut counters = Counters { free_blocks: op.count_free()?, ..Counters::default() };
        let mut nameless = Vec::new();
        for number in 1..self.format.geometry().inodes {
            let ino = Ino(number.into());
            match op.inode_if_used(ino) {
                Ok(None) => counters.free_inodes = counters.free_inodes.saturating_add(1),
                Ok(Some(inode)) if inode.attr.nlink == 0 => nameless.push(ino),
                Ok(_) | Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((counters, nameless))
    }
}

/// Returns the age of changes that are to be committed, in whole seconds. Zero disables commits by age.
fn seconds(interval: Duration) -> i64 {
    if interval.is_zero() { i64::MAX } else { i64::try_from(interval.as_secs()).unwrap_or(i64::MAX).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_zero_disables_commits_by_age_and_a_short_one_is_a_second() {
        let given = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5999), Duration::MAX];
        assert_eq!(given.map(seconds), [i64::MAX, 1, 5, i64::MAX]);
    }
}
