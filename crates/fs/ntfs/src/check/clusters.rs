//! The owners of clusters: one bit for each cluster.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;

/// The clusters that attributes have claimed.
pub struct Claims(Vec<u64>);

/// Returns the word of a cluster and its bit.
fn place(lcn: u64) -> (usize, u64) {
    let bit = u32::try_from(lcn & 63).unwrap_or(0);
    (to_usize(lcn >> 6), 1_u64.checked_shl(bit).unwrap_or(0))
}

impl Claims {
    /// Creates an empty map of `clusters` clusters.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: memory is exhausted.
    pub fn new(clusters: u64) -> Result<Self> {
        let len = to_usize(clusters.div_ceil(64));
        let mut words = Vec::new();
        words.try_reserve_exact(len)?;
        words.resize(len, 0);
        Ok(Self(words))
    }

    /// Claims a run. Returns the first cluster that is claimed already. The rest of the run is then not claimed, so
    /// that the number of clusters limits the work of all claims.
    pub fn claim(&mut self, start: u64, len: u64) -> Option<u64> {
        let end = start.saturating_add(len);
        let mut at = start;
        while at < end {
            let (word, bit) = place(at);
            let found = self.0.get_mut(word)?;
            if bit == 1 && *found == 0 && end.saturating_sub(at) >= 64 {
                *found = u64::MAX;
                at = at.saturating_add(64);
                continue;
            }
            if *found & bit != 0 {
                return Some(at);
            }
            *found |= bit;
            at = at.saturating_add(1);
        }
        None
    }

    /// Returns 64 bits from cluster `64 * index` on.
    pub fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Returns the number of claimed clusters.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, word| sum.saturating_add(word.count_ones().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stops_at_the_first_cluster_that_has_an_owner() {
        let mut claims = Claims::new(300).unwrap();
        assert_eq!(claims.claim(10, 200), None);
        assert_eq!(claims.claim(250, 20), None);
        assert_eq!(claims.claim(200, 100), Some(200));
        assert_eq!(claims.claim(220, 40), Some(250));
        assert_eq!(claims.count(), 200 + 20 + 30);
    }
}
