//! A volume with a journal, written byte by byte: blocks of 1 KiB, the volume first and the journal after it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;

use obento_base::crc::crc32_be;
use obento_base::wire::IntoBytes;
use obento_base::wire::be::{U16, U32, U64};
use obento_block::{BlockDevice, MemDevice, Remap};
use obento_journal::raw::{self, RawCommit, RawHeader, RawSuperBlock, RawTag, RawTag3};
use obento_journal::{Checksums, Compat, Incompat, Journal, Replayed, Run, Runs, Tid, checksum};
use zerocopy::FromZeros;

pub mod world;

pub const BLOCK: usize = 1024;
/// Blocks of the volume; the journal follows.
pub const VOLUME: u32 = 64;
pub const UUID: [u8; 16] = *b"journal under te";

pub struct Maker {
    pub checksums: Checksums,
    pub wide: bool,
    pub asynchronous: bool,
    /// Blocks of the journal; the log starts at 1.
    pub len: u32,
    pub fast_commits: u32,
    pub start: u32,
    pub sequence: u32,
    pub tid: u32,
    pub time: u64,
    at: u32,
    running: u32,
    blocks: Vec<[u8; BLOCK]>,
}

impl Maker {
    pub fn new(checksums: Checksums, len: u32) -> Self {
        let blocks = vec![[0; BLOCK]; usize::try_from(len).unwrap()];
        let (wide, asynchronous, fast_commits) = (false, false, 0);
        let (start, sequence, tid, at, time, running) = (1, 7, 7, 1, 1000, !0);
        Self {
            checksums,
            wide,
            asynchronous,
            len,
            fast_commits,
            start,
            sequence,
            tid,
            time,
            at,
            running,
            blocks,
        }
    }

    /// Starts the log at journal block `at`, with transaction `tid`.
    pub fn starting(mut self, at: u32, tid: u32) -> Self {
        (self.start, self.at, self.sequence, self.tid) = (at, at, tid, tid);
        self
    }

    pub fn block_mut(&mut self, at: u32) -> &mut [u8; BLOCK] {
        &mut self.blocks[usize::try_from(at).unwrap()]
    }

    /// The position of the next block of the log.
    pub fn at(&self) -> u32 {
        self.at
    }

    fn put(&mut self, bytes: [u8; BLOCK]) {
        *self.block_mut(self.at) = bytes;
        self.at += 1;
        if self.at == self.len - self.fast_commits {
            self.at = 1;
        }
    }

    fn header(&self, kind: u32) -> RawHeader {
        RawHeader {
            h_magic: U32::new(raw::MAGIC),
            h_blocktype: U32::new(kind),
            h_sequence: U32::new(self.tid),
        }
    }

    fn seal(&self, block: &mut [u8; BLOCK]) {
        if self.checksums.in_blocks() {
            let sum = checksum::control_block(checksum::seed(&UUID), block);
            block[BLOCK - 4..].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn tag(&self, block: u64, flags: u16, data: &[u8; BLOCK]) -> Vec<u8> {
        let sum = checksum::data_block(checksum::seed(&UUID), Tid(self.tid), data);
        let (low, high) = (u32::try_from(block & 0xffff_ffff).unwrap(), u32::try_from(block >> 32).unwrap());
        if self.checksums == Checksums::V3 {
            let (t_blocknr, t_flags) = (U32::new(low), U32::new(flags.into()));
            let (t_blocknr_high, t_checksum) = (U32::new(high), U32::new(sum));
            return RawTag3 { t_blocknr, t_flags, t_blocknr_high, t_checksum }.as_bytes().to_vec();
        }
        let half = if self.checksums == Checksums::V2 { u16::try_from(sum & 0xffff).unwrap() } else { 0 };
        let tag = RawTag { t_blocknr: U32::new(low), t_checksum: U16::new(half), t_flags: U16::new(flags) };
        let mut bytes = tag.as_bytes().to_vec();
        bytes.extend(if self.wide { high.to_be_bytes().to_vec() } else { Vec::new() });
        bytes.extend(if self.checksums == Checksums::V2 { &[0; 2][..] } else { &[] });
        bytes
    }

    /// Appends a descriptor and its blocks; a block that begins with the magic number is escaped.
    pub fn copies(&mut self, copies: &[(u64, [u8; BLOCK])]) -> &mut Self {
        let mut descriptor = self.header(raw::DESCRIPTOR_BLOCK).as_bytes().to_vec();
        let mut data = Vec::new();
        for (n, &(block, mut bytes)) in copies.iter().enumerate() {
            let escape = bytes[..4] == raw::MAGIC.to_be_bytes();
            if escape {
                bytes[..4].fill(0);
            }
            let flags =
                u16::from(escape) | if n > 0 { 2 } else { 0 } | if n + 1 == copies.len() { 8 } else { 0 };
            descriptor.extend(self.tag(block, flags, &bytes));
            descriptor.extend(if n == 0 { &UUID[..] } else { &[] });
            data.push(bytes);
        }
        descriptor.resize(BLOCK, 0);
        let mut descriptor = descriptor.try_into().unwrap();
        self.seal(&mut descriptor);
        for block in std::iter::once(descriptor).chain(data) {
            self.running = crc32_be(self.running, &block);
            self.put(block);
        }
        self
    }

    pub fn revoke(&mut self, blocks: &[u64]) -> &mut Self {
        let mut bytes = self.header(raw::REVOKE_BLOCK).as_bytes().to_vec();
        let width = if self.wide { 8 } else { 4 };
        bytes.extend(u32::try_from(16 + blocks.len() * width).unwrap().to_be_bytes());
        for block in blocks {
            bytes.extend(&block.to_be_bytes()[8 - width..]);
        }
        bytes.resize(BLOCK, 0);
        let mut bytes = bytes.try_into().unwrap();
        self.seal(&mut bytes);
        self.put(bytes);
        self
    }

    pub fn commit(&mut self) -> &mut Self {
        let mut raw = RawCommit::new_zeroed();
        raw.header = self.header(raw::COMMIT_BLOCK);
        raw.h_commit_sec = U64::new(self.time);
        if self.checksums == Checksums::V1 {
            (raw.h_chksum_type, raw.h_chksum_size) = (raw::CRC32_CHKSUM, raw::CRC32_CHKSUM_SIZE);
            raw.h_chksum[0] = U32::new(self.running);
        }
        let mut bytes = [0; BLOCK];
        bytes[..60].copy_from_slice(raw.as_bytes());
        if self.checksums.in_blocks() {
            let sum = checksum::commit_block(checksum::seed(&UUID), &bytes);
            bytes[16..20].copy_from_slice(&sum.to_be_bytes());
        }
        self.put(bytes);
        (self.tid, self.time, self.running) = (self.tid.wrapping_add(1), self.time + 1, !0);
        self
    }

    fn super_block(&self) -> [u8; BLOCK] {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_header = self.header(raw::SUPER_BLOCK_V2);
        raw.s_blocksize = U32::new(1024);
        (raw.s_maxlen, raw.s_first) = (U32::new(self.len), U32::new(1));
        (raw.s_sequence, raw.s_start) = (U32::new(self.sequence), U32::new(self.start));
        raw.s_uuid = UUID;
        let mut incompat = Incompat::REVOKE;
        incompat.set(Incompat::BITS_64, self.wide);
        incompat.set(Incompat::ASYNC_COMMIT, self.asynchronous);
        incompat.set(Incompat::CSUM_V2, self.checksums == Checksums::V2);
        incompat.set(Incompat::CSUM_V3, self.checksums == Checksums::V3);
        incompat.set(Incompat::FAST_COMMIT, self.fast_commits > 0);
        raw.s_num_fc_blks = U32::new(self.fast_commits);
        raw.s_feature_incompat = U32::new(incompat.bits());
        if self.checksums == Checksums::V1 {
            raw.s_feature_compat = U32::new(Compat::CHECKSUM.bits());
        }
        if self.checksums.in_blocks() {
            raw.s_checksum_type = raw::CRC32C_CHKSUM;
            raw.s_checksum = U32::new(checksum::super_block(raw.as_bytes()));
        }
        raw.as_bytes().try_into().unwrap()
    }

    /// Volume and journal as one device.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..VOLUME).flat_map(|n| [u8::try_from(n).unwrap(); BLOCK]).collect();
        bytes.extend(self.super_block());
        bytes.extend(self.blocks[1..].iter().flatten());
        bytes
    }

    pub fn open(&self) -> obento_base::Result<Journal> {
        open(self.bytes(), self.len)
    }

    pub fn replay(&self) -> obento_base::Result<Replayed> {
        self.open()?.replay_index(VOLUME.into())
    }

    /// Returns for each changed block of the replayed volume the first byte, and whether it begins with the
    /// magic number.
    pub fn changes(&self) -> Vec<(u64, [u8; BLOCK])> {
        let before = MemDevice::read_only(self.bytes());
        let index = self.replay().unwrap().index;
        let after = Remap::new(MemDevice::read_only(self.bytes()), 1024, index);
        let blocks = |device: &dyn BlockDevice, n: u64| {
            let mut block = [0; BLOCK];
            device.read_at(n * 1024, &mut block).unwrap();
            block
        };
        let pairs = (0..u64::from(VOLUME)).map(|n| (n, blocks(&before, n), blocks(&after, n)));
        pairs.filter(|(_, old, new)| old != new).map(|(n, _, new)| (n, new)).collect()
    }
}

pub fn open(bytes: Vec<u8>, len: u32) -> obento_base::Result<Journal> {
    open_on(Arc::new(MemDevice::read_only(bytes)), len)
}

pub fn open_on(device: Arc<dyn BlockDevice>, len: u32) -> obento_base::Result<Journal> {
    let mut runs = Runs::new();
    runs.push(Run { at: 0, block: VOLUME.into(), len })?;
    Journal::open(device, 1024, runs)
}

/// A block full of one byte.
pub fn full(byte: u8) -> [u8; BLOCK] {
    [byte; BLOCK]
}

pub const ALL: [Checksums; 4] = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];
