//! A volume that accepts no further changes, because an error has made it read-only: each write fails from then on.
//!
//! The kernel would otherwise accept data into its cache until it writes some of it back.

use obento_base::Errno;

use super::abi::opcode;
use super::{Wire, is_change};

impl Wire {
    /// Notes that a request has failed. Damage and errors of the device may have made the volume read-only.
    pub(super) fn note_error(&self, opcode: u32, error: Errno) {
        if self.server.options().read_only || self.server.has_failed() {
            return;
        }
        let is_over = match error.0 {
            // The volume of a mount with failover cannot be asked.
            libc::EROFS if self.server.ledger().is_some() => true,
            // A part of a volume can be read-only, such as a subvolume of Btrfs.
            libc::EROFS | libc::EUCLEAN | libc::EIO => changes(opcode) && !self.server.accepts_changes(),
            _ => false,
        };
        if is_over {
            self.server.note_end_of_changes();
            self.note_broken();
        }
    }
}

/// Returns whether a request changes the volume, or waits until its changes are on stable storage.
fn changes(opcode: u32) -> bool {
    is_change(opcode) || matches!(opcode, opcode::WRITE | opcode::FSYNC | opcode::FSYNCDIR)
}
