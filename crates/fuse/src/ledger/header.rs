//! The header of the ledger.
//!
//! Invariant: each write replaces the older one of two copies, so that one copy is complete at any time. A copy is
//! valid if its checksum is correct; the valid copy with the higher sequence number is the current one.

use std::io;
use std::os::fd::OwnedFd;

use obento_base::crc::crc32c;

use super::slots::NodeSlot;
use super::{read_all, write_all};
use crate::handover::{Fields, Need, Parsed, StateError};

/// Size of a copy.
const SIZE: usize = 2048;
/// The version of the format.
const VERSION: u64 = 1;

/// The reply to a request that a server has performed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub unique: u64,
    /// The error, or 0.
    pub error: i32,
    pub body: Vec<u8>,
}

/// The header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Header {
    sequence: u64,
    /// The length of the redo log.
    pub end: u64,
    /// The last durable transaction.
    pub durable: Option<u32>,
    /// The ledger lacks changes.
    pub is_broken: bool,
    /// The last noted reply.
    pub note: Option<Note>,
    /// The nodes that changed with this reply and are not yet in their slots.
    pub nodes: Vec<NodeSlot>,
}

const FORMAT: u16 = 1;
const SEQUENCE: u16 = 2;
const END: u16 = 3;
const DURABLE: u16 = 4;
const BROKEN: u16 = 5;
const UNIQUE: u16 = 6;
const ERROR: u16 = 7;
const BODY: u16 = 8;
const NODES: u16 = 9;

impl Header {
    /// Writes the header as the current one. Fails if it is too long or if memory is exhausted.
    pub fn write(&mut self, file: &OwnedFd) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let fields = self.encode();
        let mut copy = Vec::with_capacity(SIZE);
        copy.extend(u32::try_from(fields.len()).unwrap_or(u32::MAX).to_le_bytes());
        copy.extend(crc32c(!0, &fields).to_le_bytes());
        copy.extend(fields);
        if copy.len() > SIZE {
            return Err(io::Error::other("the header of the ledger is too long"));
        }
        write_all(file, self.sequence % 2 * SIZE as u64, &copy)
    }

    /// Reads the current header. Fails with `InvalidData` if no copy is valid.
    pub fn read(file: &OwnedFd) -> io::Result<Self> {
        let copy = |at: u64| -> io::Result<Option<Self>> {
            let mut bytes = [0; SIZE];
            read_all(file, at * SIZE as u64, &mut bytes)?;
            Ok(Self::decode(&bytes))
        };
        let copies: [Option<Self>; 2] = [copy(0)?, copy(1)?];
        let current = copies.into_iter().flatten().max_by_key(|header| header.sequence);
        current.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the ledger is damaged"))
    }

    fn encode(&self) -> Vec<u8> {
        let mut fields = Fields::default()
            .with_number(FORMAT, VERSION)
            .with_number(SEQUENCE, self.sequence)
            .with_number(END, self.end)
            .with_number(BROKEN, self.is_broken.into())
            .with_records(NODES, self.nodes.iter().map(NodeSlot::record));
        if let Some(durable) = self.durable {
            fields = fields.with_number(DURABLE, durable.into());
        }
        match &self.note {
            None => fields.into_bytes(),
            Some(note) => fields
                .with_number(UNIQUE, note.unique)
                .with_number(ERROR, note.error.cast_unsigned().into())
                .with(BODY, Need::Critical, &note.body)
                .into_bytes(),
        }
    }

    fn decode(copy: &[u8; SIZE]) -> Option<Self> {
        let (len, rest) = copy.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let fields = rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        let is_whole = crc32c(!0, fields) == u32::from_le_bytes(*sum);
        is_whole.then(|| Self::decode_fields(fields).ok()).flatten()
    }

    fn decode_fields(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        if fields.number(FORMAT)? != VERSION {
            return Err(StateError::Invalid(FORMAT));
        }
        let note = match fields.optional(BODY)? {
            None => None,
            Some(body) => {
                let (unique, error) = (fields.number(UNIQUE)?, fields.narrow::<u32>(ERROR)?);
                Some(Note { unique, error: error.cast_signed(), body: body.to_vec() })
            }
        };
        let durable = fields.optional(DURABLE)?.map(|bytes| bytes.try_into().map(u64::from_le_bytes));
        let durable = durable.transpose().map_err(|_| StateError::Invalid(DURABLE))?;
        let durable = durable.map(u32::try_from).transpose().map_err(|_| StateError::Invalid(DURABLE))?;
        let nodes = fields.records(NODES)?.into_iter().map(NodeSlot::of).collect();
        let this = Self {
            sequence: fields.number(SEQUENCE)?,
            end: fields.number(END)?,
            durable,
            is_broken: fields.flag(BROKEN)?,
            note,
            nodes,
        };
        fields.finish()?;
        Ok(this)
    }
}
