//! An open volume.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::utf16::to_units;
use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Ino, Result};
use obento_block::{BlockDevice, Slots};
use obento_driver::Notice;
use obento_env::sync::Mutex;

use super::log::{self, Log};
use super::node::Facts;
use super::options::NtfsOptions;
use super::stream_number;
use super::stream_table::StreamTable;
use crate::attribute::name::{FileName, to_utf8};
use crate::data::content::Content;
use crate::index::{Index, NAMES, Node};
use crate::layout::boot::Geometry;
use crate::layout::bytes::u16_at;
use crate::layout::raw::{kind, record, record_of, sequence_of};
use crate::mft::{File, Mft, Value};
use crate::security::map::{self, UserMap};
use crate::security::store::Store;
use crate::up_case::{self, UpCase};

/// Bit of the flags of the volume: not unmounted.
pub const DIRTY: u16 = 1;
/// No path of Windows has more directories: 32,767 units.
const DEPTH_MAX: usize = 16_384;
/// Number of bytes of a bitmap that are counted at once.
const COUNTED: usize = 64 << 10;

/// The properties of a volume that are read when it is opened.
#[derive(Debug)]
pub struct State {
    /// Label.
    pub label: Vec<u8>,
    /// Version: major, minor.
    pub version: (u8, u8),
    /// Flags: bit 0: not unmounted.
    pub flags: u16,
    /// State of the log.
    pub log: Log,
    /// Whether Windows is hibernated on it.
    pub is_hibernated: bool,
}

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    mft: Mft,
    up_case: UpCase,
    pub(super) options: NtfsOptions,
    pub(super) store: Option<Store>,
    pub(super) users: UserMap,
    pub(super) permissions: Slots<u64, Option<super::node::Granted>>,
    nodes: Slots<(u64, u64), Node>,
    pieces: Slots<(u64, u64), Arc<[u8]>>,
    indexes: Slots<u64, Arc<Index>>,
    contents: Slots<u64, Arc<Content>>,
    /// The facts and the streams of the file whose extended attributes were read last.
    pub(super) streams: Slots<u64, Arc<(Facts, StreamTable)>>,
    free: Mutex<Option<(u64, u64)>>,
    pub(super) state: State,
    pub(super) notices: Vec<Notice>,
}

impl Volume {
    /// Opens a volume.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the master file table cannot be found.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        geometry: Geometry,
        options: NtfsOptions,
        cache: usize,
    ) -> Result<Self> {
        // Half of the memory is for records; nodes and pieces of data share the rest.
        let mft = Mft::open(device.clone(), geometry, cache / 2)?;
        let state =
            State { label: Vec::new(), version: (0, 0), flags: 0, log: Log::Empty, is_hibernated: false };
        let mut volume = Self {
            device,
            mft,
            up_case: UpCase::substitute(),
            options,
            store: None,
            users: UserMap::default(),
            permissions: Slots::new(256),
            nodes: Slots::new((cache / (32 << 10)).max(8)),
            pieces: Slots::new((cache / (512 << 10)).max(2)),
            indexes: Slots::new(32),
            contents: Slots::new(64),
            streams: Slots::new(1),
            free: Mutex::new(None),
            state,
            notices: Vec::new(),
        };
        volume.notices.extend(volume.mft.damage.map(Notice::Damaged));
        volume.read_tables();
        Ok(volume)
    }

    /// Reads what the volume says about itself. Damage is a remark, since files stay readable.
    fn read_tables(&mut self) {
        match self.data_of(record::UP_CASE, up_case::LEN) {
            Ok(bytes) => self.up_case = UpCase::decode(&bytes),
            Err(error) => self.notices.push(Notice::Damaged(error)),
        }
        match self.read_state() {
            Ok(state) => self.state = state,
            Err(error) => self.notices.push(Notice::Damaged(error)),
        }
        match Store::open(self) {
            Ok(store) => self.store = Some(store),
            // A volume of version 1.2 has another file in its place.
            Err(error) if self.state.version.0 >= 3 => self.notices.push(Notice::Damaged(error)),
            Err(_) => {}
        }
        let map = self.root_file(&["NTFS-3G", "UserMapping"], map::LEN_MAX);
        self.users = map.map(|text| UserMap::decode(&text)).unwrap_or_default();
        self.state.is_hibernated = self.is_hibernated();
        if self.state.log == Log::Pending {
            self.notices.push(Notice::NotReplayed);
        }
    }

    fn read_state(&self) -> Result<State> {
        let file = self.mft.file(Ino(record::VOLUME))?;
        let label = file.resident(kind::VOLUME_NAME)?.map(to_utf8).unwrap_or_default();
        let information = file.resident(kind::VOLUME_INFORMATION)?.unwrap_or_default();
        let version = |at: usize| information.get(at).copied().unwrap_or(0);
        let flags = u16_at(information, 10).unwrap_or(0);
        let log = self.read_log().unwrap_or(Log::Damaged);
        Ok(State { label, version: (version(8), version(9)), flags, log, is_hibernated: false })
    }

    fn read_log(&self) -> Result<Log> {
        let file = self.mft.file(Ino(record::LOG_FILE))?;
        let Some(Value::Stream(stream)) = file.value(&self.mft, kind::DATA, &[])? else {
            return Ok(Log::Damaged);
        };
        let mut pages = vec![0; to_usize(stream.size()).min(2 * log::PAGE)];
        stream.read(&*self.device, self.geometry(), 0, &mut pages)?;
        Ok(Log::decode(&pages))
    }

    /// Returns the data of a file of the file system.
    fn data_of(&self, number: u64, max: u64) -> Result<Vec<u8>> {
        let file = self.mft.file(Ino(number))?;
        let value = file.value(&self.mft, kind::DATA, &[])?.ok_or_else(|| file.base.field("Data", 0, 0))?;
        self.read_value(Ino(number), value, max)
    }

    /// Returns the start of a file below the root.
    fn root_file(&self, path: &[&str], max: u64) -> Option<Vec<u8>> {
        let mut ino = Ino(record::ROOT);
        for name in path {
            let units: Vec<u16> = name.encode_utf16().collect();
            let dotted: Vec<u16> = core::iter::once(u16::from(b'.')).chain(units.iter().copied()).collect();
            let index = self.index(ino).ok()?;
            let found = index.find(self, &dotted).or_else(|_| index.find(self, &units));
            ino = Ino(record_of(found.ok()?));
        }
        let content = self.content(ino).ok()?;
        let mut bytes = vec![0; to_usize(content.size().min(max))];
        self.read_content(ino, &content, 0, &mut bytes).ok()?;
        Some(bytes)
    }

    fn is_hibernated(&self) -> bool {
        self.root_file(&["hiberfil.sys"], 4).is_some_and(|magic| magic.eq_ignore_ascii_case(b"hibr"))
    }

    /// Returns the properties that were read when the volume was opened.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the label.
    pub fn label(&self) -> &[u8] {
        &self.state.label
    }

    /// Returns the remarks about the volume.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> &Geometry {
        self.mft.geometry()
    }

    /// Returns the master file table.
    pub fn mft(&self) -> &Mft {
        &self.mft
    }

    /// Returns the up-case table.
    pub fn up_case(&self) -> &UpCase {
        &self.up_case
    }

    /// Returns the device.
    pub fn device_ref(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Returns the shared device.
    pub(super) fn shared_device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the length of the device.
    pub fn device_len(&self) -> u64 {
        self.device.len()
    }

    /// Returns the cache of index blocks.
    pub fn nodes(&self) -> &Slots<(u64, u64), Node> {
        &self.nodes
    }

    /// Returns the cache of decompressed data.
    pub fn pieces(&self) -> &Slots<(u64, u64), Arc<[u8]>> {
        &self.pieces
    }

    /// Returns the index of a directory.
    ///
    /// # Errors
    ///
    /// 1. `Stale`: the inode is not in use.
    /// 2. `NotDirectory`: `ino` is not a directory.
    pub fn index(&self, ino: Ino) -> Result<Arc<Index>> {
        if let Some(index) = self.indexes.get(&ino.0) {
            return Ok(index);
        }
        if stream_number::split(ino).is_some() {
            return Err(Error::NotDirectory);
        }
        let file = self.mft.file(ino)?;
        if !file.base.is_directory() || !Facts::of(self, &file)?.is_directory() {
            return Err(Error::NotDirectory);
        }
        let index = Arc::new(Index::open(self, &file, NAMES)?);
        Ok(self.indexes.put(ino.0, index))
    }

    /// Returns the data of a regular file.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    pub fn content(&self, ino: Ino) -> Result<Arc<Content>> {
        if let Some(content) = self.contents.get(&ino.0) {
            return Ok(content);
        }
        if let Some((file, index)) = stream_number::split(ino) {
            let content = Arc::new(self.stream_content(file, index)?);
            return Ok(self.contents.put(ino.0, content));
        }
        let file = self.mft.file(ino)?;
        let facts = Facts::of(self, &file)?;
        match facts.kind {
            obento_base::FileKind::Regular => {}
            obento_base::FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        let content = Content::of(self.mft(), &file, facts.reparse.as_ref())?;
        Ok(self.contents.put(ino.0, Arc::new(content)))
    }

    /// Returns the inode that a name refers to: a file, or a stream of a file as `FILE:STREAM`.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        match self.find_file(dir, name) {
            Err(Error::NotFound) if name.contains(&b':') => self.find_stream(dir, name),
            found => found,
        }
    }

    /// Returns the file that a name refers to.
    pub fn find_file(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let index = self.index(dir)?;
        let name = to_units(name).ok_or(Error::NotFound)?;
        let reference = index.find(self, &name)?;
        let ino = Ino(record_of(reference));
        let found = match self.mft.base(ino) {
            Err(Error::Stale) => return Err(Corrupt::UnusedInode { ino }.into()),
            found => found?,
        };
        let sequence = sequence_of(reference);
        if sequence != 0 && sequence != found.header().sequence.get() {
            return Err(Corrupt::UnusedInode { ino }.into());
        }
        if found.is_directory() {
            self.expect_child(dir, ino)?;
        }
        Ok(ino)
    }

    /// Returns the directory that the first name of a file refers to.
    pub fn parent_of(&self, file: &File) -> Result<Ino> {
        for attribute in file.all(kind::FILE_NAME)? {
            if let Some(name) = attribute.resident().and_then(FileName::decode) {
                return Ok(Ino(record_of(name.raw.parent.get())));
            }
        }
        Err(file.base.field("FileName", 0, 0))
    }

    /// Checks that a directory lies in `dir` by its own account. Each directory then has one parent, and no directory
    /// is below itself.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the directory names another parent, or is not in use.
    pub fn expect_child(&self, dir: Ino, child: Ino) -> Result<()> {
        let file = match self.mft.file(child) {
            Err(Error::Stale) => return Err(Corrupt::UnusedInode { ino: child }.into()),
            file => file?,
        };
        let parent = self.parent_of(&file)?;
        if parent == dir { Ok(()) } else { Err(file.base.field("ParentDirectory", 0, parent.0)) }
    }

    /// Returns how many directories the directory of a file is below the root.
    pub fn depth_of(&self, file: &File) -> Result<usize> {
        let mut at = self.parent_of(file)?;
        for depth in 0..DEPTH_MAX {
            if at.0 == record::ROOT {
                return Ok(depth);
            }
            let next = self.parent_of(&self.mft.file(at)?)?;
            if next == at {
                break;
            }
            at = next;
        }
        Err(file.base.field("ParentDirectory", 0, at.0))
    }

    /// Returns the number of free clusters and of free records.
    pub fn free(&self) -> Result<(u64, u64)> {
        let mut known = self.free.lock();
        if let Some(free) = *known {
            return Ok(free);
        }
        let clusters = self.zeros(record::BITMAP, kind::DATA, self.geometry().clusters)?;
        let records = self.zeros(record::MFT, kind::BITMAP, self.mft.records())?;
        *known = Some((clusters, records));
        Ok((clusters, records))
    }

    /// Counts the zeros among the first `count` bits of an attribute.
    fn zeros(&self, number: u64, kind: u32, count: u64) -> Result<u64> {
        let file = self.mft.file(Ino(number))?;
        let value = file.value(&self.mft, kind, &[])?.ok_or_else(|| file.base.field("Bitmap", 0, 0))?;
        let content = Content::from(value);
        let mut buf = vec![0; COUNTED];
        let (mut at, mut left, mut ones) = (0_u64, count, 0_u64);
        while left > 0 {
            let len = self.read_content(Ino(number), &content, at, &mut buf)?;
            if len == 0 {
                break;
            }
            let bits = left.min(obento_base::wire::to_u64(len).saturating_mul(8));
            let map = obento_base::Bitmap::new(buf.get(..len).unwrap_or_default());
            ones = ones.saturating_add(map.count_ones(u32::try_from(bits).unwrap_or(u32::MAX)).into());
            left = left.saturating_sub(bits);
            at = at.saturating_add(obento_base::wire::to_u64(len));
        }
        Ok(count.saturating_sub(ones))
    }
}
