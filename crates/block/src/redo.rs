//! Memory that survives the process: see [`RedoLog`].

use alloc::vec::Vec;

use obento_base::Result;

use crate::Block;

/// The block number and the contents of a block.
pub type BlockImage = (u64, Vec<u8>);

/// A log of the blocks that were changed by transactions that are not durable yet. The log is outside of the
/// process, and survives a failure of the process. It does not survive a power failure.
///
/// A process that fails loses the changes in its memory. If the process has reported such a change to a
/// program as complete, another process must be able to repeat the change. A process therefore *publishes* the
/// changed blocks ([`append`](Self::append)) before it reports the change.
pub trait RedoLog: Send + Sync {
    /// Returns whether the calling thread handles a request that must not be divided. No change of such a request may
    /// become durable before the thread has published all changes of the request.
    fn is_held_here(&self) -> bool;

    /// Adds the newest contents of blocks that the transaction `transaction` has changed. After a failure of the
    /// process during the call, the log contains all of these blocks or none.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: the log cannot grow.
    fn append(&self, transaction: u32, blocks: &[Block]) -> Result<()>;

    /// Records that the transaction `transaction` and all earlier transactions are durable.
    /// [`changes`](Self::changes) then omits the blocks of these transactions. The caller reuses space that
    /// these transactions freed only after this call.
    fn durable(&self, transaction: u32);

    /// Returns the newest contents of each block of the transactions that are not durable, sorted by block
    /// number.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the log is damaged, or is marked as incomplete.
    fn changes(&self) -> Result<Vec<BlockImage>>;

    /// Removes all blocks from the log. Before this call, the caller must have written the blocks to stable
    /// storage.
    fn clear(&self);
}
