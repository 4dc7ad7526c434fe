//! Common code for showing on-disk structures.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice as _, Cache};
use obento_driver::Record;
use obento_driver::record::Builder;

use crate::{Chain, Cluster, Links};

/// Passes the runs of the first `count` clusters of a chain to `sink`, up to the first damage. `offset_of` returns
/// the byte at which a cluster starts. Fails with `Invalid` for a run outside of the volume.
pub fn runs(
    chain: &mut Chain,
    table: &mut impl Links,
    ino: Ino,
    count: u32,
    offset_of: impl Fn(Cluster) -> Option<u64>,
    sink: &mut dyn FnMut(Result<Record>),
) -> Result<()> {
    let mut at = 0;
    while at < count {
        let run = match chain.find(table, ino, at, count.saturating_sub(at)) {
            Ok(Some(run)) => run,
            Ok(None) => break,
            Err(error) => {
                sink(Err(error));
                break;
            }
        };
        let len = run.len.min(count.saturating_sub(at)).max(1);
        let mut record = Builder::new("clusters", 1, offset_of(run.start).ok_or(Error::Invalid)?);
        record.number("of the file", 0, 0, at.into()).number("first", 0, 0, run.start.0.into());
        sink(Ok(record.number("count", 0, 0, len.into()).finish()));
        at = at.saturating_add(len);
    }
    Ok(())
}

/// Returns the record of a root directory of `len` bytes in clusters of its own, to which no entry refers. Its first
/// cluster starts at byte `start`.
pub fn root_record(start: u64, cluster_size: u32, len: u64) -> Record {
    Builder::new("root directory", 0, start).number("bytes", 0, to_usize(cluster_size.into()), len).finish()
}

/// Returns the bytes of the cluster that starts at byte `start`. Fails with `NoMemory`, or if the device fails.
pub fn cluster_bytes(cache: &Cache, start: u64, size: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(to_usize(size.into()))?;
    bytes.resize(to_usize(size.into()), 0);
    cache.device().read_at(start, &mut bytes)?;
    Ok(bytes)
}
