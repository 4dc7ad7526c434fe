//! A captured transaction.

use alloc::vec::Vec;

use obento_block::Block;

use crate::Tid;

/// A transaction that can no longer change.
pub(super) struct Batch {
    pub(super) tid: Tid,
    /// Its blocks in ascending order, without duplicates.
    pub(super) blocks: Vec<Block>,
    /// The revoked block numbers in ascending order.
    pub(super) revoked: Vec<u64>,
}
