//! The messages between a server and the keeper of its mount (`-o failover`).
//!
//! | from | message | meaning |
//! |---|---|---|
//! | server | `Guard` | it serves the mount; the keeper starts another server if it fails |
//! | keeper | `Guard` | to a new server: serve this mount |
//! | server | `Ended` | the mount ends, and everything is on stable storage |
//! | keeper | `Go` | it has closed all descriptors |
//! | server | `Cannot` | to the keeper: no server can continue |

use obento_base::fields::{Fields, Need, Parsed, StateError};

/// The fields of [`Kind::Guard`](super::Kind::Guard): what a new server needs. Its descriptors are the connection to the
/// kernel, the image, the ledger, the control socket, and the socket for processes that unmount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The encoded [`Offer`](super::Offer).
    pub offer: Vec<u8>,
    /// The encoded [`State`](super::State).
    pub state: Vec<u8>,
    /// The mount point, when the mount was created.
    pub path: Vec<u8>,
    /// The device number of the mount. The path changes if a directory above the mount point is renamed.
    pub device: String,
    /// The number of servers that have failed.
    pub failovers: u64,
}

const OFFER: u16 = 16;
const STATE: u16 = 17;
const PATH: u16 = 18;
const FAILOVERS: u16 = 19;
const DEVICE: u16 = 20;

impl Guard {
    /// Encodes the fields.
    pub fn encode(&self) -> Vec<u8> {
        Fields::default()
            .with(OFFER, Need::Critical, &self.offer)
            .with(STATE, Need::Critical, &self.state)
            .with(PATH, Need::Critical, &self.path)
            .with(DEVICE, Need::Critical, self.device.as_bytes())
            .with_number(FAILOVERS, self.failovers)
            .into_bytes()
    }

    /// Decodes the fields.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        let this = Self {
            offer: fields.bytes(OFFER)?.to_vec(),
            state: fields.bytes(STATE)?.to_vec(),
            path: fields.bytes(PATH)?.to_vec(),
            device: fields.text(DEVICE)?,
            failovers: fields.number(FAILOVERS)?,
        };
        fields.finish()?;
        Ok(this)
    }
}
