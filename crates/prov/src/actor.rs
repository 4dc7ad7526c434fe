//! The numbers of processes in segments.

/// The number of an actor in the records of one segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ActorId(pub u32);
