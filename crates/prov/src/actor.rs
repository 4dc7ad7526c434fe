//! The numbers of processes in segments.

/// Maximum number of actors that the writer of a segment numbers at a time.
pub(crate) const ACTORS_MAX: usize = 1 << 16;

/// The number of an actor in the records of one segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ActorId(pub u32);
