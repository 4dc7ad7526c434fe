//! Records: the fields of each kind, encoded as `len u16, kind u8, flags u8`, variable-length integers, and
//! byte strings after their lengths.
//!
//! Integers use LEB128: seven bits per byte, least significant first. Invariant: an encoded record fits into
//! a block, since names have at most 1024 bytes and longer targets are cut and marked.

use alloc::vec::Vec;

use obento_base::{FileKind, Generation, Ino};
use obento_driver::SetAttr;
use obento_driver::history::{Actor, OpenMode, Transferred};

use crate::actor::ActorId;
use crate::kinds;

/// Longest byte string of a record.
pub(crate) const STRING_MAX: usize = 1024;

/// An inode, distinguished from earlier inodes with the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// Inode number.
    pub ino: Ino,
    /// Generation of the inode number.
    pub generation: Generation,
}

/// A bit for each attribute that a change contained: mode, owner, group, access, modification, change and
/// birth time, flags, project, from the least significant bit on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AttrMask(pub u16);

impl AttrMask {
    /// Only the access time, which reading changes.
    pub(crate) const ACCESS_TIME: Self = Self(1 << 3);

    /// The names of the bits.
    pub const NAMES: [&'static str; 9] =
        ["mode", "uid", "gid", "atime", "mtime", "ctime", "btime", "flags", "project"];

    /// Returns the attributes that `change` contains.
    pub fn of(change: &SetAttr) -> Self {
        let present = [
            change.mode.is_some(),
            change.uid.is_some(),
            change.gid.is_some(),
            change.atime.is_some(),
            change.mtime.is_some(),
            change.ctime.is_some(),
            change.btime.is_some(),
            change.flags.is_some(),
            change.project.is_some(),
        ];
        Self(present.iter().rev().fold(0, |mask, &present| mask << 1 | u16::from(present)))
    }

    /// Returns the names of the attributes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
    }
}

/// An event of the log itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Recording began.
    Mount {
        /// Identifies the boot of the system.
        boot: [u8; 16],
    },
    /// Recording ended, and every change before it was recorded.
    Unmount,
    /// The recorder found no end of the previous recording: changes after the last sync before this mark
    /// are uncertain.
    Crash,
    /// This number of records is missing, because they could not be written.
    Lost(u64),
    /// A new version of the program took over.
    Upgrade,
}

/// What happened. Names are bytes in an unspecified encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the operations of the contract")]
pub enum Record<'a> {
    /// Defines `id` for the following records of the segment.
    Actor { id: ActorId, actor: Actor },
    /// An event of the log itself.
    Mark(Mark),
    /// A file was opened.
    Open { actor: ActorId, file: FileId, mode: OpenMode },
    /// A file was closed, after these transfers through the open file.
    Close { actor: ActorId, file: FileId, read: Transferred, written: Transferred },
    /// An inode was created. A file that was created without a name has an empty name.
    Create {
        actor: ActorId,
        parent: Ino,
        name: &'a [u8],
        file: FileId,
        kind: FileKind,
        mode: u16,
        target: &'a [u8],
    },
    /// A file got another name.
    Link { actor: ActorId, parent: Ino, name: &'a [u8], file: FileId },
    /// A name was removed; `links` names are left.
    Remove { actor: ActorId, parent: Ino, name: &'a [u8], file: FileId, links: u32 },
    /// A name was moved. With `exchange`, `replaced` got the old name; otherwise it lost a name and `links` remain.
    Rename {
        actor: ActorId,
        from: Ino,
        name: &'a [u8],
        to: Ino,
        new_name: &'a [u8],
        moved: FileId,
        replaced: Option<FileId>,
        links: u32,
        exchange: bool,
    },
    /// Data was written, in several calls if that took less than a second.
    Write { actor: ActorId, file: FileId, written: Transferred },
    /// The size was set.
    Truncate { actor: ActorId, file: FileId, size: u64 },
    /// Attributes were changed.
    SetAttr { actor: ActorId, file: FileId, mask: AttrMask },
    /// An extended attribute was set or removed. Its value is never recorded.
    Xattr { actor: ActorId, file: FileId, name: &'a [u8], removed: bool },
    /// A compacted edge: an activity read the version `version` of a file.
    Used { actor: ActorId, file: FileId, version: u64, sequence: u64 },
    /// A compacted edge: an activity wrote the version `version` of a file, which had this name then.
    Generated { actor: ActorId, file: FileId, version: u64, sequence: u64, parent: Ino, name: &'a [u8] },
    /// A file of a new volume was created with the contents of this file outside of the volume.
    Source { actor: ActorId, file: FileId, name: &'a [u8] },
    /// A record of a kind that this version does not define.
    Unknown { kind: u8 },
}

mod kind {
    pub(super) const ACTOR: u8 = 1;
    pub(super) const MARK: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const CREATE: u8 = 5;
    pub(super) const LINK: u8 = 6;
    pub(super) const REMOVE: u8 = 7;
    pub(super) const RENAME: u8 = 8;
    pub(super) const WRITE: u8 = 9;
    pub(super) const TRUNCATE: u8 = 10;
    pub(super) const SET_ATTR: u8 = 11;
    pub(super) const XATTR: u8 = 12;
    pub(super) const USED: u8 = 13;
    pub(super) const GENERATED: u8 = 14;
    pub(super) const SOURCE: u8 = 15;
}

/// Appends fields to a record.
pub(crate) struct Encoder<'b>(pub(crate) &'b mut Vec<u8>);

impl Encoder<'_> {
    pub(crate) fn int(&mut self, mut value: u64) -> &mut Self {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.0.push(low & 0x7f);
                return self;
            }
            self.0.push(low | 0x80);
        }
    }

    fn actor(&mut self, actor: ActorId) -> &mut Self {
        self.int(actor.0.into())
    }

    fn file(&mut self, file: FileId) -> &mut Self {
        self.int(file.ino.0).int(file.generation.0.into())
    }

    fn span(&mut self, span: Transferred) -> &mut Self {
        self.int(span.bytes).int(span.start).int(span.end.saturating_sub(span.start))
    }

    fn string(&mut self, bytes: &[u8]) -> &mut Self {
        let bytes = bytes.get(..STRING_MAX).unwrap_or(bytes);
        self.int(obento_base::wire::to_u64(bytes.len()));
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Reads fields of a record. Returns `None` at the end of the bytes and for an integer of more than 64 bits.
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn int(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.int()?.try_into().ok()
    }

    fn actor(&mut self) -> Option<ActorId> {
        self.small().map(ActorId)
    }

    fn file(&mut self) -> Option<FileId> {
        Some(FileId { ino: Ino(self.int()?), generation: Generation(self.small()?) })
    }

    fn span(&mut self) -> Option<Transferred> {
        let (bytes, start, len) = (self.int()?, self.int()?, self.int()?);
        Some(Transferred { bytes, start, end: start.checked_add(len)? })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let len = obento_base::wire::to_usize(self.int()?);
        let (string, rest) = self.0.split_at_checked(len).filter(|_| len <= STRING_MAX)?;
        self.0 = rest;
        Some(string)
    }
}

impl<'a> Record<'a> {
    fn kind(&self) -> u8 {
        match self {
            Self::Actor { .. } => kind::ACTOR,
            Self::Mark(_) => kind::MARK,
            Self::Open { .. } => kind::OPEN,
            Self::Close { .. } => kind::CLOSE,
            Self::Create { .. } => kind::CREATE,
            Self::Link { .. } => kind::LINK,
            Self::Remove { .. } => kind::REMOVE,
            Self::Rename { .. } => kind::RENAME,
            Self::Write { .. } => kind::WRITE,
            Self::Truncate { .. } => kind::TRUNCATE,
            Self::SetAttr { .. } => kind::SET_ATTR,
            Self::Xattr { .. } => kind::XATTR,
            Self::Used { .. } => kind::USED,
            Self::Generated { .. } => kind::GENERATED,
            Self::Source { .. } => kind::SOURCE,
            Self::Unknown { kind } => *kind,
        }
    }

    fn flags(&self) -> u8 {
        match *self {
            Self::Open { mode, .. } => u8::from(mode.read) | u8::from(mode.write) << 1,
            Self::Create { target, .. } => u8::from(target.len() > STRING_MAX),
            Self::Rename { replaced, exchange, .. } => u8::from(replaced.is_some()) | u8::from(exchange) << 1,
            Self::Xattr { removed, .. } => removed.into(),
            Self::Mark(mark) => match mark {
                Mark::Mount { .. } => 0,
                Mark::Unmount => 1,
                Mark::Crash => 2,
                Mark::Lost(_) => 3,
                Mark::Upgrade => 4,
            },
            _ => 0,
        }
    }

    /// Appends the record to `out`; `elapsed` is the time in microseconds since the previous record of the
    /// block.
    pub(crate) fn encode(&self, elapsed: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0, 0, self.kind(), self.flags()]);
        let mut to = Encoder(out);
        to.int(elapsed);
        self.encode_fields(&mut to);
        let len = u16::try_from(out.len().saturating_sub(start)).unwrap_or(u16::MAX);
        if let Some(field) = out.get_mut(start..).and_then(|record| record.first_chunk_mut()) {
            *field = len.to_le_bytes();
        }
    }

    fn encode_fields(&self, to: &mut Encoder<'_>) {
        match *self {
            Self::Actor { id, actor } => {
                to.actor(id).int(actor.pid.into()).int(actor.start).int(actor.uid.into());
                to.int(actor.gid.into()).0.extend_from_slice(&actor.comm);
            }
            Self::Mark(Mark::Mount { boot }) => to.0.extend_from_slice(&boot),
            Self::Mark(Mark::Lost(count)) => {
                to.int(count);
            }
            Self::Mark(_) | Self::Unknown { .. } => {}
            Self::Open { actor, file, .. } => {
                to.actor(actor).file(file);
            }
            Self::Close { actor, file, read, written } => {
                to.actor(actor).file(file).span(read).span(written);
            }
            Self::Create { actor, parent, name, file, kind, mode, target } => {
                to.actor(actor).int(parent.0).string(name).file(file);
                to.int((kind.mode_bits() | mode & 0o7777).into()).string(target);
            }
            Self::Link { actor, parent, name, file } => {
                to.actor(actor).int(parent.0).string(name).file(file);
            }
            Self::Remove { actor, parent, name, file, links } => {
                to.actor(actor).int(parent.0).string(name).file(file).int(links.into());
            }
            Self::Rename { actor, from, name, to: dir, new_name, moved, replaced, links, .. } => {
                to.actor(actor).int(from.0).string(name).int(dir.0).string(new_name).file(moved);
                if let Some(file) = replaced {
                    to.file(file).int(links.into());
                }
            }
            Self::Write { actor, file, written } => {
                to.actor(actor).file(file).span(written);
            }
            Self::Truncate { actor, file, size } => {
                to.actor(actor).file(file).int(size);
            }
            Self::SetAttr { actor, file, mask } => {
                to.actor(actor).file(file).int(mask.0.into());
            }
            Self::Xattr { actor, file, name, .. } | Self::Source { actor, file, name } => {
                to.actor(actor).file(file).string(name);
            }
            Self::Used { actor, file, version, sequence } => {
                to.actor(actor).file(file).int(version).int(sequence);
            }
            Self::Generated { actor, file, version, sequence, parent, name } => {
                to.actor(actor).file(file).int(version).int(sequence).int(parent.0).string(name);
            }
        }
    }

    /// Decodes the first record of `bytes`. Returns the record, the time in microseconds since the previous
    /// record, and the remaining bytes; `None` if the bytes are no record.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Self, u64, &'a [u8])> {
        let (len, _) = bytes.split_first_chunk()?;
        let (record, rest) = bytes.split_at_checked(u16::from_le_bytes(*len).into())?;
        let (&[_, _, kind, flags], fields) = record.split_first_chunk()?;
        let mut from = Decoder(fields);
        let elapsed = from.int()?;
        Some((Self::decode_fields(kind, flags, &mut from)?, elapsed, rest))
    }

    /// Returns the time in microseconds since the previous record, and the bytes after the first record of `bytes`.
    pub(crate) fn skip(bytes: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let (len, _) = bytes.split_first_chunk()?;
        let (record, rest) = bytes.split_at_checked(u16::from_le_bytes(*len).into())?;
        Some((Decoder(record.get(4..)?).int()?, rest))
    }

    /// Returns the file of the first record of `bytes`; `None` if the record has none, or several.
    pub(crate) fn peek_file(bytes: &[u8]) -> Option<FileId> {
        let (&[_, _, kind, _], fields) = bytes.split_first_chunk()?;
        let mut from = Decoder(fields);
        match kind {
            kind::OPEN
            | kind::CLOSE
            | kind::WRITE
            | kind::TRUNCATE
            | kind::SET_ATTR
            | kind::XATTR
            | kind::USED
            | kind::GENERATED
            | kind::SOURCE => {
                from.int().and_then(|_| from.actor())?;
                from.file()
            }
            kind::CREATE | kind::LINK | kind::REMOVE => {
                from.int().and_then(|_| from.actor())?;
                from.int().and_then(|_| from.string())?;
                from.file()
            }
            _ => None,
        }
    }

    /// Returns the kinds that the first record of `bytes` may have in an index, from its head.
    pub(crate) fn kinds(bytes: &[u8]) -> Option<u8> {
        let &[_, _, kind, flags] = bytes.first_chunk()?;
        let bit = |bit: u32| flags >> bit & 1 == 1;
        Some(match kind {
            kind::ACTOR => kinds::DEFINES,
            kind::OPEN => {
                let uses = if bit(0) { kinds::USES } else { kinds::OTHERS };
                uses | if bit(1) { kinds::WRITES } else { kinds::OTHERS }
            }
            kind::CLOSE => kinds::CLOSES,
            kind::CREATE | kind::GENERATED => kinds::NAMES | kinds::WRITES,
            kind::LINK | kind::REMOVE | kind::RENAME => kinds::NAMES,
            kind::WRITE | kind::TRUNCATE | kind::SOURCE => kinds::WRITES,
            kind::USED => kinds::USES,
            _ => kinds::OTHERS,
        })
    }

    fn decode_fields(kind: u8, flags: u8, from: &mut Decoder<'a>) -> Option<Self> {
        let bit = |bit: u32| flags >> bit & 1 == 1;
        Some(match kind {
            kind::ACTOR => {
                let (id, pid, start) = (from.actor()?, from.small()?, from.int()?);
                let actor = Actor { pid, start, uid: from.small()?, gid: from.small()?, comm: from.array()? };
                Self::Actor { id, actor }
            }
            kind::MARK => Self::Mark(match flags {
                0 => Mark::Mount { boot: from.array()? },
                1 => Mark::Unmount,
                2 => Mark::Crash,
                3 => Mark::Lost(from.int()?),
                4 => Mark::Upgrade,
                _ => return Some(Self::Unknown { kind }),
            }),
            kind::OPEN => {
                let mode = OpenMode { read: bit(0), write: bit(1) };
                Self::Open { actor: from.actor()?, file: from.file()?, mode }
            }
            kind::CLOSE => {
                let (actor, file) = (from.actor()?, from.file()?);
                Self::Close { actor, file, read: from.span()?, written: from.span()? }
            }
            kind::CREATE => {
                let (actor, parent, name) = (from.actor()?, Ino(from.int()?), from.string()?);
                let file = from.file()?;
                let bits = u16::try_from(from.int()?).ok()?;
                let (kind, mode) = (FileKind::from_mode(bits)?, bits & 0o7777);
                Self::Create { actor, parent, name, file, kind, mode, target: from.string()? }
            }
            kind::LINK => {
                let (actor, parent, name) = (from.actor()?, Ino(from.int()?), from.string()?);
                Self::Link { actor, parent, name, file: from.file()? }
            }
            kind::REMOVE => {
                let (actor, parent, name) = (from.actor()?, Ino(from.int()?), from.string()?);
                Self::Remove { actor, parent, name, file: from.file()?, links: from.small()? }
            }
            kind::RENAME => {
                let (actor, old, name) = (from.actor()?, Ino(from.int()?), from.string()?);
                let (to, new_name, moved) = (Ino(from.int()?), from.string()?, from.file()?);
                let (replaced, links) = if bit(0) { (Some(from.file()?), from.small()?) } else { (None, 0) };
                Self::Rename {
                    actor,
                    from: old,
                    name,
                    to,
                    new_name,
                    moved,
                    replaced,
                    links,
                    exchange: bit(1),
                }
            }
            kind::WRITE => Self::Write { actor: from.actor()?, file: from.file()?, written: from.span()? },
            kind::TRUNCATE => Self::Truncate { actor: from.actor()?, file: from.file()?, size: from.int()? },
            kind::SET_ATTR => {
                let (actor, file) = (from.actor()?, from.file()?);
                Self::SetAttr { actor, file, mask: AttrMask(from.int()?.try_into().ok()?) }
            }
            kind::XATTR => {
                let (actor, file) = (from.actor()?, from.file()?);
                Self::Xattr { actor, file, name: from.string()?, removed: bit(0) }
            }
            kind::USED => {
                let (actor, file) = (from.actor()?, from.file()?);
                Self::Used { actor, file, version: from.int()?, sequence: from.int()? }
            }
            kind::GENERATED => {
                let (actor, file) = (from.actor()?, from.file()?);
                let (version, sequence, parent) = (from.int()?, from.int()?, Ino(from.int()?));
                Self::Generated { actor, file, version, sequence, parent, name: from.string()? }
            }
            kind::SOURCE => Self::Source { actor: from.actor()?, file: from.file()?, name: from.string()? },
            kind => Self::Unknown { kind },
        })
    }

    /// Returns the actor of the record.
    pub fn actor(&self) -> Option<ActorId> {
        match *self {
            Self::Open { actor, .. }
            | Self::Close { actor, .. }
            | Self::Create { actor, .. }
            | Self::Link { actor, .. }
            | Self::Remove { actor, .. }
            | Self::Rename { actor, .. }
            | Self::Write { actor, .. }
            | Self::Truncate { actor, .. }
            | Self::SetAttr { actor, .. }
            | Self::Xattr { actor, .. }
            | Self::Used { actor, .. }
            | Self::Generated { actor, .. }
            | Self::Source { actor, .. } => Some(actor),
            Self::Actor { .. } | Self::Mark(_) | Self::Unknown { .. } => None,
        }
    }

    /// Returns the file of the record.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Self::Open { file, .. }
            | Self::Close { file, .. }
            | Self::Create { file, .. }
            | Self::Link { file, .. }
            | Self::Remove { file, .. }
            | Self::Rename { moved: file, .. }
            | Self::Write { file, .. }
            | Self::Truncate { file, .. }
            | Self::SetAttr { file, .. }
            | Self::Xattr { file, .. }
            | Self::Used { file, .. }
            | Self::Generated { file, .. }
            | Self::Source { file, .. } => Some(file),
            Self::Actor { .. } | Self::Mark(_) | Self::Unknown { .. } => None,
        }
    }
}
