//! The decoder of segments on any bytes.

mod common;

use std::sync::Arc;

use obento_base::{FileKind, Mode, Name};
use obento_driver::{FileSystem as _, NewNode, WritableFileSystem as _};
use obento_prov::{BLOCK, Damage, Entries, Entry, Graph, Header, LogOptions};
use proptest::prelude::*;

/// Returns a segment with many records.
fn segment() -> Vec<u8> {
    let inner = common::tmpfs(64 << 20);
    let fs = common::recorded(Arc::clone(&inner), LogOptions::default());
    let node = NewNode {
        kind: FileKind::Regular,
        mode: Mode::new(0o644),
        uid: 1,
        gid: 2,
        rdev: obento_base::DeviceNumber::default(),
        target: b"",
    };
    for number in 0..1000 {
        let name = format!("file {number}");
        fs.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node).unwrap();
    }
    fs.close().unwrap();
    common::segments(&inner).remove(0)
}

fn decoded(bytes: &[u8]) -> Vec<Result<Entry<'_>, Damage>> {
    Entries::new(bytes).collect()
}

#[test]
fn a_torn_block_loses_its_own_records_only() {
    let whole = segment();
    let all: Vec<_> = decoded(&whole).into_iter().map(Result::unwrap).collect();
    for block in 1..whole.len() / BLOCK {
        let mut torn = whole.clone();
        torn[block * BLOCK + BLOCK / 2..(block + 1) * BLOCK].fill(0xa5);
        let found = decoded(&torn);
        assert_eq!(found.iter().filter(|entry| entry.is_err()).count(), 1, "block {block}");
        assert!(found.contains(&Err(Damage::Checksum { block: block as u64 })));
        let left: Vec<_> = found.into_iter().flatten().collect();
        assert!(left.iter().all(|entry| all.contains(entry)));
        assert!(left.len() + BLOCK / 8 > all.len(), "block {block}: {} of {}", left.len(), all.len());
    }
}

#[test]
fn a_segment_that_ends_early_is_read_up_to_its_end() {
    let whole = segment();
    let all = decoded(&whole).len();
    for len in (0..whole.len()).step_by(1013) {
        let found = decoded(&whole[..len]);
        let damaged = found.iter().filter(|entry| entry.is_err()).count();
        assert!(damaged <= 1 && found.len() <= all + 1, "{len}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3 * BLOCK)) {
        let _ = Header::decode(&bytes);
        let mut graph = Graph::new();
        Entries::new(&bytes).flatten().for_each(|entry| graph.add(&entry));
    }

    #[test]
    fn records_with_a_valid_checksum_and_random_bytes_are_decoded_without_a_panic(
        changes in proptest::collection::vec((4..BLOCK, any::<u8>()), 1..20),
    ) {
        let mut bytes = segment();
        for (at, byte) in changes {
            bytes[BLOCK + at] = byte;
        }
        let sum = obento_base::crc::crc32c(!0, &bytes[BLOCK + 4..2 * BLOCK]);
        bytes[BLOCK..BLOCK + 4].copy_from_slice(&sum.to_le_bytes());
        let mut graph = Graph::new();
        for entry in Entries::new(&bytes).flatten() {
            graph.add(&entry);
        }
        let versions: Vec<_> = graph.generated().into_iter().map(|edge| edge.version).collect();
        for version in versions.into_iter().take(10) {
            let _ = (graph.sources(version), graph.products(version));
        }
    }
}
