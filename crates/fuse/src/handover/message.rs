//! The messages that two servers exchange, and those of a process that asks for the status.
//!
//! A message has a head of 16 bytes (magic, kind, zero, length), fields, and the CRC-32C of both. Descriptors travel
//! with its first byte.

use std::os::fd::OwnedFd;

use obento_base::crc::crc32c;
use obento_base::fields::{Fields, Need, Parsed, StateError};

use super::VERSION;

/// `obUP`.
const MAGIC: u32 = u32::from_le_bytes(*b"obUP");
/// Sizes of the head and of the checksum.
pub(super) const HEAD: usize = 16;
pub(super) const TAIL: usize = 4;
/// The maximum length of the fields, which suffices for ten million nodes.
const LONGEST: u64 = 400 << 20;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Kind {
    /// The new server introduces itself.
    Hello = 1,
    /// The old server describes its mount.
    Offer = 2,
    /// The sender refuses, with the reason.
    Cannot = 3,
    /// The new server is ready to take the mount.
    Ready = 4,
    /// The old server has paused, and passes its state and its descriptors.
    State = 5,
    /// The new server has the volume open.
    Taken = 6,
    /// The old server leaves the mount to the new one.
    Go = 7,
    /// The new server serves from now on.
    Started = 8,
    /// A process asks for the status of the server.
    Status = 9,
    /// The status.
    Report = 10,
    /// A server passes the mount to its keeper, or a keeper to a new server.
    Guard = 11,
    /// A server ends the mount.
    Ended = 12,
    /// A process asks for the history of the volume.
    History = 13,
    /// A part of the history.
    Records = 14,
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::Hello,
        Self::Offer,
        Self::Cannot,
        Self::Ready,
        Self::State,
        Self::Taken,
        Self::Go,
        Self::Started,
        Self::Status,
        Self::Report,
        Self::Guard,
        Self::Ended,
        Self::History,
        Self::Records,
    ];

    fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u16 == number)
    }
}

/// A message.
#[derive(Debug)]
pub struct Message {
    /// The kind.
    pub kind: Kind,
    /// The encoded fields.
    pub fields: Vec<u8>,
    /// The descriptors, in the order of the fields that describe them.
    pub descriptors: Vec<OwnedFd>,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Another protocol.
    #[error("the process does not send messages of obento")]
    Magic,
    /// The kind or the length is invalid.
    #[error("the process sent an invalid message")]
    Head,
    /// The checksum is wrong.
    #[error("the process sent a message with a wrong checksum")]
    Checksum,
}

/// The decoded head of a message.
pub(super) struct Head {
    pub kind: Kind,
    /// The length of the fields.
    pub len: usize,
}

impl Head {
    pub(super) fn decode(bytes: &[u8; HEAD]) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, kind_low, kind_high, zero_low, zero_high, len @ ..] = *bytes;
        if u32::from_le_bytes([m0, m1, m2, m3]) != MAGIC {
            return Err(FrameError::Magic);
        }
        let kind = Kind::of(u16::from_le_bytes([kind_low, kind_high])).ok_or(FrameError::Head)?;
        let len = u64::from_le_bytes(len);
        if (zero_low, zero_high) != (0, 0) || len > LONGEST {
            return Err(FrameError::Head);
        }
        usize::try_from(len).map(|len| Self { kind, len }).map_err(|_| FrameError::Head)
    }
}

/// Encodes a message without its descriptors.
pub(super) fn encode(kind: Kind, fields: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + fields.len() + TAIL);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend((kind as u16).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(u64::try_from(fields.len()).unwrap_or(u64::MAX).to_le_bytes());
    bytes.extend(fields);
    let sum = crc32c(!0, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Checks the checksum at the end of a whole message, and returns its fields.
pub(super) fn fields_of(bytes: &[u8]) -> Result<&[u8], FrameError> {
    let (covered, sum) = bytes.split_last_chunk::<TAIL>().ok_or(FrameError::Head)?;
    if crc32c(!0, covered) != u32::from_le_bytes(*sum) {
        return Err(FrameError::Checksum);
    }
    covered.get(HEAD..).ok_or(FrameError::Head)
}

const MAJOR: u16 = 1;
const MINOR: u16 = 2;
const BUILD: u16 = 3;

fn with_version(fields: Fields, build: &str) -> Fields {
    let (major, minor) = VERSION;
    let fields = fields.with_number(MAJOR, major.into()).with_number(MINOR, minor.into());
    fields.with(BUILD, Need::Optional, build.as_bytes())
}

/// Takes the version, and fails if it cannot be understood.
fn expect_version(fields: &mut Parsed<'_>) -> Result<(), StateError> {
    let (major, minor) = (fields.narrow(MAJOR)?, fields.narrow(MINOR)?);
    if major == VERSION.0 { Ok(()) } else { Err(StateError::Version(major, minor, VERSION.0)) }
}

/// The fields of [`Kind::Hello`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The version of the program, for people.
    pub build: String,
    /// Whether the mount is only asked for, and stays with its server.
    pub is_trial: bool,
}

impl Hello {
    const TRIAL: u16 = 16;

    /// Encodes the fields.
    pub fn encode(&self) -> Vec<u8> {
        let fields = with_version(Fields::default(), &self.build);
        fields.with_number(Self::TRIAL, self.is_trial.into()).into_bytes()
    }

    /// Decodes the fields. Fails for another major version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        expect_version(&mut fields)?;
        let this = Self { build: fields.text(BUILD)?, is_trial: fields.flag(Self::TRIAL)? };
        fields.finish()?;
        Ok(this)
    }
}

/// The fields of [`Kind::Offer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The version of the program, for people.
    pub build: String,
    /// The arguments of `obento` that the server was started with.
    pub arguments: Vec<Vec<u8>>,
    /// Whether the volume is open read-only.
    pub read_only: bool,
    /// The type of the volume.
    pub fs_type: String,
    /// The UUID or serial number of the volume; empty if it has none.
    pub volume_id: String,
    /// Whether the driver of the new server must use the state of the old driver. A program without this field refuses
    /// the offer, because its driver may ignore the state.
    pub requires_state: bool,
}

impl Offer {
    const ARGUMENT: u16 = 16;
    const READ_ONLY: u16 = 17;
    const FS_TYPE: u16 = 18;
    const VOLUME_ID: u16 = 19;
    const REQUIRES_STATE: u16 = 20;

    /// Encodes the fields.
    pub fn encode(&self) -> Vec<u8> {
        let fields = with_version(Fields::default(), &self.build);
        let add = |fields: Fields, word: &Vec<u8>| fields.with(Self::ARGUMENT, Need::Critical, word);
        let fields = self.arguments.iter().fold(fields, add);
        let fields = fields.with_number(Self::READ_ONLY, self.read_only.into());
        let fields = fields.with(Self::FS_TYPE, Need::Critical, self.fs_type.as_bytes());
        let fields = fields.with(Self::VOLUME_ID, Need::Critical, self.volume_id.as_bytes());
        let fields = match self.requires_state {
            true => fields.with(Self::REQUIRES_STATE, Need::Critical, &[]),
            false => fields,
        };
        fields.into_bytes()
    }

    /// Decodes the fields. Fails for another major version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        expect_version(&mut fields)?;
        let this = Self {
            build: fields.text(BUILD)?,
            arguments: fields.list(Self::ARGUMENT),
            read_only: fields.flag(Self::READ_ONLY)?,
            fs_type: fields.text(Self::FS_TYPE)?,
            volume_id: fields.text(Self::VOLUME_ID)?,
            requires_state: fields.optional(Self::REQUIRES_STATE)?.is_some(),
        };
        fields.finish()?;
        Ok(this)
    }
}

/// The fields of [`Kind::State`]. Its descriptors are the connection to the kernel, the image, and the socket for
/// processes that unmount. The other descriptors are the socket for this protocol, and the connections of processes
/// that wait for the unmount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The state of the connection to the kernel, encoded.
    pub session: Vec<u8>,
    /// The state of the driver.
    pub driver: Vec<u8>,
    /// When the volume was mounted, in seconds since 1970.
    pub mounted: u64,
    /// The number of servers that passed the mount on.
    pub upgrades: u64,
    /// The number of requests that they answered.
    pub requests: u64,
    /// Whether a socket for processes that unmount is among the descriptors.
    pub has_unmount_socket: bool,
}

impl State {
    const SESSION: u16 = 16;
    const DRIVER: u16 = 17;
    const MOUNTED: u16 = 18;
    const UPGRADES: u16 = 19;
    const REQUESTS: u16 = 20;
    const UNMOUNT_SOCKET: u16 = 21;

    /// Encodes the fields.
    pub fn encode(&self) -> Vec<u8> {
        with_version(Fields::default(), "")
            .with(Self::SESSION, Need::Critical, &self.session)
            .with(Self::DRIVER, Need::Critical, &self.driver)
            .with_number(Self::MOUNTED, self.mounted)
            .with_number(Self::UPGRADES, self.upgrades)
            .with_number(Self::REQUESTS, self.requests)
            .with_number(Self::UNMOUNT_SOCKET, self.has_unmount_socket.into())
            .into_bytes()
    }

    /// Decodes the fields. Fails for another major version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        expect_version(&mut fields)?;
        let this = Self {
            session: fields.bytes(Self::SESSION)?.to_vec(),
            driver: fields.bytes(Self::DRIVER)?.to_vec(),
            mounted: fields.number(Self::MOUNTED)?,
            upgrades: fields.number(Self::UPGRADES)?,
            requests: fields.number(Self::REQUESTS)?,
            has_unmount_socket: fields.flag(Self::UNMOUNT_SOCKET)?,
        };
        fields.finish()?;
        Ok(this)
    }
}
