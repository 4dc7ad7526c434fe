//! The set of clusters that checks have accounted for.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;

use crate::unit::Cluster;

/// One bit per cluster.
#[derive(Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Creates an empty set. Fails with `NoMemory`.
    pub fn new(clusters: u32) -> Result<Self> {
        let words = to_usize(u64::from(clusters).saturating_add(2).div_ceil(64));
        let mut bits = Vec::new();
        bits.try_reserve_exact(words)?;
        bits.resize(words, 0);
        Ok(Self(bits))
    }

    /// Adds `cluster`. Returns whether the set already contained it.
    pub fn set(&mut self, cluster: Cluster) -> bool {
        let mask = 1_u64 << (cluster.0 & 63);
        let Some(word) = self.0.get_mut(to_usize(u64::from(cluster.0 >> 6))) else { return false };
        let was_set = *word & mask != 0;
        *word |= mask;
        was_set
    }

    /// Removes `cluster`.
    pub fn unset(&mut self, cluster: Cluster) {
        if let Some(word) = self.0.get_mut(to_usize(u64::from(cluster.0 >> 6))) {
            *word &= !(1_u64 << (cluster.0 & 63));
        }
    }

    /// Returns whether the set contains `cluster`.
    pub fn has(&self, cluster: Cluster) -> bool {
        let word = self.0.get(to_usize(u64::from(cluster.0 >> 6)));
        word.is_some_and(|word| word & 1 << (cluster.0 & 63) != 0)
    }
}
