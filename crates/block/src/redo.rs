//! Memory that survives the process: the changes of transactions that are not durable yet.
//!
//! A process that fails loses the changes in its memory. If it has reported such a change to a program, another process
//! must be able to perform it again. The first process therefore *publishes* the changed blocks before the report.

use alloc::vec::Vec;

use obento_base::Result;

use crate::Block;

/// A number and the contents of a block.
pub type BlockImage = (u64, Vec<u8>);

/// A log of changed blocks, outside of the process.
pub trait RedoLog: Send + Sync {
    /// Returns whether this thread handles a request that must not be divided: all of its changes become durable with
    /// the changes that it publishes, or none.
    fn is_held_here(&self) -> bool;

    /// Adds the newest contents of blocks that the transaction `transaction` has changed. After a failure of the
    /// process during the call, the log contains all of these blocks or none.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: the log cannot grow.
    fn append(&self, transaction: u32, blocks: &[Block]) -> Result<()>;

    /// Records that the transaction `transaction` and all earlier ones are durable. Their blocks are not returned any
    /// more. After this call, space that they freed may be used again.
    fn durable(&self, transaction: u32);

    /// Returns the newest contents of each block of the transactions that are not durable, sorted by number.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the log is damaged, or is marked as incomplete.
    fn changes(&self) -> Result<Vec<BlockImage>>;

    /// Removes all blocks, after the caller has written them to stable storage.
    fn clear(&self);
}
