//! Derives the UUID and the seeds of a volume from its contents, so that the same tree gives the same image.
//!
//! The bytes of files are not included: the host copies them without reading them into this process.

use obento_driver::Tree;
use obento_driver::tree::Body;
use obento_env::Random;
use sha2::{Digest, Sha256};

use super::BuildSettings;

/// The hash of a tree and its options.
pub(super) struct Seed {
    state: [u8; 32],
    drawn: std::sync::atomic::AtomicU64,
}

impl Seed {
    /// Hashes names, attributes, lengths and options.
    pub(super) fn of(tree: &Tree, settings: &BuildSettings) -> Self {
        let mut digest = Sha256::new();
        let mut field = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        field(b"obento build 1");
        field(settings.fs_type.as_bytes());
        field(&settings.label);
        field(format!("{:?} {:?} {:?}", settings.size, settings.room, settings.block_size).as_bytes());
        settings.features.iter().for_each(|feature| field(feature.as_bytes()));
        settings.settings.iter().for_each(|(name, value)| field(format!("{name}={value}").as_bytes()));
        if !settings.salt.is_empty() {
            field(&settings.salt);
        }
        for list in tree.xattr_sets() {
            list.iter().for_each(|(name, value)| [name, value].into_iter().for_each(|bytes| field(bytes)));
        }
        for (id, node) in tree.nodes() {
            let (size, rdev) = match node.body {
                Body::File { size, .. } => (size, (0, 0)),
                Body::CharDevice(number) | Body::BlockDevice(number) => (0, (number.major, number.minor)),
                _ => (0, (0, 0)),
            };
            let attr = &node.attr;
            let mut head = [0; 56];
            let mode = node.body.kind().mode_bits() | attr.mode.bits();
            let set = attr.xattrs.map_or(0, |set| set.index() as u64 + 1);
            let words = [
                u64::from(mode),
                u64::from(attr.uid) | u64::from(attr.gid) << 32,
                attr.mtime.secs().cast_unsigned(),
                u64::from(attr.mtime.nanos()) | u64::from(node.links) << 32,
                size,
                u64::from(rdev.0) | u64::from(rdev.1) << 32,
                set,
            ];
            head.chunks_exact_mut(8)
                .zip(words)
                .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
            field(&head);
            field(tree.target(node));
            for (name, child) in tree.children(id) {
                field(name);
                field(&child.0.to_le_bytes());
            }
            for range in tree.data_ranges(id).unwrap_or_default() {
                field(&range.start.to_le_bytes());
                field(&range.end.to_le_bytes());
            }
        }
        Self { state: digest.finalize().into(), drawn: Default::default() }
    }

    /// Hashes these fields.
    pub(super) fn of_fields<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> Self {
        let mut digest = Sha256::new();
        for field in fields {
            digest.update((field.len() as u64).to_le_bytes());
            digest.update(field);
        }
        Self { state: digest.finalize().into(), drawn: Default::default() }
    }
}

impl Random for Seed {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let drawn = self.drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let block = Sha256::new().chain_update(self.state).chain_update(drawn.to_le_bytes()).finalize();
            chunk.iter_mut().zip(block).for_each(|(to, from)| *to = from);
        }
    }

    /// Returns a UUID of version 8 of RFC 9562, which has custom contents.
    fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        self.fill(&mut uuid);
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}
