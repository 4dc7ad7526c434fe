//! Volumes of the file system for tests.

use std::sync::Arc;

use obento_open::Volume;
pub use obento_testkit::toy::{Toy, ToyFs, ToyPiece as Piece, dir, text};

/// Returns a volume with these inodes.
pub fn toy(nodes: impl IntoIterator<Item = (u64, Toy)>) -> Volume {
    Volume::new(Arc::new(ToyFs::new(nodes)))
}
