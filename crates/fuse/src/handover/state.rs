//! The state of a connection to the kernel.

use obento_base::fields::{Fields, Need, Parsed, StateError};

use super::history::HistoryState;

/// One inode that the kernel refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeState {
    /// The node ID.
    pub id: u64,
    /// The lookups that FORGET has not undone.
    pub lookups: u64,
    /// The inode is known to have no capability and no flag that forbids writes.
    pub is_plain: bool,
    /// The inode is a regular file.
    pub is_regular: bool,
    /// The kernel may cache its attributes for long.
    pub is_cached_for_long: bool,
    /// The file was written to a moment ago.
    pub is_written: bool,
    /// The error that lost gathered data, if no write has reported it yet.
    pub failure: Option<i32>,
}

/// The gate of writes to a volume that is nearly full.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GateState {
    /// Writes are gated.
    pub is_gated: bool,
    /// The volume accepts no further changes.
    pub is_broken: bool,
    /// Files and processes that have announced a write.
    pub announced: Vec<(u64, u32)>,
    /// Files and processes whose write is being refused, and the error.
    pub refused: Vec<(u64, u32, i32)>,
    /// Files whose writes passed, the last one at the end.
    pub passed: Vec<u64>,
    /// Files, and their sizes when their first write passed.
    pub sizes: Vec<(u64, u64)>,
}

/// The state of a connection to the kernel between two requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionState {
    /// The kernel caches writes.
    pub writeback: bool,
    /// SETXATTR requests have flags.
    pub setxattr_flags: bool,
    /// The kernel safely caches data that the server sends.
    pub stores_data: bool,
    /// The bytes that the kernel gathers at most.
    pub dirty_limit: u64,
    /// Reading updates no access times.
    pub has_no_atime: bool,
    /// The volume is large enough for gathering, and writes may be gated.
    pub has_gate: bool,
    /// The gate.
    pub gate: GateState,
    /// The inodes that the kernel has not forgotten.
    pub nodes: Vec<NodeState>,
    /// The open files, if the history of the volume is recorded.
    pub history: Option<HistoryState>,
}

const WRITEBACK: u16 = 1;
const SETXATTR_FLAGS: u16 = 2;
const DIRTY_LIMIT: u16 = 3;
const NO_ATIME: u16 = 4;
const HAS_GATE: u16 = 5;
const NODES: u16 = 6;
const HISTORY: u16 = 7;
const STORES_DATA: u16 = 8;
const GATED: u16 = 16;
const BROKEN: u16 = 17;
const ANNOUNCED: u16 = 18;
const REFUSED: u16 = 19;
const PASSED: u16 = 20;
const SIZES: u16 = 21;

/// Flags of a node.
const PLAIN: u64 = 1;
const REGULAR: u64 = 2;
const CACHED: u64 = 4;
const WRITTEN: u64 = 8;
const NODE_FLAGS: u64 = PLAIN | REGULAR | CACHED | WRITTEN;

impl NodeState {
    fn record(&self) -> [u64; 4] {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(self.is_plain, PLAIN)
            | flag(self.is_regular, REGULAR)
            | flag(self.is_cached_for_long, CACHED)
            | flag(self.is_written, WRITTEN);
        [self.id, self.lookups, flags, number(self.failure.unwrap_or(0))]
    }

    fn of([id, lookups, flags, failure]: [u64; 4]) -> Result<Self, StateError> {
        let failure = errno(failure).ok_or(StateError::Invalid(NODES))?;
        if flags & !NODE_FLAGS != 0 || lookups == 0 {
            return Err(StateError::Invalid(NODES));
        }
        let has = |flag: u64| flags & flag != 0;
        Ok(Self {
            id,
            lookups,
            is_plain: has(PLAIN),
            is_regular: has(REGULAR),
            is_cached_for_long: has(CACHED),
            is_written: has(WRITTEN),
            failure: (failure != 0).then_some(failure),
        })
    }
}

/// Returns the number of an error, which is positive.
fn number(errno: i32) -> u64 {
    u64::try_from(errno).unwrap_or(0)
}

fn errno(number: u64) -> Option<i32> {
    i32::try_from(number).ok()
}

impl SessionState {
    /// Encodes the state.
    pub fn encode(&self) -> Vec<u8> {
        let gate = &self.gate;
        let refused = |&(id, pid, errno): &(u64, u32, i32)| [id, pid.into(), number(errno)];
        // A field that may be absent precedes those whose absence shows that the end is missing.
        let fields = Fields::default();
        let fields = match &self.history {
            Some(history) => fields.with(HISTORY, Need::Critical, &history.encode()),
            None => fields,
        };
        let fields = if self.stores_data { fields.with(STORES_DATA, Need::Optional, &[]) } else { fields };
        fields
            .with_number(WRITEBACK, self.writeback.into())
            .with_number(SETXATTR_FLAGS, self.setxattr_flags.into())
            .with_number(DIRTY_LIMIT, self.dirty_limit)
            .with_number(NO_ATIME, self.has_no_atime.into())
            .with_number(HAS_GATE, self.has_gate.into())
            .with_records(NODES, self.nodes.iter().map(NodeState::record))
            .with_number(GATED, gate.is_gated.into())
            .with_number(BROKEN, gate.is_broken.into())
            .with_records(ANNOUNCED, gate.announced.iter().map(|&(id, pid)| [id, pid.into()]))
            .with_records(REFUSED, gate.refused.iter().map(refused))
            .with_records(PASSED, gate.passed.iter().map(|&id| [id]))
            .with_records(SIZES, gate.sizes.iter().map(|&(id, size)| [id, size]))
            .into_bytes()
    }

    /// Decodes a state. Fails for bytes that [`encode`](Self::encode) does not produce, here or in a later version
    /// whose fields cannot be ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        let nodes = fields.records(NODES)?.into_iter().map(NodeState::of).collect::<Result<_, _>>()?;
        let process = |tag: u16, pid: u64| u32::try_from(pid).map_err(|_| StateError::Invalid(tag));
        let announced = fields.records(ANNOUNCED)?.into_iter();
        let announced = announced.map(|[id, pid]| Ok((id, process(ANNOUNCED, pid)?)));
        let refused = fields.records(REFUSED)?.into_iter().map(|[id, pid, error]| {
            Ok((id, process(REFUSED, pid)?, errno(error).ok_or(StateError::Invalid(REFUSED))?))
        });
        let gate = GateState {
            is_gated: fields.flag(GATED)?,
            is_broken: fields.flag(BROKEN)?,
            announced: announced.collect::<Result<_, _>>()?,
            refused: refused.collect::<Result<_, _>>()?,
            passed: fields.records(PASSED)?.into_iter().map(|[id]| id).collect(),
            sizes: fields.records(SIZES)?.into_iter().map(|[id, size]| (id, size)).collect(),
        };
        let state = Self {
            writeback: fields.flag(WRITEBACK)?,
            setxattr_flags: fields.flag(SETXATTR_FLAGS)?,
            stores_data: fields.optional(STORES_DATA)?.is_some(),
            dirty_limit: fields.number(DIRTY_LIMIT)?,
            has_no_atime: fields.flag(NO_ATIME)?,
            has_gate: fields.flag(HAS_GATE)?,
            gate,
            nodes,
            history: fields.optional(HISTORY)?.map(HistoryState::decode).transpose()?,
        };
        fields.finish()?;
        Ok(state)
    }
}
