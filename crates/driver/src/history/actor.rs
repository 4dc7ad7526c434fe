//! The processes that change a volume.

/// A process that executes a certain program. A process that executes several programs, one after the other, is a
/// separate actor for each program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Actor {
    /// Process ID; 0 if the operating system reported none.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot, which distinguishes successive processes with
    /// the same process ID; 0 if unknown.
    pub start: u64,
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Name of the program, as in `/proc/PID/comm`, padded with NULs.
    pub comm: [u8; 16],
}

impl Actor {
    /// Returns the name of the program without padding.
    pub fn comm(&self) -> &[u8] {
        self.comm.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the actor with this name of a program, truncated to 16 bytes.
    #[must_use]
    pub fn with_comm(mut self, comm: &[u8]) -> Self {
        self.comm = [0; 16];
        self.comm.iter_mut().zip(comm).for_each(|(to, &from)| *to = from);
        self
    }
}

/// Identifies the process on whose behalf the current thread works.
pub trait Who: Send + Sync {
    /// Returns the process. Returns `None` if the thread works on behalf of no particular process, for example if
    /// it writes delayed data.
    fn now(&self) -> Option<Actor>;
}

/// The same actor for all changes: a program that uses the library.
#[derive(Clone, Copy, Debug)]
pub struct FixedWho(pub Actor);

impl Who for FixedWho {
    fn now(&self) -> Option<Actor> {
        Some(self.0)
    }
}
