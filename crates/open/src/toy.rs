//! Volumes of the file system for tests.

use std::sync::Arc;

pub use obento_testkit::toy::{Toy, ToyDriver, ToyFs, dir, text};

use crate::Volume;

/// Returns a volume with these inodes.
pub fn toy(nodes: impl IntoIterator<Item = (u64, Toy)>) -> Volume {
    Volume::new(Arc::new(ToyFs::new(nodes)))
}
